package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

// TestGangs has two nodes of eight GPUs, on which the API for gangs and the
// scheduler's part of it are switched on.
func TestGangs(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{
		Nodes: 2, GPUs: 8, Gates: "GenericWorkload=true,GangScheduling=true", Runtime: "scheduling.k8s.io/v1alpha2=true",
	})
	t.Run("one by one they are half placed", func(t *testing.T) { halfPlaced(t, gangBench(t, c, kubernetes.GangNone)) })
	t.Run("the cluster's own starts all or none", func(t *testing.T) { allOrNone(t, gangBench(t, c, "")) })
	t.Run("a retry joins", func(t *testing.T) { retryJoins(t, gangBench(t, c, "")) })
	for _, kind := range []kubernetes.Gang{kubernetes.GangVolcano, kubernetes.GangCoscheduling, kubernetes.GangKueue} {
		t.Run(string(kind), func(t *testing.T) { define(t, c, string(kind)+".yaml"); takesGroups(t, gangBench(t, c, kind), kind) })
	}
}

func gangBench(t *testing.T, c *cluster.Cluster, kind kubernetes.Gang) *bench {
	return gangBenchIn(t, c, c.Namespace(t), kind)
}

func gangBenchIn(t *testing.T, c *cluster.Cluster, namespace string, kind kubernetes.Gang) *bench {
	b := &bench{t: t, c: c, namespace: namespace, ctx: t.Context()}
	var err error
	b.Backend, err = kubernetes.New(kubernetes.Options{
		Config: c.Config(), Environment: "test", Namespaces: []string{b.namespace}, Log: zerolog.New(zerolog.NewTestWriter(t)),
		Gang: kind, GangScheduler: "plugins",
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	_, err = b.Runs(b.ctx)
	require.NoError(t, err)
	return b
}

// gang is a run of three pods of four GPUs each: a node has room for two.
func (b *bench) gang(job string, edits ...func(*repo.Run)) (run *repo.Run, create func(index, attempt int32, late bool) *corev1.Pod) {
	b.t.Helper()
	run = b.run(job, 3, append([]func(*repo.Run){func(r *repo.Run) {
		r.Job.Gang = true
		r.Job.Roles[0].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	}}, edits...)...)
	addr, err := b.Prepare(b.ctx, run, 0)
	require.NoError(b.t, err)
	return run, func(index, attempt int32, late bool) *corev1.Pod {
		b.t.Helper()
		pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: "worker", Index: index}, Attempt: attempt}, addr)
		require.NoError(b.t, err)
		g := repo.Gang{Name: run.GangName(0, 0), Size: 3, Late: late}
		g.Mark(pod)
		require.NoError(b.t, b.Create(b.ctx, pod))
		return pod
	}
}

// placed are the pods of a job that have a node.
func (b *bench) placed(run *repo.Run) (n int) {
	pods, err := b.Pods(b.ctx, run.Job.Key)
	require.NoError(b.t, err)
	for i := range pods {
		if pods[i].Spec.NodeName != "" && pods[i].Status.Phase != corev1.PodSucceeded && pods[i].Status.Phase != corev1.PodFailed {
			n++
		}
	}
	return n
}

// turns creates the pods of two runs in turn, which is the worst order.
func turns(one, other func(int32, int32, bool) *corev1.Pod) {
	for i := range int32(3) {
		one(i, 0, false)
		other(i, 0, false)
	}
}

