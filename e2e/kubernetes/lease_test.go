package kubernetes

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/e2e/cluster"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

// candidate is a daemon as far as the lease is concerned.
type candidate struct {
	*kubernetes.Lease
	stop  context.CancelFunc
	done  chan error
	leads atomic.Bool
	terms atomic.Int32
	ended atomic.Int64 // when its last term did, in Unix nanoseconds
}

// together counts who leads at a time, and remembers the most.
type together struct {
	mu        sync.Mutex
	now, most int
}

func (s *together) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
}

func stand(t *testing.T, config *rest.Config, namespace string, all *together) *candidate {
	lease, err := kubernetes.NewLease(kubernetes.LeaseOptions{Config: config, Namespace: namespace, Environment: "prod", Log: zerolog.Nop()})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{Lease: lease, stop: stop, done: make(chan error, 1)}
	go func() {
		c.done <- lease.Hold(ctx, func(term context.Context) error {
			all.add(1)
			c.terms.Add(1)
			c.leads.Store(true)
			select {
			case <-ctx.Done():
			case <-term.Done():
			}
			c.leads.Store(false)
			c.ended.Store(time.Now().UnixNano())
			all.add(-1)
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		<-c.done
	})
	return c
}

func (c *candidate) finish(t *testing.T) {
	c.stop()
	require.NoError(t, <-c.done)
	c.done <- nil
}

// TestLeaseHandOver: one leads, and who ends gives the lease to the next.
func TestLeaseHandOver(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace, all := c.Namespace(t), &together{}
	first := stand(t, c.Config(), namespace, all)
	eventually(t, "the first leads", first.leads.Load)
	second := stand(t, c.Config(), namespace, all)
	eventually(t, "the second knows who leads", func() bool { return second.Leader() != "" })
	assert.Equal(t, first.Leader(), second.Leader())
	require.NoError(t, second.Healthy())
	lease, err := c.Client().CoordinationV1().Leases(namespace).Get(t.Context(), "trainyard-prod", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, first.Leader(), *lease.Spec.HolderIdentity)
	assert.EqualValues(t, 15, *lease.Spec.LeaseDurationSeconds)

	held := *lease.Spec.HolderIdentity
	first.finish(t)
	lease, err = c.Client().CoordinationV1().Leases(namespace).Get(t.Context(), "trainyard-prod", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEqual(t, held, *lease.Spec.HolderIdentity, "the second does not wait for the end of the lease")
	eventually(t, "the second leads", second.leads.Load)
	second.finish(t)
	lease, err = c.Client().CoordinationV1().Leases(namespace).Get(t.Context(), "trainyard-prod", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, *lease.Spec.HolderIdentity, "it was given back")
	assert.Equal(t, 1, all.most, "never two at once")
}

// TestLeaseLost: who cannot reach the server stops before another one leads,
// stands again, and leads when it can.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace, all := c.Namespace(t), &together{}
	config, cut := through(t, c.Config())
	first := stand(t, config, namespace, all)
	eventually(t, "the first leads", first.leads.Load)
	second := stand(t, c.Config(), namespace, all)
	eventually(t, "the second knows who leads", func() bool { return second.Leader() != "" })

	cut.Store(true)
	start := time.Now()
	eventually(t, "the first does not lead any more", func() bool { return !first.leads.Load() })
	require.Error(t, first.Healthy())
	eventually(t, "the second leads", second.leads.Load)
	t.Logf("the first stopped after %s, the second led after %s", time.Unix(0, first.ended.Load()).Sub(start), time.Since(start))
	assert.GreaterOrEqual(t, time.Since(start), 10*time.Second, "not before the lease has run out")

	cut.Store(false)
	eventually(t, "the first stands by", func() bool { return first.Healthy() == nil && first.Leader() == second.Leader() })
	assert.False(t, first.leads.Load())
	second.finish(t)
	eventually(t, "the first leads again", first.leads.Load)
	assert.EqualValues(t, 2, first.terms.Load())
	assert.Equal(t, 1, all.most, "never two at once")
}

// TestLeaseForbidden: what the server says is told; who runs once does not wait.
func TestLeaseForbidden(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	nobody := c.As(t, "nobody")
	never := func(context.Context) error { t.Error("leads"); return nil }
	once, err := kubernetes.NewLease(kubernetes.LeaseOptions{Config: nobody, Namespace: namespace, Environment: "prod", Once: true})
	require.NoError(t, err)
	err = once.Hold(t.Context(), never)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "lease "+namespace+"/trainyard-prod cannot be had: ")

	c2 := stand(t, nobody, namespace, &together{})
	eventually(t, "it is told", func() bool { return apierrors.IsForbidden(c2.Healthy()) })
	assert.Empty(t, c2.Leader())
	_, err = kubernetes.NewLease(kubernetes.LeaseOptions{Config: nobody, Namespace: namespace, Environment: "Prod_1"})
	require.ErrorContains(t, err, "lease trainyard-Prod_1: ")
}

// through is a config that reaches the server through a line that can be cut:
// then nothing is answered any more, and no connection is closed.
func through(t *testing.T, config *rest.Config) (*rest.Config, *atomic.Bool) {
	server, err := url.Parse(config.Host)
	require.NoError(t, err)
	line, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var cut atomic.Bool
	var conns sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	conns.Go(func() {
		for {
			in, err := line.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server.Host)
			if err != nil {
				in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			conns.Go(func() { forward(in, out, &cut) })
			conns.Go(func() { forward(out, in, &cut) })
		}
	})
	t.Cleanup(func() {
		stop()
		line.Close()
		conns.Wait()
	})
	config = rest.CopyConfig(config)
	config.Host = "https://" + line.Addr().String()
	if config.ServerName == "" {
		config.ServerName = server.Hostname()
	}
	return config, &cut
}

func forward(to io.WriteCloser, from io.Reader, cut *atomic.Bool) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if cut.Load() {
			continue // lost
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
