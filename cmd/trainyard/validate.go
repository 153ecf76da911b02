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

// validateOptions are what `trainyard validate` was asked for.
type validateOptions struct {
	Environment string
	Server      bool
	Cluster     clusterOptions
}

func newValidateCommand(sys system, p parts) *cobra.Command {
	var opts validateOptions
	cmd := &cobra.Command{
		Use:   "validate [PATH...]",
		Short: "Check job files; problems as file:line:column",
		Long: `Validate renders the jobs of the repository around the working directory, or of
the paths given, as the daemon does, for every environment that trainyard.yaml
lists, or without such a list for the default one and each that has an overlay.
Problems go to standard output, one a line; with an error among them the exit
code is 1.

With --server it asks a cluster too whether it would take a pod of each role,
without making one, and says how gangs would start. That needs the right to
create pods there.`,
		Example: "  trainyard validate\n  trainyard validate jobs/mnist.yaml\n  trainyard validate --env prod path/to/repository\n  trainyard validate --env prod --server --context prod",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.complete(cmd, sys); err != nil {
				return err
			}
			return validate(cmd.Context(), sys, p, args, opts)
		},
	}
	cmd.Flags().StringVar(&opts.Environment, "env", "", "check for this environment alone")
	cmd.Flags().BoolVar(&opts.Server, "server", false, "ask a cluster whether it would take the pods")
	addClusterFlags(cmd.Flags(), &opts.Cluster)
	addGangFlags(cmd.Flags(), &opts.Cluster)
	return cmd
}

func (o *validateOptions) complete(cmd *cobra.Command, sys system) error {
	if o.Environment != "" {
		if err := checkName(cmd, "env", o.Environment); err != nil {
			return err
		}
	}
	if o.Server {
		return o.Cluster.complete(cmd, sys)
	}
	for _, name := range clusterFlags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return hint(usagef("%s: --%s means nothing without --server", cmd.Name(), name), "add --server, or leave --%s (and %s) out", name, variable(name))
		}
	}
	return nil
}

func validate(ctx context.Context, sys system, p parts, args []string, o validateOptions) error {
	tree, err := findTree(sys, args)
	if err != nil {
		return err
	}
	environments := []string{o.Environment}
	if o.Environment == "" {
		if environments, err = tree.Environments(); err != nil {
			return err
		}
		if o.Server && len(environments) > 1 {
			return hint(usagef("validate: --server needs --env: there are several environments (%s)", strings.Join(environments, ", ")), "name the one that runs on the cluster")
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
		if o.Server {
			refused, err := rehearse(ctx, sys.Err, p, o.Cluster, e, found)
			if err != nil {
				return fmt.Errorf("validate: %w", err)
			}
			problems = append(problems, refused...)
		}
	}
	return o.report(sys, environments, len(jobs), sorted(problems))
}

// report prints what was found.
func (o *validateOptions) report(sys system, environments []string, jobs int, problems []*repo.Error) error {
	for _, e := range problems {
		if _, err := fmt.Fprintln(sys.Out, e.Error()); err != nil {
			return err
		}
	}
	errs, warnings := repo.Split(problems)
	fmt.Fprintf(sys.Err, "%s, %s, %s (%s: %s)\n", count(jobs, "job"), count(len(errs), "error"), count(len(warnings), "warning"),
		plural(len(environments), "environment"), strings.Join(environments, ", "))
	if len(errs) > 0 {
		return errProblems
	}
	if jobs == 0 {
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
