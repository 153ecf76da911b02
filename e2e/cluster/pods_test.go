package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// create makes a pod with annotations, written "exit-code=9".
func create(t *testing.T, c *Cluster, namespace, name string, said ...string) {
	t.Helper()
	createPod(t, c, namespace, pod(name, said...))
}

func pod(name string, said ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "train", Image: "none"}},
		},
	}
	for _, s := range said {
		key, value, _ := strings.Cut(s, "=")
		p.Annotations[annotations+key] = value
	}
	return p
}

func createPod(t *testing.T, c *Cluster, namespace string, p *corev1.Pod) {
	t.Helper()
	_, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
}

// until polls a pod until what is said of it holds, and returns it.
func until(t *testing.T, c *Cluster, namespace, name, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	wait(t, name+" "+what, func(ctx context.Context) (err error) {
		if found, err = c.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !holds(found) {
			return fmt.Errorf("phase %s, conditions %v", found.Status.Phase, found.Status.Conditions)
		}
		return nil
	})
	return found
}

func untilPhase(t *testing.T, c *Cluster, namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return until(t, c, namespace, name, "is "+string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

func untilGone(t *testing.T, c *Cluster, namespace, name string) {
	t.Helper()
	wait(t, name+" is gone", func(ctx context.Context) error {
		_, err := c.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%w)", err)
	})
}

// remove deletes a pod as kubectl does.
func remove(t *testing.T, c *Cluster, namespace, name string) {
	t.Helper()
	require.NoError(t, c.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func TestPodsEnd(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	for _, row := range []struct {
		name   string
		said   []string
		phase  corev1.PodPhase
		code   int32
		reason string
	}{
		{"zero", []string{"exit-code=0"}, corev1.PodSucceeded, 0, "Completed"},
		{"nine", []string{"exit-code=9", "run-for=300ms"}, corev1.PodFailed, 9, "Error"},
		{"oom", []string{"exit-code=137", "reason=OOMKilled", "start-delay=100ms"}, corev1.PodFailed, 137, "OOMKilled"},
		{"other", []string{"exit-code=0", "exit-code.train=3"}, corev1.PodFailed, 3, "Error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			create(t, c, namespace, row.name, row.said...)
			status := untilPhase(t, c, namespace, row.name, row.phase).Status
			ended := status.ContainerStatuses[0].State.Terminated
			require.NotNil(t, ended)
			assert.Equal(t, row.code, ended.ExitCode)
			assert.Equal(t, row.reason, ended.Reason)
			assert.False(t, ended.FinishedAt.Before(&ended.StartedAt))
			assert.NotEmpty(t, status.PodIP)
		})
	}
}

func TestPodsOfSeveralContainers(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	always := corev1.ContainerRestartPolicyAlways
	p := pod("p", "exit-code=0", "exit-code.proxy=2", "run-for=1h")
	p.Spec.InitContainers = []corev1.Container{{Name: "fetch", Image: "none"}, {Name: "side", Image: "none", RestartPolicy: &always}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Image: "none"})
	createPod(t, c, namespace, p)
	status := untilPhase(t, c, namespace, "p", corev1.PodRunning).Status
	assert.NotNil(t, status.InitContainerStatuses[0].State.Terminated)
	assert.NotNil(t, status.InitContainerStatuses[1].State.Running)

	// What Finish says holds for all, but not for the one that says otherwise.
	c.Finish(t, namespace, "p", 0)
	status = untilPhase(t, c, namespace, "p", corev1.PodFailed).Status
	assert.EqualValues(t, 0, status.ContainerStatuses[0].State.Terminated.ExitCode)
	assert.EqualValues(t, 2, status.ContainerStatuses[1].State.Terminated.ExitCode)
	assert.NotNil(t, status.InitContainerStatuses[1].State.Terminated, "sidecars end with the pod")
}

func TestFinish(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	p := pod("p", "exit-code=0", "run-for=1h")
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	createPod(t, c, namespace, p)
	c.Finish(t, namespace, "p", 42)
	status := untilPhase(t, c, namespace, "p", corev1.PodFailed).Status
	assert.EqualValues(t, 42, status.ContainerStatuses[0].State.Terminated.ExitCode)
}

func TestPodsThatNeverStart(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	create(t, c, namespace, "image", "waiting=ErrImagePull", "exit-code=0")
	until(t, c, namespace, "image", "waits", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ErrImagePull"
	})
	c.patchPod(t, namespace, "image", `{"metadata":{"annotations":{"simulate.trainyard.dev/waiting":null}}}`)
	untilPhase(t, c, namespace, "image", corev1.PodSucceeded)

	p := pod("init", "init-exit-code=5")
	p.Spec.InitContainers = []corev1.Container{{Name: "fetch", Image: "none"}}
	createPod(t, c, namespace, p)
	status := untilPhase(t, c, namespace, "init", corev1.PodFailed).Status
	assert.EqualValues(t, 5, status.InitContainerStatuses[0].State.Terminated.ExitCode)
	assert.NotNil(t, status.ContainerStatuses[0].State.Waiting)
}

