package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newInitCommand(sys system, p parts) *cobra.Command {
	return &cobra.Command{
		Use:     "init DIR",
		Short:   "Write a repository to start from",
		Long:    "Init writes the layout of a watched repository, with one small job that runs\nanywhere. It overwrites nothing.",
		Example: "  trainyard init my-jobs\n  trainyard init .",
		Args:    arguments(cobra.ExactArgs(1), "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			return initialise(sys, p.Skeleton(), args[0])
		},
	}
}

func initialise(sys system, skeleton fs.FS, dir string) error {
	root := sys.path(dir)
	var files, there []string
	err := fs.WalkDir(skeleton, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files = append(files, name)
		if _, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name))); err == nil {
			there = append(there, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("init %s: %w", dir, err)
	}
	if len(there) > 0 {
		return hint(fmt.Errorf("init %s: already there: %s; nothing was written", dir, strings.Join(there, ", ")),
			"name another directory, or remove what is in the way")
	}
	for _, name := range files {
		if err := writeNew(skeleton, name, filepath.Join(root, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("init %s: %w", dir, err)
		}
		fmt.Fprintln(sys.Out, filepath.Join(dir, filepath.FromSlash(name)))
	}
	steps := []string{"git add . && git commit -m 'first job'", "trainyard run --repo . --once"}
	if !exists(filepath.Join(root, ".git")) {
		steps[0] = "git init -b main && " + steps[0]
	}
	if filepath.Clean(dir) == "." {
		steps = append([]string{"trainyard validate"}, steps...)
	} else {
		steps = append([]string{"cd " + dir + " && trainyard validate"}, steps...)
	}
	_, err = fmt.Fprintf(sys.Out, "\nNext:\n  %s\n", strings.Join(steps, "\n  "))
	return err
}

// writeNew copies one file, which must not be there.
func writeNew(from fs.FS, name, to string) error {
	content, err := fs.ReadFile(from, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
