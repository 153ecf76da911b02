package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func newValidateCommand(sys system, p parts) *cobra.Command {
	var environment string
	cmd := &cobra.Command{
		Use:   "validate [PATH...]",
		Short: "Check job files; problems as file:line:column",
		Long: `Validate renders the jobs of the repository around the working directory, or of
the paths given, as the daemon does, for every environment that trainyard.yaml
lists, or without such a list for the default one and each that has an overlay.
Problems go to standard output, one a line; with an error among them the exit
code is 1.`,
		Example: "  trainyard validate\n  trainyard validate jobs/mnist.yaml\n  trainyard validate --env prod path/to/repository",
		RunE: func(cmd *cobra.Command, args []string) error {
			if environment != "" {
				if err := checkName(cmd, "env", environment); err != nil {
					return err
				}
			}
			return validate(cmd.Context(), sys, p, args, environment)
		},
	}
	cmd.Flags().StringVar(&environment, "env", "", "check for this environment alone")
	return cmd
}

func validate(ctx context.Context, sys system, p parts, args []string, environment string) error {
	tree, err := findTree(sys, args)
	if err != nil {
		return err
	}
	environments := []string{environment}
	if environment == "" {
		if environments, err = tree.Environments(); err != nil {
			return err
		}
	}
	jobs := map[repo.Key]bool{}
	problems := tree.misnamed()
	for _, e := range environments {
		found, wrong, err := tree.render(ctx, p, e)
		if err != nil {
			return err
		}
		problems = append(problems, wrong...)
		for _, j := range found {
			jobs[j.Key] = true
		}
	}
	problems = sorted(problems)
	for _, e := range problems {
		if _, err := fmt.Fprintln(sys.Out, e.Error()); err != nil {
			return err
		}
	}
	errs, warnings := repo.Split(problems)
	fmt.Fprintf(sys.Err, "%s, %s, %s (%s: %s)\n", count(len(jobs), "job"), count(len(errs), "error"), count(len(warnings), "warning"),
		plural(len(environments), "environment"), strings.Join(environments, ", "))
	if len(errs) > 0 {
		return errProblems
	}
	if len(jobs) == 0 {
		fmt.Fprintf(sys.Err, "hint: jobs are defined in files %s/….yaml, .yml or .json\n", repo.JobsDir)
	}
	return nil
}

// render renders what the command is about, and lists every problem of it.
func (t workTree) render(ctx context.Context, p parts, environment string) (jobs []repo.Job, problems []*repo.Error, err error) {
	tree, err := os.OpenRoot(t.Root) // which cannot be left through symbolic links
	if err != nil {
		return nil, nil, fmt.Errorf("open repository: %w", err)
	}
	defer tree.Close()
	d, err := p.Render(ctx, tree.FS(), environment, t.Paths)
	if err != nil {
		return nil, nil, fmt.Errorf("render %s for environment %s: %w", t.Root, environment, err)
	}
	problems = slices.Clone(d.Problems)
	for _, j := range d.Jobs {
		problems = append(problems, j.Warnings...)
	}
	for _, i := range d.Invalid {
		problems = append(problems, i.Errors...)
	}
	return d.Jobs, problems, nil
}

// sorted is repo.SortErrors that drops every repeat: a problem of two
// environments is one.
func sorted(problems []*repo.Error) []*repo.Error {
	seen := map[repo.Error]bool{}
	once := slices.DeleteFunc(problems, func(e *repo.Error) bool {
		again := seen[*e]
		seen[*e] = true
		return again
	})
	return repo.SortErrors(once)
}

func count(n int, word string) string { return fmt.Sprintf("%d %s", n, plural(n, word)) }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