func (c *Cluster) patchPod(t *testing.T, namespace, name, patch string) {
	t.Helper()
	_, err := c.Client().CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestPodsAreDeletedGracefully(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	create(t, c, namespace, "slow", "stop-delay=1s")
	held := pod("held")
	held.Finalizers = []string{"trainyard.dev/record"}
	createPod(t, c, namespace, held)
	create(t, c, namespace, "waits", "waiting=ErrImagePull")
	for _, name := range []string{"slow", "held"} {
		untilPhase(t, c, namespace, name, corev1.PodRunning)
	}

	began := time.Now()
	remove(t, c, namespace, "slow")
	untilGone(t, c, namespace, "slow")
	assert.Greater(t, time.Since(began), time.Second)

	// Its outcome can be read while somebody holds it.
	remove(t, c, namespace, "held")
	status := untilPhase(t, c, namespace, "held", corev1.PodFailed).Status
	assert.EqualValues(t, 143, status.ContainerStatuses[0].State.Terminated.ExitCode)
	until(t, c, namespace, "held", "is let go by its node", func(p *corev1.Pod) bool {
		return p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	})
	c.patchPod(t, namespace, "held", `{"metadata":{"finalizers":null}}`)
	untilGone(t, c, namespace, "held")

	remove(t, c, namespace, "waits")
	untilGone(t, c, namespace, "waits")
}

func TestLogs(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	create(t, c, namespace, "p", "log=step 1\nstep 2\nstep 3\n")
	create(t, c, namespace, "silent", "exit-code=0")
	untilPhase(t, c, namespace, "p", corev1.PodRunning)
	untilPhase(t, c, namespace, "silent", corev1.PodSucceeded)
	text := func(pod string, o corev1.PodLogOptions) string {
		out, err := c.Client().CoreV1().Pods(namespace).GetLogs(pod, &o).DoRaw(t.Context())
		require.NoError(t, err)
		return string(out)
	}
	two, five := int64(2), int64(5)
	assert.Equal(t, "step 1\nstep 2\nstep 3\n", text("p", corev1.PodLogOptions{}))
	assert.Equal(t, "step 2\nstep 3\n", text("p", corev1.PodLogOptions{TailLines: &two}))
	assert.Equal(t, "step ", text("p", corev1.PodLogOptions{LimitBytes: &five}))
	assert.Regexp(t, `^\d{4}-\d\d-\d\dT\S+Z step 1\n`, text("p", corev1.PodLogOptions{Timestamps: true}))
	assert.Equal(t, "train: simulated\n", text("silent", corev1.PodLogOptions{}))

	// Who follows sees what is written later, and the end.
	stream, err := c.Client().CoreV1().Pods(namespace).GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	c.patchPod(t, namespace, "p", `{"metadata":{"annotations":{"simulate.trainyard.dev/log":"step 1\nstep 2\nstep 3\nstep 4\n"}}}`)
	c.Finish(t, namespace, "p", 0)
	followed, err := io.ReadAll(stream)
	require.NoError(t, err)
	assert.Equal(t, "step 1\nstep 2\nstep 3\nstep 4\n", string(followed))

	create(t, c, namespace, "waits", "waiting=ErrImagePull")
	until(t, c, namespace, "waits", "has a node", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) > 0 })
	_, err = c.Client().CoreV1().Pods(namespace).GetLogs("waits", &corev1.PodLogOptions{}).Stream(t.Context())
	assert.ErrorContains(t, err, `container "train" in pod "waits" is waiting to start: ErrImagePull`)
}

func TestGPUs(t *testing.T) {
	c := Start(t, Options{Nodes: 1, GPUs: 4})
	namespace := c.Namespace(t)
	asks := func(name, gpus string) *corev1.Pod {
		p := pod(name)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}
		return p
	}
	createPod(t, c, namespace, asks("first", "3"))
	untilPhase(t, c, namespace, "first", corev1.PodRunning)
	createPod(t, c, namespace, asks("second", "2"))
	waiting := until(t, c, namespace, "second", "is refused", func(p *corev1.Pod) bool { return len(p.Status.Conditions) > 0 })
	assert.Equal(t, corev1.PodReasonUnschedulable, waiting.Status.Conditions[0].Reason)
	assert.Contains(t, waiting.Status.Conditions[0].Message, "Insufficient nvidia.com/gpu")
	wait(t, "an event", func(ctx context.Context) error {
		events, err := c.Client().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedScheduling,involvedObject.name=second"})
		if err == nil && len(events.Items) == 0 {
			return fmt.Errorf("none yet")
		}
		return err
	})
	c.Finish(t, namespace, "first", 0) // which gives its GPUs back
	untilPhase(t, c, namespace, "second", corev1.PodRunning)
}
