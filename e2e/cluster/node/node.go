package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ControlPlane is what a node joins, a *cluster.Cluster: an API server on an
// address of this machine.
type ControlPlane interface {
	Config() *rest.Config // an administrator's
	Dir() string          // has pki/ca.crt and pki/ca.key, of the authority for clients and kubelets; "" is somebody else's cluster
}

// Options of a node.
type Options struct {
	Name   string            // of the node, as no other is called; empty: real-N
	Labels map[string]string // beside those that every node has
	GPUs   int               // nvidia.com/gpu that it says to have
}

// Node is a real node. Its methods are for one goroutine at a time.
type Node struct {
	Name string
	IP   string // of the node; also of its DNS

	options  Options
	server   *url.URL // of the API
	pki      authority
	programs Programs
	place    *place
	client   kubernetes.Interface
	service  string // address of the API server's Service
	machine  *machine
	forwards []*forward
}

// patience with anything that a node does.
const patience = 2 * time.Minute

// Require skips a test that needs a node where there can be none, and fails it
// if TRAINYARD_REQUIRE_NODE is 1.
func Require(t testing.TB) {
	t.Helper()
	err := Needs()
	switch {
	case err == nil:
	case os.Getenv("TRAINYARD_REQUIRE_NODE") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// Start joins a node to a control plane and waits till it is Ready. It ends, and
// all that it was is removed, with the test.
func Start(t testing.TB, c ControlPlane, o Options) *Node {
	t.Helper()
	Require(t)
	if c.Dir() == "" {
		t.Skip("a node joins no cluster but one that was started for tests")
	}
	built, err := Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := newNode(ctx, c, o, built)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.end(t) })
	if err := n.boot(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

func newNode(ctx context.Context, c ControlPlane, o Options, built Programs) (*Node, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	server, err := url.Parse(c.Config().Host)
	if err != nil {
		return nil, fmt.Errorf("start node: address of the API server: %w", err)
	}
	pki, err := readAuthority(filepath.Join(c.Dir(), "pki"))
	if err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	p, err := claim(ctx)
	if err != nil {
		return nil, err
	}
	n := &Node{Name: o.Name, IP: p.address(), options: o, server: server, pki: pki, programs: built, place: p, client: client}
	if n.Name == "" {
		n.Name = fmt.Sprintf("real-%d", p.number) // simulated ones are node-N
	}
	if err = uncovered(p.state, built.Init); err == nil {
		err = n.configure()
	}
	if err != nil {
		return nil, errors.Join(err, p.release(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// end stops the node and removes it from the machine, and from the cluster if
// that is still there.
func (n *Node) end(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if t.Failed() && n.machine != nil {
		for _, program := range []string{"kubelet", "containerd", "coredns"} {
			t.Logf("the end of the log of %s on %s:\n%s", program, n.Name, n.machine.logTail(program))
		}
	}
	if err := n.off(); err != nil {
		t.Error(err)
	}
	if err := n.place.release(ctx); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = n.client.CoreV1().Nodes().Delete(short, n.Name, metav1.DeleteOptions{})
}

// boot switches the node on, and waits till the API server says that it is
// Ready.
func (n *Node) boot(ctx context.Context) error {
	// What is left of an earlier boot, the kubelet would look for in vain, and long.
	if err := removeCgroups(ctx, n.place.cgroup()); err != nil {
		return err
	}
	if err := makeCgroups(n.place.cgroup()); err != nil {
		return err
	}
	bootID := newBootID()
	s, err := n.fileSystem(bootID)
	if err != nil {
		return err
	}
	if n.machine, err = boot(ctx, n.programs.Init, n.logs(), s); err != nil {
		return err
	}
	if err := n.connect(ctx); err != nil {
		return err
	}
	if err := n.machine.start(ctx, "coredns", n.programs.CoreDNS, "-conf", n.etc("Corefile")); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	if err := n.startKubelet(ctx); err != nil {
		return err
	}
	if err := n.importImage(ctx, n.programs.Pause); err != nil {
		return err
	}
	if err := n.keepKubelet(ctx, func(ctx context.Context) error { return n.ready(ctx, bootID) }); err != nil {
		return err
	}
	if err := n.poll(ctx, "coredns", n.resolves); err != nil {
		return err
	}
	return n.describe(ctx)
}

// connect gives the node its network, and the API server to the node.
func (n *Node) connect(ctx context.Context) error {
	if err := n.place.connect(ctx, n.machine.pid); err != nil {
		return err
	}
	err := n.poll(ctx, "", func(ctx context.Context) error { // a new API server makes it a moment later
		s, err := n.client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err == nil {
			n.service = s.Spec.ClusterIP
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "cni0", "address", n.place.hardware(), "type", "bridge"},
		{"link", "set", "eth0", "master", "cni0", "up"},
		{"addr", "add", n.IP + "/16", "dev", "cni0"},
		{"link", "set", "cni0", "up"},
		{"addr", "add", n.service + "/32", "dev", "lo"},
	} {
		if _, err := n.machine.run(ctx, append([]string{"ip"}, args...)...); err != nil {
			return err
		}
	}
	for _, address := range []string{n.server.Host, net.JoinHostPort(n.service, "443")} {
		f, err := newForward(n.machine.pid, address, n.server.Host)
		if err != nil {
			return err
		}
		n.forwards = append(n.forwards, f)
	}
	return nil
}

func (n *Node) startContainerd(ctx context.Context) error {
	if err := n.machine.start(ctx, "containerd", "containerd", "--config", n.etc("containerd.toml")); err != nil {
		return err
	}
	return n.poll(ctx, "containerd", func(ctx context.Context) error {
		_, err := n.machine.run(ctx, "ctr", "version")
		return err
	})
}

func (n *Node) startKubelet(ctx context.Context) error {
	return n.machine.start(ctx, "kubelet", n.programs.Kubelet, "--config", n.etc("kubelet.json"), "--kubeconfig", n.etc("kubelet.kubeconfig"),
		"--hostname-override", n.Name, "--node-ip", n.IP)
}

// keepKubelet waits till something works, and starts a kubelet again that ends
// meanwhile, as a service manager does: containerd answers a moment before all of
// it does, and a kubelet does not wait for that.
func (n *Node) keepKubelet(ctx context.Context, works func(context.Context) error) error {
	return n.poll(ctx, "", func(ctx context.Context) error {
		if ended := n.machine.alive("kubelet"); ended != nil {
			return errors.Join(ended, n.startKubelet(ctx))
		}
		return works(ctx)
	})
}

// poll waits till something works, as long as the program that it needs runs.
func (n *Node) poll(ctx context.Context, program string, works func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if program != "" {
			if err := n.machine.alive(program); err != nil {
				return false, err
			}
		}
		last = works(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("node %s: wait for %s: %w", n.Name, program, errors.Join(err, last))
	}
	return nil
}

// ready is nil when the API server has heard from this boot of the node that it
// is Ready.
func (n *Node) ready(ctx context.Context, bootID string) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if node.Status.NodeInfo.BootID != bootID {
		return errors.New("the kubelet has not reported yet")
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("node is not ready: %s", c.Message)
		}
	}
	return nil
}

// resolves is nil when CoreDNS knows the cluster.
func (n *Node) resolves(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.IP+":8181/ready", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("CoreDNS is not ready: %s", response.Status)
	}
	return nil
}

// describe says of the node what its options do, which a new kubelet forgets.
func (n *Node) describe(ctx context.Context) error {
	if len(n.options.Labels) > 0 {
		if err := n.patch(ctx, map[string]any{"metadata": map[string]any{"labels": n.options.Labels}}); err != nil {
			return err
		}
	}
	if n.options.GPUs == 0 {
		return nil
	}
	count := map[string]string{"nvidia.com/gpu": fmt.Sprint(n.options.GPUs)}
	return n.patch(ctx, map[string]any{"status": map[string]any{"capacity": count, "allocatable": count}}, "status")
}

func (n *Node) patch(ctx context.Context, change map[string]any, subresources ...string) error {
	text, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("change node %s: %w", n.Name, err)
	}
	if _, err := n.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, subresources...); err != nil {
		return fmt.Errorf("change node %s: %w", n.Name, err)
	}
	return nil
}

// off ends everything that runs on the node.
func (n *Node) off() error {
	for _, f := range n.forwards {
		f.close()
	}
	n.forwards = nil
	if n.machine == nil {
		return nil
	}
	defer func() { n.machine = nil }()
	return n.machine.stop()
}
