package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// workTree is a repository with jobs as it lies on disk, and the part of it
// that a command is about.
type workTree struct {
	Root string
	// Paths are slash-separated, from Root; none is everything.
	Paths []string
}

// findTree finds the repository around the paths that the user named, or
// around the working directory.
func findTree(sys system, args []string) (workTree, error) {
	var tree workTree
	if len(args) == 0 {
		root, err := rootOf(sys.Dir)
		return workTree{Root: root}, err
	}
	for _, arg := range args {
		name := sys.path(arg)
		if _, err := os.Stat(name); err != nil {
			return tree, usagef("%w", err)
		}
		root, err := rootOf(name)
		if err != nil { // files that lie in no repository are checked as they are
			root = filepath.Dir(name)
		}
		if tree.Root == "" {
			tree.Root = root
		}
		if tree.Root != root {
			return tree, usagef("%s and %s lie in two repositories, %s and %s", args[0], arg, tree.Root, root)
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return tree, fmt.Errorf("find %s: %w", arg, err)
		}
		tree.Paths = append(tree.Paths, filepath.ToSlash(rel))
	}
	if slices.Contains(tree.Paths, ".") {
		tree.Paths = nil
	}
	return tree, nil
}

// rootOf goes up from a path, to the top of the Git checkout at most, and takes
// the topmost directory that holds jobs: a checkout may hold a repository's
// layout further down.
func rootOf(name string) (string, error) {
	found, checkout := "", ""
	for dir := filepath.Clean(name); ; dir = filepath.Dir(dir) {
		if isDir(filepath.Join(dir, repo.JobsDir)) || exists(filepath.Join(dir, repo.SettingsFile)) {
			found = dir
		}
		if exists(filepath.Join(dir, ".git")) {
			checkout = dir
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	switch {
	case found != "":
		return found, nil
	case checkout != "":
		return checkout, nil
	}
	return "", hint(fmt.Errorf("%s lies in no repository: there is no %s/, no %s and no .git at it or above it", name, repo.JobsDir, repo.SettingsFile),
		"trainyard init DIR writes a repository to start from")
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// Environments are those that trainyard.yaml lists. If it lists none, they are
// the default one and those that have an overlay.
func (t workTree) Environments() ([]string, error) {
	if listed := t.listed(); len(listed) > 0 {
		return listed, nil
	}
	out := []string{repo.DefaultEnvironment}
	entries, err := os.ReadDir(filepath.Join(t.Root, repo.OverlaysDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && isDir(filepath.Join(t.Root, repo.OverlaysDir)) {
		return nil, fmt.Errorf("list environments: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != repo.DefaultEnvironment && isName(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// listed are the environments of trainyard.yaml. What is wrong with that file
// is told by whoever renders with it.
func (t workTree) listed() []string {
	info, err := os.Lstat(filepath.Join(t.Root, repo.SettingsFile))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxJobFile {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(t.Root, repo.SettingsFile))
	if err != nil {
		return nil
	}
	var settings struct {
		Environments map[string]any `yaml:"environments"`
	}
	if yaml.Unmarshal(text, &settings) != nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(settings.Environments))
	return slices.DeleteFunc(names, func(name string) bool { return !isName(name) })
}

// misnamed are overlays that no environment can have, as problems.
func (t workTree) misnamed() (problems []*repo.Error) {
	entries, err := os.ReadDir(filepath.Join(t.Root, repo.OverlaysDir))
	if err != nil {
		return nil // rendering tells of it
	}
	for _, e := range entries {
		if e.IsDir() && !isName(e.Name()) && !strings.HasPrefix(e.Name(), ".") {
			problems = append(problems, &repo.Error{
				File: path.Join(repo.OverlaysDir, e.Name()), Warning: true,
				Message: "no environment can have this name: small letters, digits and - within, 63 at most",
			})
		}
	}
	return problems
}
