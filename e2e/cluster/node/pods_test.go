package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestPods runs pods of every kind at once on two nodes.
func TestPods(t *testing.T) {
	plane := controlPlane(t)
	n := Start(t, plane, Options{GPUs: 2})
	second := Start(t, plane, Options{})
	n.LoadShell(t, shell)
	n.LoadTrainyard(t, trainyard)
	second.LoadTrainyard(t, trainyard)

	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *Node){
			"exit":         testExit,
			"init":         testInit,
			"hostPath":     testHostPath,
			"hostNetwork":  testHostNetwork,
			"memory":       testMemory,
			"wrongCommand": testWrongCommand,
			"missingImage": testMissingImage,
			"termination":  testTermination,
			"apiServer":    testAPIServer,
			"gpu":          testGPU,
			"nfs":          testNFS,
			"names":        func(t *testing.T, n *Node) { testNames(t, n, second) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, n)
			})
		}
	})
}

func testExit(t *testing.T, n *Node) {
	phase, state := n.finish(t, n.script("exit-0", "echo out; echo err >&2"))
	assert.Equal(t, corev1.PodSucceeded, phase)
	assert.EqualValues(t, 0, state.ExitCode)
	for _, line := range []string{"out\n", "err\n"} { // in any order: they come by two pipes
		assert.Contains(t, n.output(t, "exit-0"), line)
	}

	phase, state = n.finish(t, n.script("exit-3", "echo why > /dev/termination-log; exit 3"))
	assert.Equal(t, corev1.PodFailed, phase)
	assert.EqualValues(t, 3, state.ExitCode)
	assert.Equal(t, "why\n", state.Message)
}

func testInit(t *testing.T, n *Node) {
	p := n.script("init", "cat /data/file")
	p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: shell, Command: []string{"sh", "-c", "echo from-init > /data/file"}}}
	volume("/data", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(p)
	phase, _ := n.finish(t, p)
	assert.Equal(t, corev1.PodSucceeded, phase)
	assert.Equal(t, "from-init\n", n.output(t, "init"))
}

func testHostPath(t *testing.T, n *Node) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in"), []byte("from the host\n"), 0o644))
	phase, _ := n.finish(t, n.script("host-path", "cat /host/in && echo from the pod > /host/out", volume("/host", hostPath(dir))))
	assert.Equal(t, corev1.PodSucceeded, phase)
	assert.Equal(t, "from the host\n", n.output(t, "host-path"))
	out, err := os.ReadFile(filepath.Join(dir, "out"))
	require.NoError(t, err)
	assert.Equal(t, "from the pod\n", string(out))
}

// speaksTLS is a script that fails if there is no TLS server at an address: such
// a one says of plain HTTP that it is none.
func speaksTLS(address string) string {
	return fmt.Sprintf(`wget -O- "http://%s/" 2>&1 | grep "400 Bad Request"`, address)
}

