package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// logsOptions are what `trainyard logs` was asked for.
type logsOptions struct {
	remoteOptions
	Runner    string // "" is local, as far as there is anything
	Cluster   clusterOptions
	StateDir  string
	Job, Task string
	Follow    bool
	Attempt   int32
	Container string
	Tail      int64
}

const lastAttemptOf = -1 // of --attempt: the last one of each task

func newLogsCommand(sys system, p parts) *cobra.Command {
	var opts logsOptions
	cmd := &cobra.Command{
		Use:   "logs JOB [TASK]",
		Short: "What a job's tasks have printed",
		Long: `Logs prints the output of a job's tasks from the state directory of the daemon on
this machine, or with --runner kubernetes from the cluster, which needs the right
to list pods and to read their logs. When it is not there (any more), it prints
the ends of logs that the record keeps in the repository: of tasks that failed, or
whose pod was being deleted when they succeeded.`,
		Example: `  trainyard logs mnist
  trainyard logs nlp/bert worker-0 -f
  trainyard logs mnist worker-1 --attempt 0
  trainyard logs nlp/bert -f --runner kubernetes --context prod`,
		Args: arguments(cobra.RangeArgs(1, 2), "JOB [TASK]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Job = args[0]
			if len(args) > 1 {
				opts.Task = args[1]
			}
			return logs(cmd, sys, p, opts)
		},
	}
	addRemoteFlags(cmd.Flags(), &opts.remoteOptions)
	addClusterFlags(cmd.Flags(), &opts.Cluster)
	addNamespaceFlag(cmd.Flags(), &opts.Cluster)
	choice(cmd.Flags(), &opts.Runner, "runner", "", "", "where the daemon runs pods", runnerLocal, runnerKubernetes)
	cmd.Flags().StringVar(&opts.StateDir, "state-dir", "", "the daemon's --state-dir")
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "go on until the tasks have ended")
	cmd.Flags().Int32Var(&opts.Attempt, "attempt", lastAttemptOf, "attempt of the task, from 0 (default: the last one)")
	cmd.Flags().StringVarP(&opts.Container, "container", "c", "", "one container (default: all)")
	cmd.Flags().Int64Var(&opts.Tail, "tail", -1, "lines from the end (default: all)")
	return cmd
}

func logs(cmd *cobra.Command, sys system, p parts, o logsOptions) error {
	if err := completeFromCheckout(cmd, sys, &o.remoteOptions); err != nil {
		return err
	}
	where, open, err := o.place(cmd, sys, p)
	if err != nil {
		return err
	}
	backend, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return recordedLogs(cmd, sys, p, o)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", where, err)
	}
	found, err := podLogs(cmd.Context(), sys.Out, backend, o)
	err = errors.Join(err, backend.Close())
	if err != nil && !found && o.Runner == runnerKubernetes && cmd.Context().Err() == nil {
		fmt.Fprintf(sys.Err, "%s does not tell: %v\n", where, err)
		err = nil
	}
	if found || err != nil {
		return err
	}
	return recordedLogs(cmd, sys, p, o)
}

// place is where the job's pods are, and how they are opened.
func (o *logsOptions) place(cmd *cobra.Command, sys system, p parts) (name string, open func() (pods, error), err error) {
	if o.Runner == runnerKubernetes {
		if err := otherRunner(cmd, o.Runner, "state-dir"); err != nil {
			return "", nil, err
		}
		if err := o.Cluster.complete(cmd, sys); err != nil {
			return "", nil, err
		}
		if namespace := jobKey(o.Job).Namespace; namespace != "" {
			o.Cluster.Namespaces = []string{namespace}
		}
		return "the cluster", func() (pods, error) { return p.Cluster(o.Cluster, o.Environment) }, nil
	}
	if err := otherRunner(cmd, o.Runner, clusterFlags...); err != nil {
		return "", nil, err
	}
	dir := sys.path(o.StateDir)
	if dir == "" {
		if dir, err = stateDir(sys, o.Repo, o.Environment); err != nil {
			return "", nil, err
		}
	}
	return dir, func() (pods, error) { return p.Pods(dir, o.Environment) }, nil
}

// podLogs prints the logs of a job's pods, if there are any.
func podLogs(ctx context.Context, w io.Writer, backend pods, o logsOptions) (found bool, err error) {
	key, found, err := findJobOf(ctx, backend, jobKey(o.Job))
	if err != nil || !found {
		return false, err
	}
	all, err := backend.Pods(ctx, key)
	if err != nil {
		return false, fmt.Errorf("list the pods of %s: %w", o.Job, err)
	}
	chosen := choose(all, o.Task, o.Attempt)
	if len(chosen) == 0 {
		return false, nil
	}
	out := &lines{w: w}
	var group sync.WaitGroup
	errs := make([]error, len(chosen)) // one log that cannot be read ends no other
	for i, pod := range chosen {
		one := func() { errs[i] = copyLog(ctx, out, backend, pod, len(chosen) > 1, o) }
		if o.Follow {
			group.Go(one)
		} else {
			one()
		}
	}
	group.Wait()
	if !slices.ContainsFunc(errs, func(err error) bool { return !apierrors.IsNotFound(err) }) {
		return false, nil // nothing but pods that are going, whose logs are gone
	}
	return true, errors.Join(errs...)
}

