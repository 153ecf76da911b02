package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/runner/kubernetes"
)

// The runners.
const (
	runnerLocal      = "local"
	runnerKubernetes = "kubernetes"
)

// clusterOptions say which cluster is meant, and what of it.
type clusterOptions struct {
	// Kubeconfig are files, of which the first that says something counts. None
	// is the cluster that this process runs in.
	Kubeconfig    []string
	Context       string
	Namespaces    []string // none is all
	Gang          string   // auto, or one of kubernetes' kinds
	GangScheduler string
	file          string // as it was given
}

// addClusterFlags are the flags of every command that speaks to a cluster.
func addClusterFlags(flags *pflag.FlagSet, o *clusterOptions) {
	flags.StringVar(&o.file, "kubeconfig", "", "file that says how the cluster is reached (default: $KUBECONFIG, ~/.kube/config, or the cluster around this process)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current one)")
}

// addNamespaceFlag is for commands that look at pods.
func addNamespaceFlag(flags *pflag.FlagSet, o *clusterOptions) {
	flags.StringSliceVar(&o.Namespaces, "namespaces", nil, "namespaces of the cluster to look at (default: all)")
}

// addGangFlags are for commands that start pods, or rehearse it.
func addGangFlags(flags *pflag.FlagSet, o *clusterOptions) {
	choice(flags, &o.Gang, "gang", "", "auto", "how all pods of a gang start or none; auto is what the cluster offers", gangs...)
	flags.StringVar(&o.GangScheduler, "gang-scheduler", "", "name of the scheduler that has the coscheduling plugin")
}

// options are what the Kubernetes runner is asked for.
func (o *clusterOptions) options(config *rest.Config, environment string) kubernetes.Options {
	gang := kubernetes.Gang(o.Gang)
	if o.Gang == gangs[0] {
		gang = ""
	}
	return kubernetes.Options{Config: config, Environment: environment, Namespaces: o.Namespaces, Gang: gang, GangScheduler: o.GangScheduler}
}

var (
	// clusterFlags are those that only --runner kubernetes takes.
	clusterFlags = []string{"kubeconfig", "context", "namespaces", "lease-namespace", "no-lease", "gang", "gang-scheduler"}
	// gangs are the ways to start the pods of a gang together.
	gangs = []string{
		"auto", string(kubernetes.GangNone), string(kubernetes.GangNative), string(kubernetes.GangVolcano),
		string(kubernetes.GangCoscheduling), string(kubernetes.GangKueue),
	}
)

// otherRunner refuses flags that the runner has no use for: whoever gave them
// meant another one.
func otherRunner(cmd *cobra.Command, runner string, names ...string) error {
	other := runnerKubernetes
	if runner == other {
		other = runnerLocal
	}
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return hint(usagef("%s: --%s means nothing without --runner %s", cmd.Name(), name, other), "add --runner %s, or leave --%s (and %s) out", other, name, variable(name))
		}
	}
	return nil
}

// complete finds the kubeconfig, as kubectl does.
func (o *clusterOptions) complete(cmd *cobra.Command, sys system) error {
	for _, n := range o.Namespaces {
		if err := checkName(cmd, "namespaces", n); err != nil {
			return err
		}
	}
	if o.file != "" {
		if err := existing(cmd, sys, "kubeconfig", &o.file); err != nil {
			return err
		}
		o.Kubeconfig = []string{o.file}
		return nil
	}
	if list := sys.env("KUBECONFIG"); list != "" {
		o.Kubeconfig = there(sys, filepath.SplitList(list))
		if o.Kubeconfig == nil {
			return hint(usagef("%s: KUBECONFIG: %s is not there", cmd.Name(), list), "correct the variable, or give the file as --kubeconfig")
		}
		return nil
	}
	if home := sys.home(); home != "" {
		o.Kubeconfig = there(sys, []string{filepath.Join(home, ".kube", "config")})
	}
	return nil
}

// there are those of the files that exist.
func there(sys system, files []string) (found []string) {
	for _, f := range files {
		if f == "" {
			continue
		}
		if _, err := os.Stat(sys.path(f)); err == nil {
			found = append(found, sys.path(f))
		}
	}
	return found
}

// connect reads the kubeconfig, and says too which namespace it means. It asks
// no server. Errors quote names and paths, and no credential.
func (o *clusterOptions) connect() (config *rest.Config, namespace string, err error) {
	if len(o.Kubeconfig) == 0 {
		return o.inCluster()
	}
	files := strings.Join(o.Kubeconfig, ", ")
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: o.Kubeconfig}
	known, err := rules.Load()
	if err != nil {
		return nil, "", hint(fmt.Errorf("kubeconfig: %w", err), "kubectl config view --kubeconfig FILE reads it in the same way")
	}
	contexts := "its contexts: " + cmp.Or(strings.Join(slices.Sorted(maps.Keys(known.Contexts)), ", "), "none")
	switch name := cmp.Or(o.Context, known.CurrentContext); {
	case name == "":
		return nil, "", hint(fmt.Errorf("kubeconfig %s has no current context", files), "choose one with --context; %s", contexts)
	case known.Contexts[name] == nil:
		return nil, "", hint(fmt.Errorf("kubeconfig %s has no context %q", files, name), "%s", contexts)
	}
	client := clientcmd.NewNonInteractiveClientConfig(*known, o.Context, &clientcmd.ConfigOverrides{}, rules)
	if config, err = client.ClientConfig(); err == nil {
		namespace, _, err = client.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", files, err)
	}
	return config, namespace, nil
}

// serviceAccount is where a pod finds what it may know of its cluster.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

func (o *clusterOptions) inCluster() (*rest.Config, string, error) {
	if o.Context != "" {
		return nil, "", fmt.Errorf("there is no kubeconfig that could have context %q", o.Context)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, "", hint(errors.New("there is no kubeconfig, and this process does not run in a cluster"), "give --kubeconfig FILE, set KUBECONFIG, or write ~/.kube/config")
	}
	if err != nil {
		return nil, "", fmt.Errorf("the cluster around this process: %w", err)
	}
	namespace := "default"
	if b, err := os.ReadFile(serviceAccount + "/namespace"); err == nil && len(b) > 0 {
		namespace = strings.TrimSpace(string(b))
	}
	return config, namespace, nil
}
