package main

import (
	"fmt"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// remoteOptions say where the repository is and how to be let in.
type remoteOptions struct {
	Repo         string
	Branch       string
	StatusBranch string
	Environment  string
	TokenFile    string
	Username     string
	SSHKey       string
	SSHAgent     string // from SSH_AUTH_SOCK
	KnownHosts   []string
	CAFile       string
	Proxy        string
}

// runOptions are what `trainyard run` was asked for, checked and complete.
type runOptions struct {
	remoteOptions
	Runner          string // local or kubernetes
	Cluster         clusterOptions
	LeaseNamespace  string // "" is that of the context
	NoLease         bool
	StateDir        string
	Poll            time.Duration
	PublishInterval time.Duration
	Listen          string
	PolicyFile      string
	WebhookSecret   string // a file
	Once            bool
	AuthorName      string
	AuthorEmail     string
	LogFormat       string
	LogLevel        string
}

const defaultAuthor = "Trainyard <trainyard@localhost>"

// addRemoteFlags are the flags of every command that reads the remote.
func addRemoteFlags(flags *pflag.FlagSet, o *remoteOptions) {
	flags.StringVar(&o.Repo, "repo", "", "URL or path of the repository")
	flags.StringVar(&o.Branch, "branch", "main", "the watched branch")
	flags.StringVar(&o.StatusBranch, "status-branch", repo.StatusBranch, "branch of the records; the watched branch puts them under status/")
	flags.StringVar(&o.Environment, "env", repo.DefaultEnvironment, "the environment")
	flags.StringVar(&o.TokenFile, "token-file", "", "file with the token or password for HTTPS")
	flags.StringVar(&o.Username, "username", "", "user for HTTPS or SSH (default: the URL's, else git)")
	flags.StringVar(&o.SSHKey, "ssh-key", "", "file with the private key for SSH (default: the SSH agent)")
	flags.StringSliceVar(&o.KnownHosts, "known-hosts", nil, "files with SSH host keys (default ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts)")
	flags.StringVar(&o.CAFile, "ca-file", "", "file with certificates to trust beside the system's")
	flags.StringVar(&o.Proxy, "proxy", "", "URL of a proxy (default: HTTPS_PROXY and its like)")
}

// complete fills in what the user did not say, and checks what can be checked
// without asking anybody.
func (o *remoteOptions) complete(cmd *cobra.Command, sys system) error {
	if err := checkName(cmd, "env", o.Environment); err != nil {
		return err
	}
	for _, b := range []struct{ flag, name string }{{"branch", o.Branch}, {"status-branch", o.StatusBranch}} {
		if b.name == "" || strings.HasPrefix(b.name, "-") || strings.HasPrefix(b.name, "refs/") {
			return hint(usagef("%s: --%s: %q is no branch", cmd.Name(), b.flag, b.name), "give its short name, as in main")
		}
	}
	o.Repo = absoluteRepo(o.Repo, sys)
	o.SSHAgent = sys.env("SSH_AUTH_SOCK")
	files := []struct {
		flag string
		path *string
	}{{"token-file", &o.TokenFile}, {"ssh-key", &o.SSHKey}, {"ca-file", &o.CAFile}}
	for _, f := range files {
		if err := existing(cmd, sys, f.flag, f.path); err != nil {
			return err
		}
	}
	for i := range o.KnownHosts {
		if err := existing(cmd, sys, "known-hosts", &o.KnownHosts[i]); err != nil {
			return err
		}
	}
	if o.KnownHosts == nil {
		for _, f := range []string{filepath.Join(sys.home(), ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"} {
			if _, err := os.Stat(f); err == nil {
				o.KnownHosts = append(o.KnownHosts, f)
			}
		}
	}
	return nil
}

// checkName refuses what could not be a directory on the status branch.
func checkName(cmd *cobra.Command, flag, name string) error {
	if !isName(name) {
		return hint(usagef("%s: --%s: %q is no name", cmd.Name(), flag, name), "small letters, digits and - within, 63 at most, as in prod")
	}
	return nil
}

// isName says whether an environment may have a name.
func isName(name string) bool {
	return name != "" && len(name) <= 63 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && name[0] != '-' && name[len(name)-1] != '-'
}

// existing makes a file's path absolute, and refuses one that is not there.
func existing(cmd *cobra.Command, sys system, flag string, path *string) error {
	if *path == "" {
		return nil
	}
	*path = sys.path(*path)
	info, err := os.Stat(*path)
	switch {
	case err != nil:
		return usagef("%s: --%s: %w", cmd.Name(), flag, err)
	case info.IsDir():
		return usagef("%s: --%s: %s is a directory", cmd.Name(), flag, *path)
	}
	return nil
}

// newRunFlags declares the flags of run.
func addRunFlags(flags *pflag.FlagSet, o *runOptions, author *string) {
	addRemoteFlags(flags, &o.remoteOptions)
	choice(flags, &o.Runner, "runner", "", runnerLocal, "where pods run", runnerLocal, runnerKubernetes)
	addClusterFlags(flags, &o.Cluster)
	addNamespaceFlag(flags, &o.Cluster)
	addGangFlags(flags, &o.Cluster)
	flags.StringVar(&o.LeaseNamespace, "lease-namespace", "", "namespace of the lease by which one daemon of the environment leads (default: the context's, or the daemon's own)")
	flags.BoolVar(&o.NoLease, "no-lease", false, "lead without a lease: nothing else may run this environment")
	flags.StringVar(&o.StateDir, "state-dir", "", "directory of the mirror and the local runner (default: one for each repository and environment)")
	flags.DurationVar(&o.Poll, "poll", 15*time.Second, "how often to look at the repository")
	flags.DurationVar(&o.PublishInterval, "publish-interval", 10*time.Second, "least time between two pushes of records")
	flags.StringVar(&o.Listen, "listen", "", "address for /hook, /healthz, /readyz and /metrics, as in :8080 (default: none)")
	flags.StringVar(&o.WebhookSecret, "webhook-secret-file", "", "file with the secret of push webhooks; without it there is no /hook")
	flags.StringVar(&o.PolicyFile, "policy", "", "file that says what jobs may ask for")
	flags.BoolVar(&o.Once, "once", false, "run everything to its end, push the records, and exit with 1 if a job failed")
	flags.StringVar(author, "author", defaultAuthor, "author of the commits with records, as in 'Name <mail>'")
	choice(flags, &o.LogFormat, "log-format", "", "auto", "auto is console on a terminal and json elsewhere", "auto", "console", "json")
	choice(flags, &o.LogLevel, "log-level", "", "info", "least level of what is logged", "debug", "info", "warn", "error")
}

func (o *runOptions) complete(cmd *cobra.Command, sys system, author string) error {
	if err := required(cmd, "repo"); err != nil {
		return err
	}
	if err := o.remoteOptions.complete(cmd, sys); err != nil {
		return err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"poll", o.Poll}, {"publish-interval", o.PublishInterval}} {
		if d.value <= 0 {
			return hint(usagef("%s: --%s: %s is not above zero", cmd.Name(), d.flag, d.value), "write it as in 15s or 2m")
		}
	}
	if err := existing(cmd, sys, "policy", &o.PolicyFile); err != nil {
		return err
	}
	if err := existing(cmd, sys, "webhook-secret-file", &o.WebhookSecret); err != nil {
		return err
	}
	if o.WebhookSecret != "" && o.Listen == "" {
		return hint(usagef("%s: --webhook-secret-file needs --listen", cmd.Name()), "as in --listen :8080")
	}
	address, err := mail.ParseAddress(author)
	if err != nil || address.Name == "" {
		return usagef("%s: --author: %q is not of the form 'Name <mail>'", cmd.Name(), author)
	}
	o.AuthorName, o.AuthorEmail = address.Name, address.Address
	if err := o.completeRunner(cmd, sys); err != nil {
		return err
	}
	o.StateDir = sys.path(o.StateDir)
	if o.StateDir == "" {
		if o.StateDir, err = stateDir(sys, o.Repo, o.Environment); err != nil {
			return hint(usagef("%s: %w", cmd.Name(), err), "give a directory as --state-dir")
		}
	}
	return nil
}

// completeRunner checks the flags of one runner.
func (o *runOptions) completeRunner(cmd *cobra.Command, sys system) error {
	if o.Runner != runnerKubernetes {
		return otherRunner(cmd, o.Runner, clusterFlags...)
	}
	if err := o.Cluster.complete(cmd, sys); err != nil {
		return err
	}
	if o.LeaseNamespace == "" {
		return nil
	}
	if o.NoLease {
		return hint(usagef("%s: --lease-namespace and --no-lease contradict each other", cmd.Name()), "leave one of them out")
	}
	return checkName(cmd, "lease-namespace", o.LeaseNamespace)
}

// String tells what is run, without anything secret.
func (o *runOptions) String() string {
	return fmt.Sprintf("%s, branch %s, environment %s, runner %s", redacted(o.Repo), o.Branch, o.Environment, o.Runner)
}
