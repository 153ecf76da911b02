package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trainyard/trainyard/cmd/edit"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// maxJobFile bounds the files that are read to find a job.
const maxJobFile = 4 << 20

// documents lists the jobs that are defined under jobs/, without the patches of
// kustomizations: those name a job and do not define it. Files that are no YAML
// are passed over; validate tells of them.
func documents(root string) ([]place, error) {
	tree, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("find jobs: %w", err)
	}
	defer tree.Close()
	var out []place
	patches := map[string]bool{}
	err = fs.WalkDir(tree.FS(), repo.JobsDir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := e.Name()
		if info, err := e.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxJobFile || !isYAML(base) {
			return nil
		}
		file, err := fs.ReadFile(tree.FS(), name)
		if err != nil {
			return err
		}
		if stem := strings.TrimSuffix(base, path.Ext(base)); stem == "kustomization" {
			for _, p := range patchFiles(file) {
				patches[path.Join(path.Dir(name), p)] = true
			}
			return nil
		}
		found, err := edit.Documents(file)
		if err != nil {
			return nil
		}
		for _, d := range found {
			if d.IsJob() {
				out = append(out, place{Document: d, file: name})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find jobs in %s: %w", root, err)
	}
	kept := out[:0]
	for _, p := range out {
		if !patches[p.file] {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

func isYAML(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// patchFiles are the files that a kustomization names as patches.
func patchFiles(file []byte) []string {
	var k struct {
		Patches     []struct{ Path string } `yaml:"patches"`
		JSON6902    []struct{ Path string } `yaml:"patchesJson6902"`
		StrategicMg []string                `yaml:"patchesStrategicMerge"`
	}
	if err := yaml.Unmarshal(file, &k); err != nil {
		return nil // validate tells of it
	}
	out := k.StrategicMg
	for _, p := range append(k.Patches, k.JSON6902...) {
		out = append(out, p.Path)
	}
	return out
}

// replaceFile publishes by rename: nobody sees half a file.
func replaceFile(name string, content []byte) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".trainyard-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = cmp.Or(err, f.Chmod(info.Mode().Perm()), f.Sync())
	err = cmp.Or(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// checkout is the user's own, worked on with the user's own git.
type checkout struct {
	ctx context.Context
	dir string
}

// git runs one command and returns what it printed; its error has what git said.
func (c checkout) git(args ...string) (string, error) {
	var out, errs bytes.Buffer
	// A file's name is a name, whatever characters it has.
	cmd := exec.CommandContext(c.ctx, "git", append([]string{"--literal-pathspecs"}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, &out, &errs
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", hint(fmt.Errorf("git %s: %w", args[0], err), "install Git, or edit the file and commit it by other means")
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// clean refuses a file with changes that are not committed: they would be
// committed along with ours.
func (c checkout) clean(file string) error {
	out, err := c.git("status", "--porcelain", "--untracked-files=all", "--", file)
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "" {
		return hint(fmt.Errorf("%s has changes that are not committed", file), "commit or discard them first: git diff -- %s", file)
	}
	if _, err := c.git("ls-files", "--error-unmatch", "--", file); err != nil {
		return hint(fmt.Errorf("%s is not in Git", file), "is it ignored? git check-ignore -v %s", file)
	}
	return nil
}

// commit commits one file and leaves the rest of the index as it is.
func (c checkout) commit(file, message string) error {
	_, err := c.git("commit", "--quiet", "-m", message, "--", file)
	return err
}

func (c checkout) push() error {
	if _, err := c.git("push", "--quiet"); err != nil {
		return hint(fmt.Errorf("committed, not pushed: %w", err), "git pull --rebase, then git push")
	}
	return nil
}
