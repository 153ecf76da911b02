package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestShared(t *testing.T) {
	c := Shared(t)
	t.Log("server: " + c.Config().Host)
	got, err := c.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Regexp(t, `^v1\.\d+\.\d+$`, got.GitVersion)
}

func TestKillAndRestart(t *testing.T) {
	c := Start(t, Options{Nodes: 1})
	namespace := c.Namespace(t)
	create(t, c, namespace, "before")
	untilPhase(t, c, namespace, "before", corev1.PodRunning)
	for _, component := range []string{"kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok"} {
		t.Run(component, func(t *testing.T) {
			c.Kill(t, component)
			if component == "kube-apiserver" {
				_, err := c.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
				require.ErrorContains(t, err, "connection refused")
			}
			c.Restart(t, component)
			untilPhase(t, c, namespace, "before", corev1.PodRunning)
			create(t, c, namespace, component, "exit-code=0")
			untilPhase(t, c, namespace, component, corev1.PodSucceeded)
		})
	}
}

// TestPodsGoOn: whatever is under way with a pod when the API server or its
// store is killed, it ends in the end.
func TestPodsGoOn(t *testing.T) {
	c := Start(t, Options{Nodes: 2})
	namespace := c.Namespace(t)
	const pods = 60
	for round, component := range []string{"kube-apiserver", "etcd", "kube-apiserver", "etcd"} {
		for i := range pods {
			create(t, c, namespace, fmt.Sprintf("p%d-%d", round, i), "exit-code=0", fmt.Sprintf("run-for=%dms", 20*i))
		}
		ended := func(least int) {
			until(t, c, namespace, fmt.Sprintf("p%d-%d", round, least-1), "has ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		}
		ended(5)
		c.Kill(t, component)
		c.Restart(t, component)
		for i := range pods {
			ended(i + 1)
		}
	}
}

func TestNodeDown(t *testing.T) {
	c := Start(t, Options{Nodes: 2, NodeGrace: 8 * time.Second})
	namespace := c.Namespace(t)
	p := pod("p", "exit-code=0", "run-for=6s") // which is over before its node is given up
	p.Spec.NodeName = "node-0"
	createPod(t, c, namespace, p)
	untilPhase(t, c, namespace, "p", corev1.PodRunning)

	c.SetNode(t, "node-0", false)
	lost := until(t, c, namespace, "p", "is not ready", func(p *corev1.Pod) bool { return !ready(p) })
	assert.Equal(t, corev1.PodRunning, lost.Status.Phase, "nobody speaks for it any more")
	assert.Equal(t, corev1.ConditionUnknown, nodeReady(t, c, "node-0"))
	assert.Equal(t, corev1.ConditionTrue, nodeReady(t, c, "node-1"))
	remove(t, c, namespace, "p")

	c.SetNode(t, "node-0", true)
	untilGone(t, c, namespace, "p")
	wait(t, "the node is ready", func(context.Context) error {
		if got := nodeReady(t, c, "node-0"); got != corev1.ConditionTrue {
			return fmt.Errorf("ready: %s", got)
		}
		return nil
	})
}

func ready(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeReady(t *testing.T, c *Cluster, name string) corev1.ConditionStatus {
	t.Helper()
	node, err := c.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// TestAs: a user has the rights that RBAC gives, and the audit log says who it was.
func TestAs(t *testing.T) {
	c := Start(t, Options{Nodes: -1, Audit: true})
	namespace := c.Namespace(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigFor(t, c.As(t, "ann", "trainers")))
	require.NoError(t, err)
	ann, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	_, err = ann.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	_, err = c.Client().RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "trainers"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "trainers"}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	wait(t, "the right", func(ctx context.Context) error {
		_, err := ann.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	_, err = ann.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)

	log, err := os.Open(c.AuditLog())
	require.NoError(t, err)
	defer log.Close()
	codes := map[int]int{}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var entry struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Namespace string }
			ResponseStatus struct{ Code int }
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry))
		if entry.User.Username == "ann" && entry.ObjectRef.Resource == "pods" && entry.Verb == "list" {
			codes[entry.ResponseStatus.Code]++
		}
	}
	assert.Positive(t, codes[403])
	assert.Positive(t, codes[200])
}

// TestGates: alpha features can be had.
func TestGates(t *testing.T) {
	c := Start(t, Options{Nodes: -1, Gates: "GenericWorkload=true", Runtime: "scheduling.k8s.io/v1alpha2=true"})
	_, err := c.Client().Discovery().ServerResourcesForGroupVersion("scheduling.k8s.io/v1alpha2")
	require.NoError(t, err)
}

