package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// fullPod is a pod as an API server tells of it.
func fullPod(name string) *corev1.Pod {
	at := metav1.NewTime(time.Unix(1_750_000_000, 0))
	env := []corev1.EnvVar{}
	for i := range 40 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("NAME_%d", i), Value: strings.Repeat("value ", 10)})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "nlp", UID: types.UID(name), ResourceVersion: "12", CreationTimestamp: at, Finalizers: []string{repo.Finalizer},
			Labels:        map[string]string{repo.LabelManagedBy: repo.ManagedBy, repo.LabelJob: "bert", repo.LabelRun: "bert-abc", repo.LabelRole: "worker", "team": "nlp"},
			Annotations:   map[string]string{repo.AnnotationDigest: "d", "kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 4000)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 2000))}},
		},
		Spec: corev1.PodSpec{
			NodeName:       "gpu-1",
			InitContainers: []corev1.Container{{Name: "fetch", Env: env}},
			Containers:     []corev1.Container{{Name: "train", Image: "example/train:1", Env: env}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "fetch", ImageID: "sha256:1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "train", ContainerID: "containerd://2", ImageID: "sha256:2", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}},
		},
	}
}

func TestSlimKeepsWhatIsAskedFor(t *testing.T) {
	full := fullPod("bert-abc-worker-0-0-0")
	o, err := slim(full)
	require.NoError(t, err)
	got := o.(*corev1.Pod)
	assert.Equal(t, full.Name, got.Name)
	assert.Equal(t, full.UID, got.UID)
	assert.Equal(t, full.Finalizers, got.Finalizers)
	assert.Equal(t, "gpu-1", got.Spec.NodeName)
	assert.Equal(t, "train", got.Spec.Containers[0].Name)
	assert.Equal(t, full.Status.Conditions, got.Status.Conditions)
	assert.Equal(t, full.Status.ContainerStatuses[0].State, got.Status.ContainerStatuses[0].State)
	assert.EqualValues(t, 2, got.Status.ContainerStatuses[0].RestartCount)
	run, attempt, _ := repo.AttemptOf(got)
	assert.Equal(t, "bert-abc", run)
	assert.Equal(t, "worker", attempt.Role)
	assert.Empty(t, got.ManagedFields)
	assert.Empty(t, got.Spec.Containers[0].Env)
	assert.NotContains(t, got.Labels, "team")
	assert.Len(t, got.Annotations, 1)
	assert.Empty(t, got.Status.ContainerStatuses[0].ContainerID, "it runs")
	full.Status.Phase, full.Spec.RestartPolicy = corev1.PodPending, corev1.RestartPolicyNever
	o, err = slim(full)
	require.NoError(t, err)
	got = o.(*corev1.Pod)
	assert.Equal(t, corev1.RestartPolicyNever, got.Spec.RestartPolicy)
	assert.Equal(t, "containerd://2", got.Status.ContainerStatuses[0].ContainerID, "whether it was made tells whether it can start")
	again, err := slim(got)
	require.NoError(t, err)
	assert.Equal(t, got, again)
	other, err := slim("no pod")
	require.NoError(t, err)
	assert.Equal(t, "no pod", other)
}

