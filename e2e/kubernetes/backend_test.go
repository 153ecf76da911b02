// Package kubernetes tests the Kubernetes runner, and the whole program with
// it, against a real control plane with simulated nodes.
package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

var (
	_     runner.Backend = (*kubernetes.Backend)(nil)
	_     runner.Finder  = (*kubernetes.Backend)(nil)
	never                = corev1.RestartPolicyNever
)

// bench is a backend on the cluster, in a namespace of the test's own.
type bench struct {
	*kubernetes.Backend
	t         *testing.T
	c         *cluster.Cluster
	namespace string
	ctx       context.Context
}

func newBench(t *testing.T) *bench {
	c := cluster.Shared(t)
	b := &bench{t: t, c: c, namespace: c.Namespace(t), ctx: t.Context()}
	b.reopen()
	return b
}

// reopen is a new daemon's backend.
func (b *bench) reopen() {
	if b.Backend != nil {
		require.NoError(b.t, b.Close())
	}
	b.Backend = b.open()
	_, err := b.Runs(b.ctx)
	require.NoError(b.t, err)
}

// open is a backend that has not heard of any pods.
func (b *bench) open() *kubernetes.Backend {
	backend, err := kubernetes.New(kubernetes.Options{Config: b.c.Config(), Environment: "test", Namespaces: []string{b.namespace}, Log: zerolog.New(zerolog.NewTestWriter(b.t))})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, backend.Close()) })
	return backend
}

// run is a run of a job with one role.
func (b *bench) run(job string, replicas int32, edits ...func(*repo.Run)) *repo.Run {
	key := repo.Key{Namespace: b.namespace, Name: job}
	grace := int64(1)
	run := &repo.Run{
		ID: repo.RunID("test", key, "digest", repo.Trigger{Kind: repo.TriggerPush}), Environment: "test", Trigger: repo.Trigger{Kind: repo.TriggerPush},
		Revision: "0123456789", StartedAt: time.Unix(1_750_000_000, 0).UTC(), Number: 1,
		Job: repo.Job{Key: key, Digest: "digest", Roles: []repo.Role{{
			Name: "worker", Replicas: replicas, Port: 2222,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: never, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "main", Image: "example/train:1", Command: []string{"train"}}},
			}},
		}}},
	}
	for _, f := range edits {
		f(run)
	}
	return run
}

// start prepares a run and creates its pods.
func (b *bench) start(run *repo.Run) (pods []*corev1.Pod) {
	b.t.Helper()
	addr, err := b.Prepare(b.ctx, run, 0)
	require.NoError(b.t, err)
	for i := range run.Job.Roles[0].Replicas {
		pod := b.pod(run, addr, i)
		require.NoError(b.t, b.Create(b.ctx, pod))
		pods = append(pods, pod)
	}
	return pods
}

func (b *bench) pod(run *repo.Run, addr repo.Addresses, index int32) *corev1.Pod {
	b.t.Helper()
	pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: run.Job.Roles[0].Name, Index: index}}, addr)
	require.NoError(b.t, err)
	return pod
}

// until polls until the backend's pod of that name is as ok says; nil is none.
func (b *bench) until(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	var last *corev1.Pod
	eventually(b.t, name+" "+what, func() bool {
		_, job, _ := cutJob(name)
		last = nil
		pods, err := b.Pods(b.ctx, repo.Key{Namespace: b.namespace, Name: job})
		require.NoError(b.t, err)
		for i := range pods {
			if pods[i].Name == name {
				last = &pods[i]
			}
		}
		return ok(last)
	})
	return last
}

// cutJob is the job's name within a pod's name; tests give jobs no dashes.
func cutJob(pod string) (string, string, bool) {
	for i := range pod {
		if pod[i] == '-' {
			return pod[i+1:], pod[:i], true
		}
	}
	return "", pod, false
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(90 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			require.Fail(t, "not in time", what)
		}
	}
}

func phase(p corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == p }
}

func isGone(pod *corev1.Pod) bool { return pod == nil }

func TestPodIsCreatedOnceAndHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pod := b.start(b.run("once", 1))[0]
	assert.True(t, apierrors.IsAlreadyExists(b.Create(b.ctx, pod)))
	running := b.until(pod.Name, "runs", phase(corev1.PodRunning))
	b.c.Finish(t, b.namespace, pod.Name, 0)
	b.until(pod.Name, "succeeds", phase(corev1.PodSucceeded))

	// Somebody deletes it: its outcome stays until it is recorded.
	require.NoError(t, b.c.Client().CoreV1().Pods(b.namespace).Delete(b.ctx, pod.Name, metav1.DeleteOptions{}))
	b.until(pod.Name, "is deleted and held", func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp != nil })
	assert.True(t, apierrors.IsAlreadyExists(b.Create(b.ctx, pod)), "held by its finalizer")
	require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, "another-uid"))
	b.until(pod.Name, "is held", func(p *corev1.Pod) bool { return p != nil && slices.Contains(p.Finalizers, repo.Finalizer) })
	require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, string(running.UID)))
	b.until(pod.Name, "is gone", isGone)
	require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, string(running.UID)), "gone is what was asked for")
	require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, string(running.UID), nil))
}

