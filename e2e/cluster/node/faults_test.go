package node

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/e2e/cluster"
)

// TestKubeletKilled: containers go on without the kubelet, and a new one reports
// what became of them.
func TestKubeletKilled(t *testing.T) {
	n := Start(t, controlPlane(t), Options{GPUs: 1})
	n.LoadShell(t, shell)
	dir := t.TempDir()
	n.create(t, n.script("ends", "touch /host/ready; while ! test -e /host/go; do sleep 0.1; done; touch /host/gone; exit 6", volume("/host", hostPath(dir))))
	n.create(t, n.script("stays", "sleep 1000", limit("nvidia.com/gpu", "1")))
	n.until(t, "ends", runs)
	before := n.until(t, "stays", runs).Status.ContainerStatuses[0]

	n.KillKubelet(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	n.eventually(t, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "gone"))
		return err
	})
	n.RestartKubelet(t)
	done := n.until(t, "ends", ended)
	assert.Equal(t, corev1.PodFailed, done.Status.Phase)
	assert.EqualValues(t, 6, done.Status.ContainerStatuses[0].State.Terminated.ExitCode)

	// A pod that the new kubelet starts comes after all that it found.
	phase, _ := n.finish(t, n.script("after", "true"))
	assert.Equal(t, corev1.PodSucceeded, phase)
	after := n.until(t, "stays", runs).Status.ContainerStatuses[0]
	assert.Equal(t, before.ContainerID, after.ContainerID, "another pod was touched")
	assert.Zero(t, after.RestartCount)
}

// TestNodeKilled: all that ran is gone at once, and the node that boots with the
// same disk runs pods again.
func TestNodeKilled(t *testing.T) {
	n := Start(t, controlPlane(t), Options{Labels: map[string]string{"example/zone": "a"}, GPUs: 1})
	n.LoadShell(t, shell)
	dir := t.TempDir()
	n.create(t, n.script("lost", "echo $$ > /host/pid; sleep 1000", volume("/host", hostPath(dir))))
	n.until(t, "lost", runs)
	before := n.processes(t)
	require.Greater(t, len(before), 5)

	n.Kill(t)
	for _, pid := range before {
		assert.NoFileExists(t, "/proc/"+pid, "a process of the node outlived it")
	}
	assert.NoDirExists(t, "/sys/class/net/"+n.place.link())

	n.Boot(t)
	phase, _ := n.finish(t, n.script("again", "true", limit("nvidia.com/gpu", "1"), func(p *corev1.Pod) { p.Spec.NodeSelector["example/zone"] = "a" }))
	assert.Equal(t, corev1.PodSucceeded, phase)
	lost := n.until(t, "lost", ended)
	assert.Equal(t, corev1.PodFailed, lost.Status.Phase)
}

// processes are the PIDs on the host of all that runs on the node.
func (n *Node) processes(t *testing.T) []string {
	mine, err := os.Readlink("/proc/" + strconv.Itoa(n.machine.pid) + "/ns/mnt")
	require.NoError(t, err)
	tasks, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var found []string
	for _, task := range tasks {
		// Containers have mount namespaces of their own, and the node's init above them.
		if ns, err := os.Readlink(task + "/ns/mnt"); err == nil && (ns == mine || n.above(task)) {
			found = append(found, filepath.Base(task))
		}
	}
	return found
}

func (n *Node) above(task string) bool {
	for depth := 0; depth < 20; depth++ {
		status, err := os.ReadFile(task + "/status")
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
		parent, _, _ := strings.Cut(rest, "\n")
		if parent == strconv.Itoa(n.machine.pid) {
			return true
		}
		task = "/proc/" + parent
	}
	return false
}