// BenchmarkMemoryOf100000Pods tells how much of them is kept.
func BenchmarkMemoryOf100000Pods(b *testing.B) {
	const pods = 100_000
	for b.Loop() {
		kept := make([]any, pods)
		for i := range kept {
			kept[i], _ = slim(fullPod(fmt.Sprintf("bert-abc-worker-%d-0-0", i)))
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB")
		runtime.KeepAlive(kept)
	}
}

func TestViewOfPodsThatNoNodeAnswersFor(t *testing.T) {
	now := time.Unix(1_750_000_000, 0)
	deleted := func(ago time.Duration, grace int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			at := metav1.NewTime(now.Add(-ago))
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
		}
	}
	unbound := func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }
	tests := []struct {
		name  string
		edits []func(*corev1.Pod)
		seen  time.Duration // ago by our clock
		want  corev1.PodPhase
	}{
		{"it runs", nil, 0, corev1.PodRunning},
		{"it waits for a node", []func(*corev1.Pod){unbound}, 0, corev1.PodPending},
		{"it was deleted before it had a node", []func(*corev1.Pod){unbound, deleted(0, 0)}, 0, corev1.PodFailed},
		{"its node ends it", []func(*corev1.Pod){deleted(time.Hour, 30)}, time.Hour, corev1.PodRunning},
		{"deleted by force a moment ago", []func(*corev1.Pod){deleted(time.Second, 0)}, time.Second, corev1.PodRunning},
		{"deleted by force, and nothing heard", []func(*corev1.Pod){deleted(2*time.Minute, 0)}, 2 * time.Minute, corev1.PodFailed},
		{"deleted by force a moment ago, by a server whose clock is behind", []func(*corev1.Pod){deleted(2*time.Minute, 0)}, time.Second, corev1.PodRunning},
		{"deleted by force, by a server whose clock is ahead", []func(*corev1.Pod){deleted(-time.Hour, 0)}, 2 * time.Minute, corev1.PodFailed},
		{"it had succeeded", []func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, deleted(time.Hour, 0)}, time.Hour, corev1.PodSucceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := fullPod("p")
			for _, f := range tt.edits {
				f(pod)
			}
			before := pod.DeepCopy()
			b := &Backend{forced: map[types.UID]time.Time{pod.UID: now.Add(-tt.seen)}}
			got := b.view(pod, now)
			assert.Equal(t, tt.want, got.Status.Phase)
			assert.Equal(t, before, pod, "what is cached is shared")
			if tt.want == corev1.PodFailed {
				last := got.Status.Conditions[len(got.Status.Conditions)-1]
				assert.Equal(t, *pod.DeletionTimestamp, last.LastTransitionTime, "its end is not before its deletion")
			}
		})
	}
}

func TestViewTellsWhatEventsSay(t *testing.T) {
	pod := fullPod("p")
	pod.Status.Phase = corev1.PodPending
	at := time.Unix(1_750_000_100, 5)
	b := &Backend{stuck: map[types.UID]string{"p": "FailedMount: no such volume"}, output: map[types.UID]time.Time{"p": at}}
	got := b.view(pod, at)
	assert.Equal(t, "FailedMount: no such volume", got.Status.Message)
	assert.Equal(t, at.UTC().Format(time.RFC3339Nano), got.Annotations[repo.AnnotationOutput])
	pod.Status.Phase = corev1.PodRunning
	assert.Empty(t, b.view(pod, at).Status.Message, "it has started")
}

func TestPackedRunIsTheSame(t *testing.T) {
	run := &repo.Run{ID: "bert-abc", Environment: "prod", StartedAt: time.Unix(1, 0).UTC(), Job: repo.Job{Key: repo.Key{Namespace: "nlp", Name: "bert"}}}
	var backend Backend
	a, err := backend.pack(run)
	require.NoError(t, err)
	b, err := backend.pack(run)
	require.NoError(t, err)
	assert.Equal(t, a, b)
	got, err := unpack(a)
	require.NoError(t, err)
	assert.Equal(t, run, got)
	for _, damaged := range [][]byte{nil, []byte("no gzip"), a[:len(a)-3]} {
		_, err := unpack(damaged)
		assert.Error(t, err)
	}
}

func TestAddresses(t *testing.T) {
	run := &repo.Run{ID: "bert-abc", Job: repo.Job{Roles: []repo.Role{
		{Name: "worker", Port: 2222},
		{Name: "ps", Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Hostname: "here", Subdomain: "own"}}},
	}}}
	addr := addresses(run)
	assert.Equal(t, repo.Address{Host: "worker-3.bert-abc", Port: 2222}, addr(repo.Task{Role: "worker", Index: 3}))
	assert.Equal(t, repo.Address{Host: "here.own"}, addr(repo.Task{Role: "ps"}))
}

