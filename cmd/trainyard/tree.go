package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/trainyard/trainyard/repo-layout"
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

// Environments are the default one and those that have an overlay.
func (t workTree) Environments() ([]string, error) {
	out := []string{repo.DefaultEnvironment}
	entries, err := os.ReadDir(filepath.Join(t.Root, repo.OverlaysDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list environments: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != repo.DefaultEnvironment {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
