package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newRunCommand(sys system, p parts) *cobra.Command {
	var opts runOptions
	var author string
	cmd := &cobra.Command{
		Use:   "run --repo URL",
		Short: "Run the jobs of a repository: the daemon",
		Long: `Run looks at a branch of a Git repository, runs the jobs that are defined under
jobs/, and commits what happens to the status branch. It may be killed at any
moment: jobs go on, and the next daemon takes them up.

With --once it ends when every job has come to rest and every record is pushed:
what runs has ended, retries and all. Jobs that wait for a person or for a time
count as at rest: suspended ones, those on hold, schedules between two times,
removals that wait to be confirmed. A job that waits for room (GPUs that are
taken, or were never there) is waited for, and every change of what is waited for
is logged; give such jobs a startDeadline. The exit code is 1 if a job has failed,
has errors or is forbidden by the policy, if the settings or the overlay have
errors, if the branch does not exist, if nothing was left to do but to
push records and that failed for two minutes, or if it was interrupted.

With --runner kubernetes pods run on a cluster, and the state directory holds
nothing but a copy of the repository: an empty one will do. Of several daemons of
an environment one leads, by the lease trainyard-ENVIRONMENT; the others read the
repository and stand by, as all do while the API server is away.
Each cluster needs an environment of its own. With --once the daemon waits until
it leads.

--policy is a YAML file. Without it everything is allowed; with it pods keep to
the baseline level of Kubernetes' pod security standards unless it says
podSecurity: privileged or restricted. Its other fields: namespaces, hostPaths,
hostNetwork, maxReplicas, maxGPUs, registries, serviceAccounts.`,
		Example: `  trainyard run --repo . --once                   # to the end of all jobs, as in CI
  trainyard run --repo /srv/git/jobs.git --poll 2s
  trainyard run --repo https://git.example.com/team/jobs --env prod --token-file token
  trainyard run --repo git@git.example.com:team/jobs --ssh-key ~/.ssh/trainyard
  trainyard run --repo ... --listen :8080 --webhook-secret-file secret
  trainyard run --repo ... --env prod --runner kubernetes --context prod --namespaces nlp,vision`,
		Args: arguments(cobra.NoArgs, "--repo URL [flags]"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.complete(cmd, sys, author); err != nil {
				return err
			}
			return p.Daemon(cmd.Context(), opts, sys.streams)
		},
	}
	addRunFlags(cmd.Flags(), &opts, &author)
	return cmd
}

// demoOptions are what `trainyard demo` was asked for.
type demoOptions struct {
	Dir string // where everything goes; empty is a new temporary directory
}

func newDemoCommand(sys system, p parts) *cobra.Command {
	var opts demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A repository, a daemon and a training on this machine, watched to the end",
		Long: `Demo makes a repository, starts the daemon on it, pushes jobs, one of them a
training of two workers and a parameter server, shows how they get on, and
prints the dashboard and the log of the records. It ends by itself and leaves
everything in a directory to look at.`,
		Example: "  trainyard demo\n  trainyard demo --dir /tmp/trainyard-demo",
		Args:    arguments(cobra.NoArgs, "[flags]"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Dir = sys.path(opts.Dir)
			return p.Demo(cmd.Context(), opts, sys.streams)
		},
	}
	cmd.Flags().StringVar(&opts.Dir, "dir", "", "an empty or absent directory for everything (default: a new temporary one)")
	return cmd
}

// newShimCommand is for the local runner alone: it starts this program again
// for each pod.
func newShimCommand(p parts) *cobra.Command {
	return &cobra.Command{
		Use:    "shim DIR",
		Short:  "Hold one pod of the local runner (started by the daemon)",
		Hidden: true,
		Args:   arguments(cobra.ExactArgs(1), "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			if code := p.Shim(args[0]); code != exitFine {
				return exitCode(code)
			}
			return nil
		},
	}
}

func newVersionCommand(sys system) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  trainyard version",
		Args:    arguments(cobra.NoArgs, ""),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(sys.Out, "trainyard %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is what the Go toolchain knows of this build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && info.Main.Version == "(devel)" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return info.Main.Version
}
