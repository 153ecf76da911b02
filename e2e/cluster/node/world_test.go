package node

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/trainyard/trainyard/e2e/cluster"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "12") // unless the command says otherwise: these tests mostly wait
	os.Exit(cluster.Main(m))
}

// controlPlane is shared by the tests, which all use nodes of their own.
func controlPlane(t *testing.T) ControlPlane {
	t.Helper()
	Require(t) // before a control plane is built for nothing
	return cluster.Shared(t)
}

const (
	shell     = "localhost/shell:1"
	trainyard = "localhost/trainyard:1"
	namespace = "default"
)

// script is a pod of one container that runs a shell script on the node.
func (n *Node) script(name, text string, changes ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			NodeSelector:                  map[string]string{corev1.LabelHostname: n.Name},
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: shell, Command: []string{"sh", "-c", text}}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// volume mounts a volume at a path of every container.
func volume(path string, source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		name := fmt.Sprintf("v%d", len(p.Spec.Volumes))
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range all {
				all[i].VolumeMounts = append(all[i].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
			}
		}
	}
}

func hostPath(dir string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}
}

func limit(name corev1.ResourceName, most string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(most)}
	}
}

// create creates a pod that is gone when the test is.
func (n *Node) create(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := n.client.CoreV1().Pods(namespace)
	// A new namespace has its service account a moment later.
	var created *corev1.Pod
	n.eventually(t, func(ctx context.Context) error {
		var err error
		created, err = pods.Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		now := int64(0)
		err := pods.Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return created
}

// until waits till a pod is as it should be.
func (n *Node) until(t *testing.T, name string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	n.eventually(t, func(ctx context.Context) error {
		var err error
		if p, err = n.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !is(p) {
			return fmt.Errorf("pod %s: %s, containers %+v", name, p.Status.Phase, p.Status.ContainerStatuses)
		}
		return nil
	})
	return p
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func runs(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.Status.ContainerStatuses[0].State.Running != nil
}

// finish creates a pod and returns how its container ended.
func (n *Node) finish(t *testing.T, p *corev1.Pod) (corev1.PodPhase, *corev1.ContainerStateTerminated) {
	t.Helper()
	n.create(t, p)
	done := n.until(t, p.Name, ended)
	require.Len(t, done.Status.ContainerStatuses, 1)
	state := done.Status.ContainerStatuses[0].State.Terminated
	require.NotNil(t, state)
	return done.Status.Phase, state
}

// output is what a pod's container printed, through the API server.
func (n *Node) output(t *testing.T, pod string) string {
	t.Helper()
	text, err := n.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	return string(text)
}

func (n *Node) eventually(t *testing.T, works func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = works(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}