func TestEventsOfTheSameHaveOneName(t *testing.T) {
	a := announcement{namespace: "nlp", pod: strings.Repeat("p", 250), uid: "u", reason: "Failed", message: "exit code 3", warning: true, at: time.Unix(1, 0)}
	b := a
	b.at = time.Unix(2, 0)
	assert.Equal(t, a.event().Name, b.event().Name)
	assert.LessOrEqual(t, len(a.event().Name), 253)
	b.message = "exit code 4"
	assert.NotEqual(t, a.event().Name, b.event().Name)
}

// TestProgressThatNobodyKnows: a daemon that has just started, or cannot ask,
// takes no job for stuck.
func TestProgressThatNobodyKnows(t *testing.T) {
	now := time.Unix(1_750_000_000, 0)
	pod := fullPod("p")
	b := &Backend{runs: map[string]knownRun{"bert-abc": {progress: time.Minute}}, output: map[types.UID]time.Time{}}
	assert.Equal(t, now.UTC().Format(time.RFC3339Nano), b.view(pod, now).Annotations[repo.AnnotationOutput])
	b.output[pod.UID] = now.Add(-time.Hour)
	assert.Equal(t, now.Add(-time.Hour).UTC().Format(time.RFC3339Nano), b.view(pod, now).Annotations[repo.AnnotationOutput])
	b.runs = nil
	delete(b.output, pod.UID)
	assert.NotContains(t, b.view(pod, now).Annotations, repo.AnnotationOutput, "nobody asks for it")
}

// TestQuestionsTakeTurns: every pod is asked about in its turn, the one that
// wrote last always, and pods that are gone are forgotten.
func TestQuestionsTakeTurns(t *testing.T) {
	now := time.Unix(1_750_000_000, 0)
	informer := cache.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, nil)
	b := &Backend{
		runs:   map[string]knownRun{"bert-abc": {progress: time.Minute}},
		output: map[types.UID]time.Time{"p-7": now, "gone": now}, stuck: map[types.UID]string{"gone": "FailedMount"},
	}
	b.owned.Store(&owned{informers: []cache.SharedIndexInformer{informer}})
	for i := range 3*most - 2 { // one turn more than that for the one that writes
		require.NoError(t, informer.GetStore().Add(fullPod(fmt.Sprintf("p-%d", i))))
	}
	asked := map[types.UID]time.Time{"gone": now}
	for turn := range 3 {
		at := now.Add(time.Duration(turn) * inquiry)
		all := b.questions(at, asked)
		require.LessOrEqual(t, len(all), most)
		require.Equal(t, "p-7", all[0].pod.Name)
		for _, q := range all {
			asked[q.pod.UID] = at
		}
	}
	assert.Len(t, asked, 3*most-2)
	assert.Len(t, b.output, 1)
	assert.Empty(t, b.stuck)
}

func TestForbiddenExtrasAreToldOnce(t *testing.T) {
	var out bytes.Buffer
	b := &Backend{options: Options{Log: zerolog.New(&out)}}
	no := apierrors.NewForbidden(podResource, "p", errors.New("no"))
	for range 3 {
		assert.True(t, b.degrades("logs cannot be read", fmt.Errorf("log: %w", no)))
		assert.True(t, b.degrades("events cannot be written", no))
		assert.False(t, b.degrades("logs cannot be read", errors.New("later")))
	}
	assert.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
}

// TestTroubleOfOneNamespace: the others are well, and do not hide it, and it is
// not told again with each of their pods.
func TestTroubleOfOneNamespace(t *testing.T) {
	var out bytes.Buffer
	b := &Backend{options: Options{Namespaces: []string{"nlp", "vision"}, Log: zerolog.New(&out)}, trouble: map[string]trouble{}}
	for range 3 {
		b.troubled("vision", errors.New("forbidden"))
		b.seen(fullPod("p"))
		require.ErrorContains(t, b.Healthy(), "forbidden")
	}
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	there := fullPod("p")
	there.Namespace = "vision"
	b.seen(there)
	require.NoError(t, b.Healthy())
}