func TestEndedPodIsNotDeletedBeforeItsRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pod := b.start(b.run("ended", 1))[0]
	uid := string(b.until(pod.Name, "runs", phase(corev1.PodRunning)).UID)
	b.c.Finish(t, b.namespace, pod.Name, 3)
	b.until(pod.Name, "fails", phase(corev1.PodFailed))
	assert.True(t, apierrors.IsConflict(b.Delete(b.ctx, b.namespace, pod.Name, uid, nil)))
	assert.True(t, apierrors.IsConflict(b.open().Delete(b.ctx, b.namespace, pod.Name, uid, nil)), "also if the news of it is behind")
	require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, uid))
	b.until(pod.Name, "is let go", func(p *corev1.Pod) bool { return p != nil && len(p.Finalizers) == 0 })
	require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, uid, nil))
	b.until(pod.Name, "is gone", isGone)
}

func TestDeletedPods(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	t.Run("running", func(t *testing.T) {
		pod := b.start(b.run("running", 1))[0]
		uid := string(b.until(pod.Name, "runs", phase(corev1.PodRunning)).UID)
		require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, "another-uid", nil))
		require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, uid, nil))
		ended := b.until(pod.Name, "ends", func(p *corev1.Pod) bool {
			return p != nil && p.Status.Phase == corev1.PodFailed || p != nil && p.Status.Phase == corev1.PodSucceeded
		})
		assert.Contains(t, ended.Finalizers, repo.Finalizer)
		require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, uid))
		b.until(pod.Name, "is gone", isGone)
	})
	t.Run("never scheduled", func(t *testing.T) {
		run := b.run("nowhere", 1, func(r *repo.Run) { r.Job.Roles[0].Template.Spec.NodeSelector = map[string]string{"no": "where"} })
		pod := b.start(run)[0]
		waiting := b.until(pod.Name, "is refused by the scheduler", func(p *corev1.Pod) bool {
			return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
		})
		require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, string(waiting.UID), nil))
		b.until(pod.Name, "has ended", phase(corev1.PodFailed))
		require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, string(waiting.UID)))
		b.until(pod.Name, "is gone", isGone)
	})
	t.Run("by force", func(t *testing.T) {
		// No kubelet answers for a node that nobody simulates.
		run := b.run("lost", 1, func(r *repo.Run) { r.Job.Roles[0].Template.Spec.NodeName = "nobody" })
		pod := b.start(run)[0]
		uid := string(b.until(pod.Name, "is there", func(p *corev1.Pod) bool { return p != nil }).UID)
		require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, uid, nil))
		b.until(pod.Name, "is being deleted", func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp != nil })
		require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, uid, new(int64)))
		ended := b.until(pod.Name, "is given up", phase(corev1.PodFailed))
		assert.Equal(t, kubernetes.ReasonForceDeleted, ended.Status.Reason)
		require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, uid))
		b.until(pod.Name, "is gone", isGone)
	})
}

func TestRunsAreKeptAndForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	settings := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "1"}}
	raw, err := json.Marshal(settings)
	require.NoError(t, err)
	run := b.run("kept", 2, func(r *repo.Run) {
		r.Job.Objects = []repo.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "settings", Raw: raw}}
	})
	pods := b.start(run)
	addr, err := b.Prepare(b.ctx, run, 1)
	require.NoError(t, err, "again, for the next attempt")
	assert.Equal(t, "worker-1."+run.ID+":2222", addr(repo.Task{Role: "worker", Index: 1}).String())

	core := b.c.Client().CoreV1()
	service, err := core.Services(b.namespace).Get(b.ctx, run.ID, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "1", service.Spec.Selector[repo.LabelRunAttempt])
	assert.True(t, service.Spec.PublishNotReadyAddresses)
	object, err := core.ConfigMaps(b.namespace).Get(b.ctx, "settings", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, settings.Data, object.Data)

	run.Job.Roles[0].Replicas = 3 // a rescale
	_, err = b.Prepare(b.ctx, run, 1)
	require.NoError(t, err)
	b.reopen()
	runs, err := b.Runs(b.ctx)
	require.NoError(t, err)
	assert.Equal(t, []repo.Run{*run}, runs)
	jobs, err := b.Jobs(b.ctx)
	require.NoError(t, err)
	assert.Equal(t, []repo.Key{run.Job.Key}, jobs)

	for _, p := range pods {
		uid := string(b.until(p.Name, "is there", func(p *corev1.Pod) bool { return p != nil }).UID)
		require.NoError(t, b.Delete(b.ctx, b.namespace, p.Name, uid, new(int64)))
		require.NoError(t, b.Release(b.ctx, b.namespace, p.Name, uid))
		b.until(p.Name, "is gone", isGone)
	}
	require.NoError(t, b.Forget(b.ctx, run.ID, b.namespace))
	require.NoError(t, b.Forget(b.ctx, run.ID, b.namespace))
	runs, err = b.Runs(b.ctx)
	require.NoError(t, err)
	assert.Empty(t, runs)
	eventually(t, "nothing is left", func() bool {
		_, err := core.Services(b.namespace).Get(b.ctx, run.ID, metav1.GetOptions{})
		_, err2 := core.ConfigMaps(b.namespace).Get(b.ctx, "settings", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(err2)
	})
}

func TestRehearsalTellsWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.run("rehearsed", 1)
	addr, err := b.Prepare(b.ctx, run, 0)
	require.NoError(t, err)
	good, bad := b.pod(run, addr, 0), b.pod(run, addr, 0)
	require.NoError(t, b.Rehearse(b.ctx, []*corev1.Pod{good}))
	bad.Spec.Containers[0].Name = "No Such Name"
	err = b.Rehearse(b.ctx, []*corev1.Pod{good, bad})
	assert.True(t, apierrors.IsInvalid(err), err)
	assert.ErrorContains(t, err, "No Such Name")
	pods, err := b.Pods(b.ctx, run.Job.Key)
	require.NoError(t, err)
	assert.Empty(t, pods)
}

func TestWatchTellsOfChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mu sync.Mutex
	told := map[repo.Key]int{}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error)
	go func() {
		done <- b.Watch(ctx, func(k repo.Key) {
			mu.Lock()
			defer mu.Unlock()
			told[k]++
		})
	}()
	run := b.run("watched", 1)
	b.start(run)
	eventually(t, "the watch tells", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told[run.Job.Key] > 0
	})
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.Len(t, told, 1)
}

func TestLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pod := b.start(b.run("talks", 1))[0]
	b.until(pod.Name, "runs", phase(corev1.PodRunning))
	r, err := b.Log(b.ctx, b.namespace, pod.Name, "", 0, false)
	require.NoError(t, err)
	all, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NotEmpty(t, all)
	r, err = b.Log(b.ctx, b.namespace, pod.Name, "main", 5, false)
	require.NoError(t, err)
	end, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, string(all[len(all)-5:]), string(end))
	_, err = b.Log(b.ctx, b.namespace, pod.Name, "none", 0, false)
	assert.ErrorContains(t, err, "none")
	_, err = b.Log(b.ctx, b.namespace, "nobody", "", 0, false)
	assert.True(t, apierrors.IsNotFound(err), err)
}

func TestAnnouncementsAreEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pod := b.start(b.run("loud", 1))[0]
	uid := string(b.until(pod.Name, "is there", func(p *corev1.Pod) bool { return p != nil }).UID)
	for range 2 {
		b.Announce(b.ctx, b.namespace, pod.Name, uid, "Failed", "exit code 3, Unknown: tried again in 10s", true)
	}
	eventually(t, "the event is there", func() bool {
		list, err := b.c.Client().CoreV1().Events(b.namespace).List(b.ctx, metav1.ListOptions{FieldSelector: fmt.Sprintf("involvedObject.uid=%s,reason=Failed", uid)})
		require.NoError(t, err)
		return len(list.Items) == 1 && list.Items[0].Type == corev1.EventTypeWarning
	})
}

// What was created is there for whoever asks, before anybody was told of it.
func TestFindIsAheadOfWhatWasHeard(t *testing.T) {
	b := newBench(t)
	run := b.run("find", 1)
	pod := b.start(run)[0]
	found, err := b.Find(b.ctx, b.namespace, pod.Name)
	require.NoError(t, err)
	assert.Equal(t, pod.Labels[repo.LabelRun], found.Labels[repo.LabelRun])
	assert.Equal(t, []string{repo.Finalizer}, found.Finalizers)
	assert.NotEmpty(t, found.UID)

	_, err = b.Find(b.ctx, b.namespace, pod.Name+"1")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: b.namespace}, Spec: corev1.PodSpec{Containers: pod.Spec.Containers}}
	_, err = b.c.Client().CoreV1().Pods(b.namespace).Create(b.ctx, foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = b.Find(b.ctx, b.namespace, "foreign")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
