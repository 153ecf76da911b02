package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// another starts a daemon with a state directory of its own, which is empty.
func (w *onCluster) another(more ...string) *daemon {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "state")
	return w.start(append(more, "--state-dir", dir, "--listen", "127.0.0.1:0")...)
}

// unleased are the flags of a daemon that leads without a lease.
func (w *onCluster) unleased(more ...string) []string {
	return append([]string{"--runner", "kubernetes", "--kubeconfig", w.c.Kubeconfig(), "--namespaces", w.namespace, "--no-lease"}, more...)
}

// address is where a daemon listens.
func (w *onCluster) address(d *daemon) (address string) {
	w.t.Helper()
	w.eventually("it listens", func() bool {
		_, rest, ok := strings.Cut(d.out.String(), "listening on http://")
		if ok {
			address = "http://" + strings.Fields(rest)[0]
		}
		return ok
	})
	return address
}

// lease is that of the environment, as it is now.
func (w *onCluster) lease() coordinationv1.LeaseSpec {
	w.t.Helper()
	lease, err := w.c.Client().CoordinationV1().Leases(w.namespace).Get(w.t.Context(), "trainyard-default", metav1.GetOptions{})
	require.NoError(w.t, err)
	return lease.Spec
}

// leads waits until a daemon does.
func (w *onCluster) leads(d *daemon) {
	w.t.Helper()
	w.eventually("it leads", func() bool { return strings.Contains(d.out.String(), "this daemon leads") })
}