// halfPlaced shows what the others are for.
func halfPlaced(t *testing.T, b *bench) {
	one, createOne := b.gang("one")
	other, createOther := b.gang("other")
	turns(createOne, createOther)
	eventually(t, "all GPUs are taken", func() bool { return b.placed(one)+b.placed(other) == 4 })
	assert.Equal(t, []int{2, 2}, []int{b.placed(one), b.placed(other)})
	for i := range int32(3) {
		for _, run := range []*repo.Run{one, other} {
			name := repo.PodName(run.ID, repo.TaskAttempt{Task: repo.Task{Role: "worker", Index: i}})
			require.NoError(t, b.c.Client().CoreV1().Pods(b.namespace).Delete(b.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		}
	}
}

func allOrNone(t *testing.T, b *bench) {
	one, createOne := b.gang("one")
	other, createOther := b.gang("other")
	why, err := b.Gang(b.ctx, &one.Job)
	require.NoError(t, err)
	assert.Equal(t, "native: the cluster has PodGroups of its own (scheduling.k8s.io/v1alpha2)", why)
	turns(createOne, createOther)
	eventually(t, "one has all its places", func() bool { return b.placed(one) == 3 || b.placed(other) == 3 })
	first, second := one, other
	if b.placed(other) == 3 {
		first, second = other, one
	}
	// The other's pods are looked at by the scheduler, and have no place.
	eventually(t, "the other is told why it waits", func() bool {
		pods, err := b.Pods(b.ctx, second.Job.Key)
		require.NoError(t, err)
		told := 0
		for i := range pods {
			require.Empty(t, pods[i].Spec.NodeName)
			for _, cond := range pods[i].Status.Conditions {
				if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && strings.Contains(cond.Message, "nvidia.com/gpu") {
					told++
				}
			}
		}
		return told > 0
	})
	assert.Zero(t, b.placed(second))
	pods, err := b.Pods(b.ctx, first.Job.Key)
	require.NoError(t, err)
	assert.Equal(t, why, pods[0].Annotations[repo.AnnotationGangBy])
	for i := range pods {
		b.until(pods[i].Name, "runs", phase(corev1.PodRunning))
		b.c.Finish(t, b.namespace, pods[i].Name, 0)
	}
	eventually(t, "the other has its places", func() bool { return b.placed(second) == 3 })

	require.NoError(t, b.Forget(b.ctx, first.ID, b.namespace))
	groups := b.groups(t, schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"})
	eventually(t, "the first's group goes with its run", func() bool {
		_, err := groups.Get(b.ctx, first.GangName(0, 0), metav1.GetOptions{})
		return err != nil
	})
	b.finishAll(second)
}

// retryJoins is the case in which a group alone would block: one has
// succeeded, so that never again are there as many pods as started.
func retryJoins(t *testing.T, b *bench) {
	run, create := b.gang("retried")
	pods := []*corev1.Pod{create(0, 0, false), create(1, 0, false)}
	eventually(t, "two wait for the third", func() bool {
		list, err := b.Pods(b.ctx, run.Job.Key)
		require.NoError(t, err)
		return len(list) == 2
	})
	assert.Zero(t, b.placed(run))
	pods = append(pods, create(2, 0, false))
	for _, p := range pods {
		b.until(p.Name, "runs", phase(corev1.PodRunning))
	}
	b.c.Finish(t, b.namespace, pods[0].Name, 0)
	b.c.Finish(t, b.namespace, pods[1].Name, 7)
	b.until(pods[1].Name, "fails", phase(corev1.PodFailed))
	b.until(create(1, 1, true).Name, "runs", phase(corev1.PodRunning))
	b.finishAll(run)
}

func (b *bench) finishAll(run *repo.Run) {
	pods, err := b.Pods(b.ctx, run.Job.Key)
	require.NoError(b.t, err)
	for i := range pods {
		if pods[i].Spec.NodeName != "" && pods[i].Status.Phase != corev1.PodSucceeded && pods[i].Status.Phase != corev1.PodFailed {
			b.c.Finish(b.t, b.namespace, pods[i].Name, 0)
		}
	}
	eventually(b.t, "no place is held", func() bool { return b.placed(run) == 0 })
}

func (b *bench) groups(t *testing.T, gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(b.c.Config())
	require.NoError(t, err)
	return client.Resource(gvr).Namespace(b.namespace)
}

// define brings a custom resource definition to the cluster.
func define(t *testing.T, c *cluster.Cluster, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "gangs", file))
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(text, &object.Object))
	client, err := dynamic.NewForConfig(c.Config())
	require.NoError(t, err)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = crds.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(t, err)
	versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
	require.NoError(t, err)
	group, _, err := unstructured.NestedString(object.Object, "spec", "group")
	require.NoError(t, err)
	plural, _, err := unstructured.NestedString(object.Object, "spec", "names", "plural")
	require.NoError(t, err)
	resource := client.Resource(schema.GroupVersionResource{Group: group, Version: versions[0].(map[string]any)["name"].(string), Resource: plural})
	eventually(t, plural+" are served", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := resource.Namespace("default").List(ctx, metav1.ListOptions{})
		return err == nil
	})
}