// testHostNetwork sees the node's addresses, and the API server where the test
// sees it.
func testHostNetwork(t *testing.T, n *Node) {
	p := n.script("host-network", "ip -4 -o addr; "+speaksTLS(n.server.Host), func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	phase, _ := n.finish(t, p)
	assert.Equal(t, corev1.PodSucceeded, phase)
	assert.Contains(t, n.output(t, "host-network"), " "+n.IP+"/16 ")
}

func testMemory(t *testing.T, n *Node) {
	phase, state := n.finish(t, n.script("memory", "exec tail /dev/zero", limit(corev1.ResourceMemory, "32Mi")))
	assert.Equal(t, corev1.PodFailed, phase)
	assert.EqualValues(t, 137, state.ExitCode)
	assert.Equal(t, "OOMKilled", state.Reason)
}

func testWrongCommand(t *testing.T, n *Node) {
	phase, state := n.finish(t, n.script("wrong-command", "", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/no/such/thing"} }))
	assert.Equal(t, corev1.PodFailed, phase)
	assert.EqualValues(t, 128, state.ExitCode)
	assert.Equal(t, "StartError", state.Reason)
}

func testMissingImage(t *testing.T, n *Node) {
	n.create(t, n.script("missing-image", "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "localhost/none:1" }))
	n.until(t, "missing-image", func(p *corev1.Pod) bool {
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason == "ErrImagePull" {
				return true
			}
		}
		return false
	})
}

// testTermination: a pod that is deleted is asked first, and has time to answer.
func testTermination(t *testing.T, n *Node) {
	dir := t.TempDir()
	n.create(t, n.script("termination", "trap 'sleep 2; echo saved > /host/checkpoint; exit 0' TERM; touch /host/ready; while :; do sleep 0.1; done",
		volume("/host", hostPath(dir))))
	n.eventually(t, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})
	grace := int64(20)
	require.NoError(t, n.client.CoreV1().Pods(namespace).Delete(t.Context(), "termination", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	n.eventually(t, func(ctx context.Context) error {
		if _, err := n.client.CoreV1().Pods(namespace).Get(ctx, "termination", metav1.GetOptions{}); err == nil {
			return errors.New("the pod is still there")
		}
		return nil
	})
	saved, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	require.NoError(t, err, "the pod is gone and has saved nothing")
	assert.Equal(t, "saved\n", string(saved))
}

// testAPIServer: a pod finds the API server as every pod does.
func testAPIServer(t *testing.T, n *Node) {
	phase, _ := n.finish(t, n.script("api-server", speaksTLS("$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT")+` &&
		test -s /var/run/secrets/kubernetes.io/serviceaccount/token && nslookup kubernetes.default.svc.cluster.local`))
	assert.Equal(t, corev1.PodSucceeded, phase)
	assert.Contains(t, n.output(t, "api-server"), n.service)
}

// testGPU: the scheduler counts GPUs that are said to be there.
func testGPU(t *testing.T, n *Node) {
	n.create(t, n.script("gpu-2", "sleep 1000", limit("nvidia.com/gpu", "2")))
	n.until(t, "gpu-2", runs)
	n.create(t, n.script("gpu-1", "true", limit("nvidia.com/gpu", "1")))
	n.until(t, "gpu-1", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, "Insufficient nvidia.com/gpu")
	})
	now := int64(0)
	require.NoError(t, n.client.CoreV1().Pods(namespace).Delete(t.Context(), "gpu-2", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	assert.Equal(t, corev1.PodSucceeded, n.until(t, "gpu-1", ended).Status.Phase)
}

// testNFS: a pod waits, and says why, whether the kernel cannot mount NFS at all
// or there is no server.
func testNFS(t *testing.T, n *Node) {
	filesystems, err := os.ReadFile("/proc/filesystems")
	require.NoError(t, err)
	if !strings.Contains(string(filesystems), "\tnfs") {
		t.Log("this kernel has no NFS: only how it is refused is tested")
	}
	n.create(t, n.script("nfs", "true", volume("/data", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: hostAddress, Path: "/none"}})))
	n.eventually(t, func(ctx context.Context) error {
		events, err := n.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=nfs,reason=FailedMount"})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "MountVolume.SetUp failed") {
			return fmt.Errorf("events %+v", events.Items)
		}
		return nil
	})
	assert.Equal(t, corev1.PodPending, n.until(t, "nfs", func(*corev1.Pod) bool { return true }).Status.Phase)
}

// testNames: pods find each other by the names that a headless Service gives
// them, on one node and on two, before any of them is ready.
func testNames(t *testing.T, n, second *Node) {
	_, err := n.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "peers"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "peers"}, PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{Port: 8476, TargetPort: intstr.FromInt32(8476)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, n.client.CoreV1().Services(namespace).Delete(context.Background(), "peers", metav1.DeleteOptions{}))
	})
	for rank, on := range []*Node{n, n, second} {
		name := fmt.Sprintf("rank-%d", rank)
		n.create(t, on.script(name, "", func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": "peers"}
			p.Spec.Hostname, p.Spec.Subdomain = name, "peers"
			c := &p.Spec.Containers[0]
			c.Image, c.Command = trainyard, []string{"trainyard", "example-trainer", "jax", "--steps=20", "--samples=200"}
			for k, v := range map[string]string{"COORDINATOR_ADDRESS": "rank-0.peers." + namespace + ".svc." + domain, "COORDINATOR_PORT": "8476", "PROCESS_ID": fmt.Sprint(rank), "NUM_PROCESSES": "3"} {
				c.Env = append(c.Env, corev1.EnvVar{Name: k, Value: v})
			}
		}))
	}
	for rank := range 3 {
		name := fmt.Sprintf("rank-%d", rank)
		assert.Equal(t, corev1.PodSucceeded, n.until(t, name, ended).Status.Phase, n.output(t, name))
	}
	assert.Contains(t, n.output(t, "rank-0"), "step 20/20")
}
