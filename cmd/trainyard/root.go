package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, sys system, p parts, args []string) int {
	root := newRootCommand(sys, p)
	root.SetArgs(args)
	root.SetIn(sys.In)
	root.SetOut(sys.Out)
	root.SetErr(sys.Err)
	return report(sys.Err, root.ExecuteContext(ctx))
}

const rootLong = `Trainyard runs machine-learning training jobs whose only interface is a Git
repository. Push a job file, and it runs; what happened comes back as commits on
branch trainyard/status.

Every flag can be given as a variable: --status-branch as
TRAINYARD_STATUS_BRANCH. The flag wins.

Exit codes: 0 fine, 1 problems found or a job failed, 2 wrong usage.`

const variablesHelp = `{{if and .HasAvailableLocalFlags .HasParent}}
Flags can be given as variables, --some-flag as TRAINYARD_SOME_FLAG; the flag wins.
{{end}}`

// newRootCommand builds the whole command tree.
func newRootCommand(sys system, p parts) *cobra.Command {
	root := &cobra.Command{
		Use:   "trainyard",
		Short: "Training jobs from a Git repository",
		Long:  rootLong,
		Example: `  trainyard demo                                  # see it work, on this machine
  trainyard init my-jobs                          # write a repository to start from
  trainyard validate                              # check the job files around here
  trainyard run --repo . --once                   # run everything to its end
  trainyard run --repo https://git.example.com/team/jobs --env prod
  trainyard status                                # what runs, waits, failed`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          anyCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(sys.Err)
			if err := cmd.Help(); err != nil {
				return err
			}
			return usagef("a command is missing")
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return applyVariables(cmd, sys.Env) },
	}
	root.SetUsageTemplate(root.UsageTemplate() + variablesHelp)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return hint(usagef("%s: %w", cmd.Name(), err), "see %s --help", cmd.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: "run", Title: "Running jobs:"}, &cobra.Group{ID: "write", Title: "Writing jobs:"},
		&cobra.Group{ID: "watch", Title: "Looking:"}, &cobra.Group{ID: "change", Title: "Changing a job (edits its file and commits):"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", newRunCommand(sys, p), newDemoCommand(sys, p))
	add("write", newInitCommand(sys, p), newValidateCommand(sys, p), newRenderCommand(sys, p))
	add("watch", newStatusCommand(sys, p), newLogsCommand(sys, p))
	add("change", newJobCommands(sys)...)
	add("", newVersionCommand(sys), newShimCommand(p), newTrainerCommand(sys))
	return root
}

// anyCommand refuses arguments of the root: they are commands that do not exist.
func anyCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return hint(err, "did you mean %s?", strings.Join(near, " or "))
	}
	return hint(err, "see trainyard --help")
}

// arguments checks how many there are, and makes what is wrong a usage error.
func arguments(check cobra.PositionalArgs, form string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		err := usagef("%s: an argument is missing", cmd.Name())
		if len(args) > 0 {
			err = usagef("%s: too many arguments: %s", cmd.Name(), strings.Join(args, " "))
		}
		return hint(err, "the form is %s", strings.TrimSpace(cmd.CommandPath()+" "+form))
	}
}
