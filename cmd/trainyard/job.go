package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/cmd/edit"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// jobOptions are what rerun, stop, suspend and resume were asked for.
type jobOptions struct {
	Job    string
	Action edit.Action
	Push   bool
	DryRun bool
}

// newJobCommands are the commands that edit a job's file.
func newJobCommands(sys system) []*cobra.Command {
	return []*cobra.Command{
		newJobCommand(sys, edit.Rerun, "Run a job again that has run",
			"Rerun gives the job a new value of the annotation trainyard.dev/rerun, which is a\nnew run, and takes back a stop."),
		newJobCommand(sys, edit.Stop, "End a job's run as Stopped",
			"Stop ends the job's run; rerun starts a new one."),
		newJobCommand(sys, edit.Suspend, "Stop a job's pods and let the run wait",
			"Suspend stops the job's pods; resume goes on with the same run."),
		newJobCommand(sys, edit.Resume, "Go on with a suspended job", "Resume takes back suspend."),
	}
}

func newJobCommand(sys system, action edit.Action, short, what string) *cobra.Command {
	opts := jobOptions{Action: action}
	cmd := &cobra.Command{
		Use:   string(action) + " JOB",
		Short: short,
		Long: what + `

It edits the job's file under jobs/ in the checkout around the working directory,
keeps every other byte of it, and commits that file alone. The daemon acts when
the commit has been pushed.`,
		Example: fmt.Sprintf("  trainyard %s mnist --push\n  trainyard %s nlp/bert --dry-run", action, action),
		Args:    arguments(cobra.ExactArgs(1), "JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Job = args[0]
			return changeJob(cmd, sys, opts)
		},
	}
	cmd.Flags().BoolVar(&opts.Push, "push", false, "push the commit too")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print the difference and change nothing")
	return cmd
}

// jobKey reads [namespace/]name. Without a namespace it is empty.
func jobKey(job string) repo.Key {
	namespace, name, ok := strings.Cut(job, "/")
	if !ok {
		return repo.Key{Name: job}
	}
	return repo.Key{Namespace: namespace, Name: name}
}

func changeJob(cmd *cobra.Command, sys system, o jobOptions) error {
	root, err := rootOf(sys.Dir)
	if err != nil {
		return err
	}
	at, err := findJob(root, jobKey(o.Job))
	if err != nil {
		return err
	}
	checkout := checkout{ctx: cmd.Context(), dir: root}
	if !o.DryRun {
		if err := checkout.clean(at.file); err != nil {
			return err
		}
	}
	name := filepath.Join(root, filepath.FromSlash(at.file))
	before, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Action, o.Job, err)
	}
	after, err := edit.Apply(before, at.Index, o.Action, time.Now())
	if errors.Is(err, edit.ErrUnchanged) {
		_, err = fmt.Fprintf(sys.Out, "%s: %s: nothing to change\n", at.file, at.Name)
		return err
	}
	if err != nil {
		return hint(fmt.Errorf("%s: %s %s: %w", at.file, o.Action, o.Job, err), "edit the file by hand")
	}
	if o.DryRun {
		_, err = sys.Out.Write(diff.Diff("a/"+at.file, before, "b/"+at.file, after))
		return err
	}
	if err := replaceFile(name, after); err != nil {
		return fmt.Errorf("%s %s: %w", o.Action, o.Job, err)
	}
	message := fmt.Sprintf("%s: %s", at.Name, o.Action)
	if err := checkout.commit(at.file, message); err != nil {
		return errors.Join(err, replaceFile(name, before))
	}
	fmt.Fprintf(sys.Out, "%s: committed as %q\n", at.file, message)
	if o.Push {
		return checkout.push()
	}
	_, err = fmt.Fprintln(sys.Out, "The daemon acts when it is pushed: git push")
	return err
}

// place is where a job is defined.
type place struct {
	edit.Document
	file string // slash-separated, from the root
}

// findJob looks a job up in the files under jobs/.
func findJob(root string, key repo.Key) (place, error) {
	all, err := documents(root)
	if err != nil {
		return place{}, err
	}
	var found []place
	for _, p := range all {
		if p.Name == key.Name && (key.Namespace == "" || cmp.Or(p.Namespace, key.Namespace) == key.Namespace) {
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return place{}, hint(fmt.Errorf("no file under %s defines a job %s", filepath.Join(root, repo.JobsDir), trimmed(key)),
			"if a kustomization makes the name (namePrefix, nameSuffix), edit the file that it is made from by hand")
	}
	if found[0].Namespace != found[1].Namespace && key.Namespace == "" {
		return place{}, usagef("%s is defined in two namespaces: %s:%d and %s:%d; name it as namespace/%s",
			key.Name, found[0].file, found[0].Line, found[1].file, found[1].Line, key.Name)
	}
	return place{}, hint(fmt.Errorf("%s is defined more than once: %s:%d and %s:%d", trimmed(key), found[0].file, found[0].Line, found[1].file, found[1].Line),
		"edit the file that is meant by hand, and commit it")
}

func trimmed(key repo.Key) string { return strings.TrimPrefix(key.String(), "/") }
