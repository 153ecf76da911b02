package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// hooked are flags of a daemon that finds nothing but by a webhook.
func hooked(t *testing.T) []string {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	return []string{"--poll", "1h", "--webhook-secret-file", secret}
}

// called sends a daemon a webhook.
func called(t *testing.T, address string) {
	require.Equal(t, 202, sendHook(t, strings.TrimPrefix(address, "http://"), "s3cret"))
}

// TestClusterReadsWithoutServer: what is pushed while the API server is away,
// and nobody can lead, is read meanwhile, and starts as soon as it is back.
func TestClusterReadsWithoutServer(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Start(t, cluster.Options{Nodes: 1}))
	w.write("jobs/early.yaml", w.simulated("early", 1, forEver, 0, ""))
	w.push("a job")
	d := w.another(append(w.flags(), hooked(t)...)...)
	address := w.address(d)
	w.untilPod("the job runs", "early", attempt("0"))
	w.c.Kill(t, "kube-apiserver")
	killed, before := time.Now(), d.out.String()
	w.eventually("it does not lead any more", func() bool { return strings.Contains(body(t, address+"/metrics"), "trainyard_leader 0\n") })
	w.write("jobs/late.yaml", w.simulated("late", 3, forEver, 0, ""))
	w.write("jobs/broken.yaml", strings.Replace(w.simulated("broken", 1, forEver, 0, ""), "replicas:", "replica:", 1))
	w.push("a job, and a mistake")
	called(t, address)
	head, err := w.tryGit(w.checkout, "rev-parse", "HEAD")
	require.NoError(t, err)
	read := "revision " + head[:12] + " is read: jobs 2, invalid 1, other errors 0"
	w.eventually("the push is read", func() bool { return strings.Contains(body(t, address+"/readyz"), read) })
	require.Contains(t, body(t, address+"/readyz"), "ok: stands by; ")
	require.Contains(t, body(t, address+"/metrics"), "trainyard_renders_total 2\n")
	w.eventually("the server is away for longer than a lease", func() bool { return time.Since(killed) > leaseTime+time.Second })
	said := strings.TrimPrefix(d.out.String(), before)
	assert.Equal(t, 1, strings.Count(said, read), said)
	assert.LessOrEqual(t, strings.Count(said, "\n"), 6, said)

	back := time.Now()
	w.c.Restart(t, "kube-apiserver")
	w.eventually("its pods are there", func() bool {
		list, err := w.c.Client().CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: repo.LabelJob + "=late"})
		return err == nil && len(list.Items) == 3
	})
	took := time.Since(back)
	t.Logf("pods %s after the server was started, which was away for %s", took.Round(time.Millisecond), back.Sub(killed).Round(time.Second))
	w.eventually("it leads again", func() bool { return body(t, address+"/readyz") == "ok\n" })
}

// leaseTime is how long a lease lasts that is not renewed.
const leaseTime = 15 * time.Second

// TestClusterHookOfAnother: a webhook that reaches the daemon that stands by is
// told to the one that leads.
func TestClusterHookOfAnother(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	w.write("jobs/first.yaml", w.simulated("first", 1, forEver, 0, ""))
	w.push("a job")
	leads := w.another(append(w.flags(), "--poll", "1h")...)
	w.untilPod("the first runs", "first", attempt("0"))
	standsBy := w.another(append(w.flags(), hooked(t)...)...)
	address := w.address(standsBy)
	w.eventually("it stands by", func() bool { return strings.HasPrefix(body(t, address+"/readyz"), "ok: stands by, ") })
	w.write("jobs/second.yaml", w.simulated("second", 1, forEver, 0, ""))
	w.push("another job")
	called(t, address)
	start := time.Now()
	w.untilPod("the second runs", "second", func(p *corev1.Pod) bool { return p.Labels != nil })
	t.Logf("the pod is there %s after the webhook", time.Since(start).Round(10*time.Millisecond))
	require.Contains(t, body(t, address+"/metrics"), "trainyard_leader 0\n")
	require.Equal(t, 1, strings.Count(leads.out.String(), "this daemon leads"))
}
