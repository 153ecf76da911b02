package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// create makes a pod with annotations, written "exit-code=9".
func create(t *testing.T, c *Cluster, namespace, name string, said ...string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotated(said)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "train", Image: "none"}},
		},
	}
	return createPod(t, c, namespace, pod)
}

func createPod(t *testing.T, c *Cluster, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// until polls a pod until what is said of it holds, and returns it.
func until(t *testing.T, c *Cluster, namespace, name, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	wait(t, name+" "+what, func(ctx context.Context) (err error) {
		if pod, err = c.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !holds(pod) {
			return fmt.Errorf("phase %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
	return pod
}

func phase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Status.Phase == want }
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
		{"oom", []string{"exit-code=137", "reason=OOMKilled"}, corev1.PodFailed, 137, "OOMKilled"},
	} {
		t.Run(row.name, func(t *testing.T) {
			create(t, c, namespace, row.name, row.said...)
			pod := until(t, c, namespace, row.name, string(row.phase), phase(row.phase))
			ended := pod.Status.ContainerStatuses[0].State.Terminated
			require.NotNil(t, ended)
			assert.Equal(t, row.code, ended.ExitCode)
			assert.Equal(t, row.reason, ended.Reason)
		})
	}
}

func TestFinish(t *testing.T) {
	c := Shared(t)
	namespace := c.Namespace(t)
	create(t, c, namespace, "p")
	until(t, c, namespace, "p", "runs", phase(corev1.PodRunning))
	c.Finish(t, namespace, "p", 42)
	pod := until(t, c, namespace, "p", "failed", phase(corev1.PodFailed))
	assert.EqualValues(t, 42, pod.Status.ContainerStatuses[0].State.Terminated.ExitCode)
}

func annotated(said []string) map[string]string {
	out := map[string]string{}
	for _, s := range said {
		key, value, _ := strings.Cut(s, "=")
		out[annotations+key] = value
	}
	return out
}
