package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of a cluster. The zero value is what Shared has.
type Options struct {
	Nodes     int           // simulated; 4 if 0, none if negative
	GPUs      int           // nvidia.com/gpu of each; 8 if 0
	NodeGrace time.Duration // until a silent node is NotReady; 50 s if 0
	Bare      bool          // no scheduler, no nodes, and of the controllers only those of garbage and of service accounts: the test plays the others
	Audit     bool          // log every request: who, verb, resource
	Gates     string        // feature gates of all of it, "A=true,B=true", and …
	Runtime   string        // … --runtime-config of the API server, for alpha APIs
}

func (o Options) withDefaults() Options {
	switch {
	case o.Bare:
		o.Nodes = 0
	case o.Nodes == 0:
		o.Nodes = 4
	}
	if o.GPUs == 0 {
		o.GPUs = 8
	}
	if o.NodeGrace == 0 {
		o.NodeGrace = 50 * time.Second
	}
	return o
}

// Cluster is a control plane that runs, or one of the user's own.
type Cluster struct {
	config     *rest.Config
	client     kubernetes.Interface
	kubeconfig string
	*own       // nil: it is the user's
}

// own is what a cluster has that we have started.
type own struct {
	options Options
	dir     string
	lock    *os.File // held while dir is in use
	ca      *authority
	parts   []*part
}

// The cluster that the tests of one binary share; guarded by its mutex.
var shared struct {
	sync.Mutex
	asked   bool // Main runs
	given   string
	cluster *Cluster
	failed  error
}

// Variable names a kubeconfig of the user's own cluster, as -cluster does.
const Variable = "TRAINYARD_TEST_CLUSTER"

// Main is what TestMain has to call: it runs the tests, then stops the shared
// cluster. The tests' flag -cluster KUBECONFIG makes Shared use that one.
func Main(m interface{ Run() int }) int {
	flag.StringVar(&shared.given, "cluster", os.Getenv(Variable), "a `kubeconfig`: run the tests on that cluster, not on one of their own")
	shared.asked = true
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster != nil {
		shared.cluster.stop()
	}
	return code
}

// Shared is the cluster of this test binary, started by the first test that asks.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	return share(t, Options{})
}

// SharedBare is Shared with Options.Bare, for a test binary that asks for no other cluster.
func SharedBare(t testing.TB) *Cluster {
	t.Helper()
	skipIfGiven(t)
	return share(t, Options{Bare: true})
}

func share(t testing.TB, o Options) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.asked {
		t.Fatal("cluster.Shared: TestMain has to call cluster.Main")
	}
	if shared.cluster == nil && shared.failed == nil {
		if shared.given != "" {
			shared.cluster, shared.failed = connect(shared.given)
		} else {
			shared.cluster, shared.failed = start(t.Context(), o)
		}
	}
	if shared.failed != nil {
		t.Fatalf("start a cluster: %v", shared.failed)
	}
	return shared.cluster
}

// Start makes a cluster of the test's own, which is stopped at its end.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	skipIfGiven(t)
	c, err := start(t.Context(), o)
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(c.stop)
	return c
}

func skipIfGiven(t testing.TB) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.given != "" {
		t.Skipf("needs a cluster that it may harm: run it without -cluster and %s", Variable)
	}
}

// connect takes a cluster of the user's own.
func connect(kubeconfig string) (*Cluster, error) {
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	return withClient(&Cluster{kubeconfig: path}, cfg)
}

func withClient(c *Cluster, cfg *rest.Config) (*Cluster, error) {
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c.config, c.client = cfg, client
	return c, nil
}

// start builds what is not built, and starts it. When a port was taken by
// somebody else in between, it begins again with others.
func start(ctx context.Context, o Options) (*Cluster, error) {
	program, err := Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	sweep()
	for try := 1; ; try++ {
		c, err := startOnce(ctx, program, o.withDefaults())
		if err == nil {
			return c, nil
		}
		if try == 3 || !errors.Is(err, errPort) {
			return nil, err
		}
	}
}

func startOnce(ctx context.Context, program string, o Options) (_ *Cluster, err error) {
	c := &Cluster{own: &own{options: o}}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.dir, c.lock, err = stateFolder(); err != nil {
		return nil, err
	}
	if err := c.lay(program); err != nil {
		return nil, fmt.Errorf("lay out the cluster: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, err
	}
	if _, err := withClient(c, cfg); err != nil {
		return nil, err
	}
	for _, part := range c.parts[:2] { // etcd, and who waits for it
		if err := part.start(); err != nil {
			return nil, err
		}
	}
	if err := c.ready(ctx, c.parts[:2]...); err != nil {
		return nil, err
	}
	for _, part := range c.parts[2:] {
		if err := part.start(); err != nil {
			return nil, err
		}
	}
	if err := c.ready(ctx, c.parts[2:]...); err != nil {
		return nil, err
	}
	return c, c.addNodes(ctx)
}

// stop ends all that was started, and forgets it. A cluster of the user's own is left alone.
func (c *Cluster) stop() {
	if c.own == nil {
		return
	}
	for _, part := range c.parts {
		part.kill()
	}
	if c.lock != nil {
		_ = os.RemoveAll(c.dir)
		_ = c.lock.Close()
	}
}