// takesGroups holds what the API server made of a gang's object and pods
// against what its kind needs. Their schedulers are not here.
func takesGroups(t *testing.T, b *bench, kind kubernetes.Gang) {
	run, create := b.gang("taken", func(r *repo.Run) {
		r.Job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "team"}
		template := &r.Job.Roles[0].Template
		template.Annotations = map[string]string{"scheduling.volcano.sh/queue-name": "research"}
		template.Spec.PriorityClassName = "system-cluster-critical"
	})
	why, err := b.Gang(b.ctx, &run.Job)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%s: as the daemon was told", kind), why)
	name := run.GangName(0, 0)
	for i := range int32(3) {
		create(i, 0, false)
	}
	pod, err := b.c.Client().CoreV1().Pods(b.namespace).Get(b.ctx, repo.PodName(run.ID, repo.TaskAttempt{Task: repo.Task{Role: "worker"}}), metav1.GetOptions{})
	require.NoError(t, err)
	expect := map[kubernetes.Gang]struct {
		group, version, scheduler string
		spec                      map[string]any
		labels, annotations       map[string]string
	}{
		kubernetes.GangVolcano: {
			"scheduling.volcano.sh", "v1beta1", "volcano",
			map[string]any{"minMember": int64(3), "queue": "research", "priorityClassName": "system-cluster-critical"},
			nil, map[string]string{"scheduling.k8s.io/group-name": name, "scheduling.volcano.sh/group-name": name},
		},
		kubernetes.GangCoscheduling: {
			"scheduling.x-k8s.io", "v1alpha1", "plugins", map[string]any{"minMember": int64(3)},
			map[string]string{"scheduling.x-k8s.io/pod-group": name}, nil,
		},
		kubernetes.GangKueue: {
			scheduler: corev1.DefaultSchedulerName,
			labels:    map[string]string{"kueue.x-k8s.io/pod-group-name": name, "kueue.x-k8s.io/queue-name": "team"},
			annotations: map[string]string{
				"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/role-hash": "worker", "kueue.x-k8s.io/retriable-in-group": "false",
			},
		},
	}[kind]
	assert.Equal(t, expect.scheduler, pod.Spec.SchedulerName)
	assert.Subset(t, pod.Labels, expect.labels)
	assert.Subset(t, pod.Annotations, expect.annotations)
	staysOf(t, b, run, pod)
	if expect.group == "" {
		return
	}
	groups := b.groups(t, schema.GroupVersionResource{Group: expect.group, Version: expect.version, Resource: "podgroups"})
	group, err := groups.Get(b.ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, expect.spec, group.Object["spec"], "nothing is dropped")
	assert.Equal(t, run.ID, group.GetOwnerReferences()[0].Name)
	assert.Equal(t, run.ID, group.GetLabels()[repo.LabelRun])
}

// staysOf a kind: a daemon that would decide otherwise goes on with a run as the
// one before it began.
func staysOf(t *testing.T, b *bench, run *repo.Run, pod *corev1.Pod) {
	next := gangBenchIn(t, b.c, b.namespace, kubernetes.GangNone)
	addr, err := next.Prepare(next.ctx, run, 0)
	require.NoError(t, err)
	late, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: "worker"}, Attempt: 1}, addr)
	require.NoError(t, err)
	g := repo.Gang{Name: run.GangName(0, 0), Size: 3, Late: true}
	g.Mark(late)
	require.NoError(t, next.Create(next.ctx, late))
	made, err := b.c.Client().CoreV1().Pods(b.namespace).Get(b.ctx, late.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, pod.Annotations[repo.AnnotationGangBy], made.Annotations[repo.AnnotationGangBy])
	assert.Equal(t, pod.Spec.SchedulerName, made.Spec.SchedulerName)
}
