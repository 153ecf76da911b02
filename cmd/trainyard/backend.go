package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/trainyard/trainyard/cmd/daemon"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/kubernetes"
	"github.com/trainyard/trainyard/runner/local"
)

// chooseRunner sets what runs the pods, and who may lead. hasten asks for a look
// at the repository.
func chooseRunner(o *runOptions, log zerolog.Logger, hasten func(), d *daemon.Options) error {
	if o.Runner == runnerLocal { // the lock of its state directory keeps others away
		d.Open = daemon.Local(o.Environment, local.Options{})
		return nil
	}
	config, namespace, err := o.Cluster.connect()
	if err != nil {
		return err
	}
	quiet(log, config)
	d.Workers, d.Parallel = serverBound, serverBound
	d.Forbidden = within(o.Cluster.Namespaces, d.Forbidden)
	d.Open = func(string) (daemon.Backend, error) {
		options := o.Cluster.options(config, o.Environment)
		options.Log = log
		b, err := kubernetes.New(options)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	if o.NoLease {
		return nil
	}
	if o.LeaseNamespace != "" {
		namespace = o.LeaseNamespace
	}
	lease, err := kubernetes.NewLease(kubernetes.LeaseOptions{
		Config: config, Namespace: namespace, Environment: o.Environment, Once: o.Once, Hastened: hasten, Log: log,
	})
	if err != nil {
		return err
	}
	d.Election = lease
	return nil
}

// serverBound is how much is done at once where an API server does the work,
// and most of the time is spent in waiting for it.
const serverBound = 32

// within forbids jobs outside the namespaces that are served, if any are named,
// before it asks whatever else forbids them.
func within(namespaces []string, next func(*repo.Job) string) func(*repo.Job) string {
	if len(namespaces) == 0 {
		return next
	}
	return func(job *repo.Job) string {
		if !slices.Contains(namespaces, job.Namespace) {
			return fmt.Sprintf("namespace %s is none of those that this daemon serves (%s)", job.Namespace, strings.Join(namespaces, ", "))
		}
		if next == nil {
			return ""
		}
		return next(job)
	}
}

// quiet keeps client-go from a log of its own, which it has for the whole
// process: what matters of it the parts say themselves. At level debug it
// speaks through ours.
func quiet(log zerolog.Logger, config *rest.Config) {
	config.WarningHandler = rest.NoWarnings{}
	logger := logr.Discard()
	if log.GetLevel() <= zerolog.DebugLevel {
		logger = funcr.New(func(_, args string) { log.Debug().Msg("client-go: " + args) }, funcr.Options{})
	}
	klog.SetLogger(logger)
}

// openCluster opens the pods of an environment on a cluster, for a command.
func openCluster(o clusterOptions, environment string) (cluster, error) {
	config, _, err := o.connect()
	if err != nil {
		return nil, err
	}
	quiet(zerolog.Nop(), config)
	r, err := kubernetes.Open(o.options(config, environment))
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	return r, nil
}