// findJobOf completes a key that may lack its namespace.
func findJobOf(ctx context.Context, backend pods, key repo.Key) (repo.Key, bool, error) {
	all, err := backend.Jobs(ctx)
	if err != nil {
		return key, false, fmt.Errorf("list the jobs that have pods: %w", err)
	}
	var found []repo.Key
	for _, k := range all {
		if k == key || key.Namespace == "" && k.Name == key.Name {
			found = append(found, k)
		}
	}
	if len(found) > 1 {
		return key, false, usagef("%s is a job in several namespaces: name it as %s or %s", key.Name, found[0], found[1])
	}
	if len(found) == 0 {
		return key, false, nil
	}
	return found[0], true, nil
}

// choose takes, of the newest run's pods, one for each task: that of the
// attempt, or the last one.
func choose(all []corev1.Pod, task string, attempt int32) []*corev1.Pod {
	newest := ""
	var at int64
	for i := range all {
		if run, _, ok := repo.AttemptOf(&all[i]); ok && (newest == "" || all[i].CreationTimestamp.UnixNano() > at) {
			newest, at = run, all[i].CreationTimestamp.UnixNano()
		}
	}
	best := map[repo.Task]*corev1.Pod{}
	for i := range all {
		run, a, ok := repo.AttemptOf(&all[i])
		if !ok || run != newest || task != "" && a.String() != task || attempt != lastAttemptOf && a.Attempt != attempt {
			continue
		}
		if b := best[a.Task]; b == nil || later(a, b) {
			best[a.Task] = &all[i]
		}
	}
	var out []*corev1.Pod
	for _, pod := range best {
		out = append(out, pod)
	}
	slices.SortFunc(out, func(x, y *corev1.Pod) int {
		_, a, _ := repo.AttemptOf(x)
		_, b, _ := repo.AttemptOf(y)
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index))
	})
	return out
}

func later(a repo.TaskAttempt, than *corev1.Pod) bool {
	_, b, _ := repo.AttemptOf(than)
	return cmp.Or(cmp.Compare(a.RunAttempt, b.RunAttempt), cmp.Compare(a.Attempt, b.Attempt)) > 0
}

// recordedLogs prints the ends of logs that the record keeps.
func recordedLogs(cmd *cobra.Command, sys system, p parts, o logsOptions) (err error) {
	r, err := openRecords(cmd, sys, p, o.remoteOptions)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.close(); err == nil {
			err = cerr
		}
	}()
	tree, all, _, err := r.read(cmd.Context())
	if err != nil {
		return err
	}
	rec, err := r.findRecord(o.Job, all)
	if err != nil {
		return err
	}
	paths := tails(rec, o.Task, o.Attempt)
	if len(paths) == 0 {
		return o.nowhere(rec.Phase)
	}
	dir := path.Dir(recordFile(tree, r.opts, rec.Key()))
	for _, name := range paths {
		text, err := fs.ReadFile(tree, path.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read the end of a log: %w", err)
		}
		fmt.Fprintf(sys.Err, "==> %s (the end of it, from the record)\n", path.Base(name))
		if _, err := sys.Out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// nowhere says where else a log may be.
func (o *logsOptions) nowhere(phase repo.Phase) error {
	const form = "no log of %s is on %s, and its record (%s) keeps none: only tasks that failed, or whose pod went when they ended, leave one there"
	switch o.Runner {
	case runnerKubernetes:
		return hint(fmt.Errorf(form, o.Job, "the cluster", phase), "is it the right cluster (--context) and environment (--env)?")
	case runnerLocal:
		return hint(fmt.Errorf(form, o.Job, "this machine", phase), "give the daemon's --state-dir, if it runs on this machine with another one")
	}
	return hint(fmt.Errorf(form, o.Job, "this machine", phase),
		"if the job runs on a cluster, give --runner kubernetes; if the daemon runs on this machine with another --state-dir, give that")
}

// recordFile finds a job's status file, in a shard or not.
func recordFile(tree fs.FS, o remoteOptions, key repo.Key) string {
	dir := path.Join(o.layout().EnvironmentDir(o.Environment), key.Namespace)
	for _, pattern := range []string{key.Name, "*/" + key.Name} {
		// The pattern's only special part is ours: names are DNS labels.
		if found, err := fs.Glob(tree, path.Join(dir, pattern, repo.StatusFile)); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return path.Join(dir, key.Name, repo.StatusFile)
}

// tails are the paths of the ends of logs in a record that were asked for.
func tails(rec *repo.Record, task string, attempt int32) []string {
	var out []string
	add := func(t repo.TaskRecord) {
		for i, a := range t.Attempts {
			last := attempt == lastAttemptOf && i == len(t.Attempts)-1
			if a.Log != "" && (task == "" || t.Name == task) && (last || a.Attempt == attempt) && fs.ValidPath(a.Log) && !slices.Contains(out, a.Log) {
				out = append(out, a.Log)
			}
		}
	}
	for _, role := range rec.Roles {
		for _, t := range role.Tasks {
			add(t)
		}
	}
	if len(out) == 0 && len(rec.Attempts) > 0 { // the present attempt has none yet
		for _, t := range rec.Attempts[len(rec.Attempts)-1].Tasks {
			add(t)
		}
	}
	return out
}