// TestClusterDaemonsTakeTurns: of two daemons one leads; when it is killed the
// other takes over with nothing but the remote and the cluster to know from.
func TestClusterDaemonsTakeTurns(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	w.write("jobs/job.yaml", w.simulated("job", 2, forEver, 0, ""))
	w.push("a job")
	first := w.another(w.flags()...)
	w.leads(first)
	w.eventually("the job runs", func() bool { rec, _ := w.clusterRecord("job"); return rec.Phase == repo.PhaseRunning })
	second := w.another(w.flags()...)
	address := w.address(second)
	w.eventually("the second stands by", func() bool { return strings.HasPrefix(body(t, address+"/readyz"), "ok: stands by, ") })
	require.Contains(t, body(t, address+"/metrics"), "trainyard_leader 0\n")
	require.Equal(t, "ok\n", body(t, address+"/healthz"))

	first.kill()
	killed, last := time.Now(), w.lease()
	for i := range 2 {
		pod := w.untilPod("a pod", "job", func(p *corev1.Pod) bool { return strings.HasSuffix(p.Name, fmt.Sprintf("worker-%d-0-0", i)) })
		w.c.Finish(t, w.namespace, pod.Name, 0)
	}
	w.leads(second)
	t.Logf("the second leads %s after the first was killed", time.Since(killed).Round(time.Millisecond))
	taken := w.lease()
	require.NotEqual(t, last.HolderIdentity, taken.HolderIdentity)
	assert.GreaterOrEqual(t, taken.AcquireTime.Sub(last.RenewTime.Time), leaseTime, "not before the first can lead no more")
	w.untilRecord("the second records the end", "job", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	require.Contains(t, body(t, address+"/metrics"), "trainyard_leader 1\n")
	require.Equal(t, "ok\n", body(t, address+"/readyz"))

	third := w.another(w.flags()...)
	w.eventually("the third stands by", func() bool { return strings.Contains(third.out.String(), "this daemon stands by") })
	held := w.lease()
	asked := time.Now()
	require.NoError(t, second.end(t, syscall.SIGTERM))
	require.NotEqual(t, held.HolderIdentity, w.lease().HolderIdentity, "the lease was given back")
	w.leads(third)
	t.Logf("the third leads %s after the second was asked to end", time.Since(asked).Round(time.Millisecond))

	w.write("jobs/next.yaml", w.simulated("next", 1, "1s", 0, ""))
	w.push("another job")
	w.untilRecord("the third runs the next job", "next", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	names, pods := seen.count()
	assert.Equal(t, 3, names, "the finished job has not run again")
	assert.Equal(t, 3, pods)
	require.NotContains(t, first.out.String()+second.out.String()+third.out.String(), "another daemon writes")
}

// TestClusterOnce: a daemon with nothing but a new directory runs all to its
// end, gives back the lease, and finds nothing to do the next time.
func TestClusterOnce(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	w.write("jobs/good.yaml", w.simulated("good", 2, "1s", 0, ""))
	w.push("a job")
	for range 2 {
		w.state = filepath.Join(t.TempDir(), "state")
		code, out := w.once(w.flags()...)
		require.Equal(t, 0, code, out)
	}
	_, pods := seen.count()
	require.Equal(t, 2, pods)
	w.write("jobs/bad.yaml", w.simulated("bad", 1, "1s", 3, "  retry: {limit: 0}\n"))
	w.push("a bad job")
	code, out := w.once(w.unleased()...)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "1 of 2 jobs failed: "+w.namespace+"/bad: Failed")
}

// TestClusterTwoDaemonsWithoutLease: that is a mistake, and harms no job.
func TestClusterTwoDaemonsWithoutLease(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	var jobs []string
	for i := range 20 {
		name := fmt.Sprintf("j%d", i)
		jobs = append(jobs, name)
		w.write("jobs/"+name+".yaml", w.simulated(name, 2, "1s", 0, ""))
	}
	w.push("jobs")
	one, two := w.another(w.unleased()...), w.another(w.unleased()...)
	w.eventually("all succeed", func() bool { return w.phases(jobs)[repo.PhaseSucceeded] == len(jobs) })
	names, pods := seen.count()
	assert.Equal(t, 40, names)
	assert.Equal(t, 40, pods)
	for _, d := range []*daemon{one, two} {
		t.Logf("read again %d times", strings.Count(d.out.String(), "all records are read again"))
	}
	for _, j := range jobs {
		rec, _ := w.clusterRecord(j)
		for _, task := range rec.Roles[0].Tasks {
			require.Len(t, task.Attempts, 1, "%s %s", j, task.Name)
		}
	}
}

// TestClusterDaemonWithoutServer: while the API server is away for longer than
// the lease, the daemon lives and says so; then it goes on.
func TestClusterDaemonWithoutServer(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Start(t, cluster.Options{Nodes: 1}))
	seen := w.watchBirths()
	w.write("jobs/job.yaml", w.simulated("job", 1, "3s", 0, ""))
	w.push("a job")
	d := w.another(w.flags()...)
	address := w.address(d)
	w.eventually("the job runs", func() bool { rec, _ := w.clusterRecord("job"); return rec.Phase == repo.PhaseRunning })
	w.c.Kill(t, "kube-apiserver")
	w.eventually("it does not lead any more", func() bool { return strings.Contains(body(t, address+"/metrics"), "trainyard_leader 0\n") })
	require.Contains(t, body(t, address+"/metrics"), "trainyard_backend_up 0\n")
	require.Equal(t, "ok\n", body(t, address+"/healthz"))
	require.Regexp(t, "^ok: stands by; revision .* is read: .*; who leads is not known at present: ", body(t, address+"/readyz"))
	w.c.Restart(t, "kube-apiserver")
	w.untilRecord("it goes on", "job", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	require.Contains(t, body(t, address+"/metrics"), "trainyard_backend_up 1\n")
	_, pods := seen.count()
	require.Equal(t, 1, pods)
}

// TestClusterValidates: what the cluster would refuse is told before anything
// starts, with the file and line of the job, and makes nothing.
func TestClusterValidates(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	w.write("jobs/good.yaml", w.simulated("good", 2, "1s", 0, "  gang: true\n"))
	server := []string{"validate", "--server", "--kubeconfig", w.c.Kubeconfig()}
	code, out := w.trainyard(server...)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "jobs/good.yaml:1: gang of "+w.namespace+"/good: none: ")
	w.write("jobs/bad.yaml", "# a comment\n---\n"+strings.Replace(w.simulated("bad", 2, "1s", 0, ""), "terminationGracePeriodSeconds: 1", "priorityClassName: of-nobody", 1))
	w.write("jobs/nowhere.yaml", strings.Replace(w.simulated("nowhere", 1, "1s", 0, ""), "namespace: "+w.namespace, "namespace: is-not-there", 1))
	code, out = w.trainyard(server...)
	require.Equal(t, 1, code, out)
	require.Regexp(t, `jobs/bad.yaml:3: role worker: the cluster refuses a pod of .*/bad: .*no PriorityClass with name of-nobody was found`, out)
	require.Regexp(t, `jobs/nowhere.yaml:1: role worker: the cluster refuses a pod of is-not-there/nowhere: namespaces "is-not-there" not found`, out)
	require.Contains(t, out, "3 jobs, 2 errors, 0 warnings")
	_, pods := seen.count()
	require.Zero(t, pods)

	nobody := w.c.KubeconfigFor(t, w.c.As(t, "nobody"))
	code, out = w.trainyard("validate", "--server", "--kubeconfig", nobody, "jobs/good.yaml")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, `User "nobody" cannot create resource "pods"`)
	code, out = w.trainyard("logs", w.namespace+"/good", "--repo", w.remote, "--runner", "kubernetes", "--kubeconfig", nobody)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, `the cluster does not tell: `)
}

// TestLastPush: what was not pushed yet when the daemon is asked to end is
// pushed then.
func TestLastPush(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	d := w.start("--publish-interval", "1h")
	w.eventually("the first push", func() bool { return w.phase("default/gate") != "" })
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	w.eventually("the job ends", func() bool { return strings.Contains(d.out.String(), "run ended") })
	require.NotEqual(t, repo.PhaseSucceeded, w.phase("default/gate"), "the next push would come in an hour")
	require.NoError(t, d.end(t, syscall.SIGTERM))
	require.Equal(t, repo.PhaseSucceeded, w.phase("default/gate"))
}

// body is what an address answers.
func body(t *testing.T, url string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}
