package node

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"k8s.io/client-go/kubernetes"
)

// Host is the address at which pods reach what a test listens with on the host.
func (n *Node) Host() string { return hostAddress }

// Kill switches the node off without a word: kubelet, containers and all. Its
// disk stays.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	n.must(t, func(context.Context) error { return n.off() })
}

// Boot switches a killed node on again, with the disk that it had.
func (n *Node) Boot(t testing.TB) {
	t.Helper()
	n.must(t, func(ctx context.Context) error {
		if n.machine != nil {
			return fmt.Errorf("node %s is on", n.Name)
		}
		return n.boot(ctx)
	})
}

// KillKubelet ends the kubelet with SIGKILL. The node's containers go on.
func (n *Node) KillKubelet(t testing.TB) {
	t.Helper()
	n.must(t, func(ctx context.Context) error { return n.machine.kill(ctx, "kubelet") })
}

// RestartKubelet starts it again, killing it first if it runs, and waits till it
// answers.
func (n *Node) RestartKubelet(t testing.TB) {
	t.Helper()
	n.must(t, func(ctx context.Context) error {
		if n.machine.alive("kubelet") == nil {
			if err := n.machine.kill(ctx, "kubelet"); err != nil {
				return err
			}
		}
		if err := n.startKubelet(ctx); err != nil {
			return err
		}
		if err := n.keepKubelet(ctx, func(ctx context.Context) error {
			client, ok := n.client.(*kubernetes.Clientset)
			if !ok {
				return fmt.Errorf("no REST client")
			}
			return client.RESTClient().Get().AbsPath("/api/v1/nodes", n.Name, "proxy/healthz").Do(ctx).Error()
		}); err != nil {
			return err
		}
		return n.describe(ctx)
	})
}

// KillContainerd ends containerd with SIGKILL. The node's containers go on, held
// by shims of their own, and the kubelet can start and end none.
func (n *Node) KillContainerd(t testing.TB) {
	t.Helper()
	n.must(t, func(ctx context.Context) error { return n.machine.kill(ctx, "containerd") })
}

// RestartContainerd starts it again, killing it first if it runs, and waits till
// it answers.
func (n *Node) RestartContainerd(t testing.TB) {
	t.Helper()
	n.must(t, func(ctx context.Context) error {
		if n.machine.alive("containerd") == nil {
			if err := n.machine.kill(ctx, "containerd"); err != nil {
				return err
			}
		}
		return n.startContainerd(ctx)
	})
}

// Label sets labels of the node.
func (n *Node) Label(t testing.TB, labels map[string]string) {
	t.Helper()
	all := maps.Clone(n.options.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	n.options.Labels = all
	n.must(t, n.describe)
}

// GPUs sets how many nvidia.com/gpu the node says to have. There are none: pods
// that ask for them run, and see no device.
func (n *Node) GPUs(t testing.TB, count int) {
	t.Helper()
	n.options.GPUs = count
	n.must(t, n.describe)
}

// Run runs a command on the node, in its namespaces, and returns its output.
func (n *Node) Run(t testing.TB, args ...string) string {
	t.Helper()
	var out string
	n.must(t, func(ctx context.Context) (err error) {
		out, err = n.machine.run(ctx, args...)
		return err
	})
	return out
}

// LoadImage brings the images of an OCI archive to the node.
func (n *Node) LoadImage(t testing.TB, archive string) {
	t.Helper()
	n.must(t, func(ctx context.Context) error { return n.importImage(ctx, archive) })
}

// TagImage gives an image of the node another name.
func (n *Node) TagImage(t testing.TB, image, name string) {
	t.Helper()
	n.Run(t, "ctr", "-n", "k8s.io", "images", "tag", "--force", image, name)
}

func (n *Node) importImage(ctx context.Context, archive string) error {
	if err := uncovered(archive); err != nil {
		return err
	}
	_, err := n.machine.run(ctx, "ctr", "-n", "k8s.io", "images", "import", archive)
	return err
}

func (n *Node) must(t testing.TB, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Fatal(err)
	}
}