// host is what the host has that nodes change.
func host(t *testing.T) map[string]string {
	found := map[string]string{}
	for _, name := range []string{
		"/proc/self/mounts", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
	} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		found[name] = string(text)
	}
	rules, err := exec.Command("iptables-save").Output()
	require.NoError(t, err)
	found["iptables"] = regexp.MustCompile(`(?m)^#.*|\[\d+:\d+\]`).ReplaceAllString(string(rules), "") // no dates, no counters
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd", "/run/netns"} {
		_, err := os.Stat(dir)
		found[dir] = strconv.FormatBool(err == nil)
	}
	return found
}

// gone is an error as long as something of a node's place is there.
func (p *place) gone() error {
	left := []string{p.state, placeFile(p.number), "/sys/class/net/" + p.link()}
	cgroups, err := filepath.Glob(cgroupRoot + "/*/" + p.cgroup())
	if err != nil {
		return err
	}
	for _, name := range append(left, cgroups...) {
		if _, err := os.Stat(name); err == nil {
			return errors.New(name + " is left")
		}
	}
	return nil
}

// TestNothingIsLeft of a node that has run pods, and was killed or not.
func TestNothingIsLeft(t *testing.T) {
	plane := controlPlane(t)
	before := host(t)
	var places []*place
	t.Run("nodes", func(t *testing.T) {
		first, second := Start(t, plane, Options{}), Start(t, plane, Options{})
		places = append(places, first.place, second.place)
		first.LoadShell(t, shell)
		second.LoadShell(t, shell)
		for _, n := range []*Node{first, second} {
			n.create(t, n.script("left-on-"+n.Name, "sleep 1000", volume("/memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})))
			n.until(t, "left-on-"+n.Name, runs)
		}
		second.Kill(t)
	})
	for _, p := range places {
		assert.NoError(t, p.gone())
	}
	assert.Equal(t, before, host(t))
}

// TestOwnerKilled: a node ends with the process that started it, even if that
// had no time to end it, and the next one removes what is left.
func TestOwnerKilled(t *testing.T) {
	Require(t)
	plane := cluster.Shared(t)
	owner := exec.Command(os.Args[0], "-test.run=^TestOwner$", "-test.v")
	owner.Env = append(os.Environ(), "TRAINYARD_TEST_OWNER="+plane.Dir()+" "+plane.Kubeconfig())
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	defer func() { _ = owner.Process.Kill() }()
	var dead place
	var pid string
	for lines := bufio.NewScanner(out); pid == "" && lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), "node is up: "); ok {
			words := strings.Fields(rest)
			dead.number, err = strconv.Atoi(words[0])
			require.NoError(t, err)
			dead.state, pid = words[1], words[2]
		}
	}
	require.NotEmpty(t, pid, "the owner started no node")
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()

	n := &Node{}
	n.eventually(t, func(context.Context) error {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			return errors.New("the node's init still runs")
		}
		return nil
	})
	next := Start(t, plane, Options{})
	if next.place.number != dead.number {
		assert.NoError(t, dead.gone())
	}
	assert.NoDirExists(t, dead.state)
}

// another is the control plane of another process.
type another struct {
	config *rest.Config
	dir    string
}

func (a another) Config() *rest.Config { return a.config }
func (a another) Dir() string          { return a.dir }

// TestOwner is the process that TestOwnerKilled kills.
func TestOwner(t *testing.T) {
	words := strings.Fields(os.Getenv("TRAINYARD_TEST_OWNER"))
	if len(words) == 0 {
		t.Skip("run by TestOwnerKilled")
	}
	config, err := clientcmd.BuildConfigFromFlags("", words[1])
	require.NoError(t, err)
	n := Start(t, another{config: config, dir: words[0]}, Options{})
	n.LoadShell(t, shell)
	n.create(t, n.script("orphan", "sleep 1000"))
	n.until(t, "orphan", runs)
	t.Logf("node is up: %d %s %d", n.place.number, n.place.state, n.machine.pid)
	<-t.Context().Done()
}

func TestNeeds(t *testing.T) {
	Require(t)
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, Needs(), "apt-get install containerd")
}