// TestTwoAtOnce: neither sees the other.
func TestTwoAtOnce(t *testing.T) {
	one, two := Start(t, Options{Nodes: 1}), Start(t, Options{Nodes: 1})
	namespace := one.Namespace(t)
	_, err := two.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	two.stop()
	create(t, one, namespace, "p", "exit-code=0")
	untilPhase(t, one, namespace, "p", corev1.PodSucceeded)
}

// TestNothingIsLeft: this test's own binary, killed, takes its cluster along.
func TestNothingIsLeft(t *testing.T) {
	const marker = "TRAINYARD_TEST_HOLDS_A_CLUSTER"
	if os.Getenv(marker) != "" {
		c := Start(t, Options{Nodes: 1})
		for _, p := range c.parts {
			fmt.Println("process", p.cmd.Process.Pid)
		}
		fmt.Println("folder", c.Dir())
		<-t.Context().Done()
	}
	skipIfGiven(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeft$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), marker+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var processes []int
	folder := ""
	for lines := bufio.NewScanner(out); folder == "" && lines.Scan(); {
		if number, found := strings.CutPrefix(lines.Text(), "process "); found {
			pid, err := strconv.Atoi(number)
			require.NoError(t, err)
			processes = append(processes, pid)
		}
		folder, _ = strings.CutPrefix(lines.Text(), "folder ")
		if !strings.HasPrefix(lines.Text(), "folder ") {
			folder = ""
		}
	}
	require.Len(t, processes, 5)
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait())
	for _, pid := range processes {
		wait(t, "the end of a process", func(context.Context) error {
			if running(pid) {
				return fmt.Errorf("process %d runs", pid)
			}
			return nil
		})
	}

	// What it has left on disk goes with the next start, when it is old enough.
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(folder, old, old))
	sweep()
	assert.NoDirExists(t, folder)
}

// running says whether a process does; one that has ended and that nobody has
// asked about does not.
func running(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, after, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(after, "Z")
	}
	return syscall.Kill(pid, 0) == nil
}

// TestStops: a cluster that was stopped leaves nothing, and one that runs is not swept away.
func TestStops(t *testing.T) {
	var folder string
	t.Run("runs", func(t *testing.T) {
		c := Start(t, Options{Nodes: -1})
		folder = c.Dir()
		old := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(folder, old, old))
		sweep()
		require.FileExists(t, filepath.Join(folder, "pki", "ca.crt"))
	})
	assert.NoDirExists(t, folder)
}

// TestGiven: a cluster of the user's own is used as it is, and not harmed.
func TestGiven(t *testing.T) {
	c := Start(t, Options{Nodes: 1})
	run := func(env string, args ...string) string {
		cmd := exec.Command(os.Args[0], append([]string{"-test.v", "-test.run=^(TestShared|TestFinish|TestTwoAtOnce)$"}, args...)...)
		cmd.Env = append(os.Environ(), env)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	for _, out := range []string{run("NOTHING=", "-cluster="+c.Kubeconfig()), run(Variable + "=" + c.Kubeconfig())} {
		assert.Contains(t, out, "server: "+c.Config().Host)
		assert.Contains(t, out, "--- PASS: TestShared")
		assert.Contains(t, out, "--- PASS: TestFinish")
		assert.Contains(t, out, "needs a cluster that it may harm")
		assert.Contains(t, out, "--- SKIP: TestTwoAtOnce")
	}
	out, err := exec.Command(os.Args[0], "-test.run=TestShared", "-cluster=/nowhere").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "/nowhere")

	c.Kill(t, "kwok") // and nodes that nobody simulates are none
	c.forgetNodes(t)
	assert.Contains(t, run(Variable+"="+c.Kubeconfig()), "--- SKIP: TestFinish")
}

func (c *Cluster) forgetNodes(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Client().CoreV1().Nodes().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// TestPortsTaken: what starts anew with other ports is told from what fails.
func TestPortsTaken(t *testing.T) {
	c := Start(t, Options{Nodes: -1})
	for _, p := range c.parts {
		p.kill()
		u, err := url.Parse(p.health)
		require.NoError(t, err)
		listener, err := net.Listen("tcp", u.Host)
		require.NoError(t, err)
		require.NoError(t, p.start())
		wait(t, p.name+" to end", func(context.Context) error {
			if p.died() == nil {
				return errors.New("it runs")
			}
			return nil
		})
		assert.ErrorIs(t, p.died(), errPort)
		require.NoError(t, listener.Close())
		c.Restart(t, p.name)
	}
}
