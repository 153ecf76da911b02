package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// untilPod waits for the pod of a task attempt to be as ok says.
func (w *onCluster) untilPod(what string, job string, ok func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	var found *corev1.Pod
	w.eventually(what, func() bool {
		list, err := w.c.Client().CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: repo.LabelJob + "=" + job})
		if err != nil {
			return false
		}
		for i := range list.Items {
			if ok(&list.Items[i]) {
				found = &list.Items[i]
				return true
			}
		}
		return false
	})
	return found
}

// untilRecord waits for a job's record to be as ok says.
func (w *onCluster) untilRecord(what, job string, ok func(repo.Record) bool) (rec repo.Record) {
	w.t.Helper()
	w.eventually(what, func() bool {
		var there bool
		rec, there = w.clusterRecord(job)
		return there && ok(rec)
	})
	return rec
}

func attempt(n string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p.Labels[repo.LabelAttempt] == n && p.Status.Phase == corev1.PodRunning
	}
}

// forEver is a run-for that no test waits for.
const forEver = "10h"

func TestClusterDeletedByHand(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	w.write("jobs/job.yaml", w.simulated("job", 1, forEver, 0, "  retry: {limit: 0}\n"))
	w.push("a job")
	w.start(w.flags()...)
	first := w.untilPod("the pod runs", "job", attempt("0"))
	require.NoError(t, w.c.Client().CoreV1().Pods(w.namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	second := w.untilPod("the next attempt runs", "job", attempt("1"))
	w.c.Finish(t, w.namespace, second.Name, 0)
	rec := w.untilRecord("it succeeds", "job", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	attempts := rec.Roles[0].Tasks[0].Attempts
	require.Len(t, attempts, 2)
	assert.Equal(t, repo.Transient, attempts[0].Class)
	assert.True(t, attempts[0].Free, "nobody's budget is used up")
	assert.EqualValues(t, 1, rec.Roles[0].Tasks[0].Retries.Total)
	assert.EqualValues(t, 0, rec.Roles[0].Tasks[0].Retries.Accountable)
}

// TestClusterRefusals: what the API server refuses is told in the record, in
// its own words, and harms no other job.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	core := w.c.Client().CoreV1()
	_, err := core.ResourceQuotas(w.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.eventually("the quota is counted", func() bool {
		q, err := core.ResourceQuotas(w.namespace).Get(t.Context(), "gpus", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	limits := "resources: {limits: {nvidia.com/gpu: 1}}, command"
	w.write("jobs/quota.yaml", strings.Replace(w.simulated("quota", 3, forEver, 0, ""), "command", limits, 1))
	w.write("jobs/good.yaml", w.simulated("good", 2, "1s", 0, ""))
	w.write("jobs/priority.yaml", strings.Replace(w.simulated("priority", 2, "1s", 0, ""), "terminationGracePeriodSeconds: 1", "priorityClassName: of-nobody", 1))
	w.write("jobs/elsewhere.yaml", strings.Replace(w.simulated("elsewhere", 1, "1s", 0, ""), "namespace: "+w.namespace, "namespace: kube-system", 1))
	w.push("jobs")
	w.start(w.flags()...)

	refused := w.untilRecord("a priority class is missing", "priority", func(r repo.Record) bool { return r.Phase == repo.PhaseFailed })
	assert.Contains(t, refused.Message+refused.Run.Outcome.Message, "no PriorityClass with name of-nobody was found")
	w.untilRecord("the good one succeeds", "good", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	w.untilRecord("the quota is told", "quota", func(r repo.Record) bool {
		for _, task := range r.Roles[0].Tasks {
			for _, a := range task.Attempts {
				if strings.Contains(a.Waiting, "exceeded quota: gpus") {
					return true
				}
			}
		}
		return false
	})
	w.eventually("another namespace is told", func() bool {
		rec, ok := w.record("kube-system/elsewhere")
		return ok && rec.Phase != repo.PhaseSucceeded && strings.Contains(rec.Message, "kube-system")
	})

	// More is allowed: what waited goes on by itself.
	_, err = core.ResourceQuotas(w.namespace).Patch(t.Context(), "gpus", types.MergePatchType, []byte(`{"spec":{"hard":{"requests.nvidia.com/gpu":"3"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.untilRecord("all of it runs", "quota", func(r repo.Record) bool { return r.Roles[0].Running == 3 })
}

// TestClusterServerAway: the API server and its store are killed while jobs
// start, run and end. That costs time only.
func TestClusterServerAway(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Nodes: 4})
	w := newOnCluster(t, c)
	seen := w.watchBirths()
	var jobs []string
	for i := range 20 {
		name := "j" + string(rune('a'+i))
		jobs = append(jobs, name)
		w.write("jobs/"+name+".yaml", w.simulated(name, 4, "2s", 0, ""))
	}
	w.push("jobs")
	d := w.start(w.flags()...)
	w.eventually("some pods are there", func() bool { n, _ := seen.count(); return n >= 20 })
	c.Kill(t, "kube-apiserver")
	c.Restart(t, "kube-apiserver")
	w.eventually("more pods are there", func() bool { n, _ := seen.count(); return n >= 40 })
	c.Kill(t, "etcd")
	c.Restart(t, "etcd")
	w.eventually("all jobs succeed", func() bool { return w.phases(jobs)[repo.PhaseSucceeded] == len(jobs) })
	names, pods := seen.count()
	assert.Equal(t, 80, names)
	assert.Equal(t, 80, pods)
	assert.NotContains(t, d.out.String(), "panic")
}

// TestClusterServerSilent: while the server is away the daemon says so, once,
// and what is pushed meanwhile starts afterwards.
func TestClusterServerSilent(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	w := newOnCluster(t, c)
	w.write("jobs/first.yaml", w.simulated("first", 1, forEver, 0, ""))
	w.push("a job")
	daemons := map[string]*daemon{"alone": w.start(w.unleased("--listen", "127.0.0.1:0")...)}
	w.untilPod("it runs", "first", attempt("0"))
	metrics := w.address(daemons["alone"]) + "/metrics"
	healthy := func() bool { return strings.Contains(body(t, metrics), "\ntrainyard_backend_up 1\n") }
	require.True(t, healthy())
	c.Kill(t, "kube-apiserver")
	w.eventually("the daemon says so", func() bool { return !healthy() })
	daemons["leased"] = w.another(append(w.flags(), "--env", "other")...)
	var jobs []string
	for i := range 20 {
		jobs = append(jobs, fmt.Sprintf("j%d", i))
		w.write("jobs/"+jobs[i]+".yaml", w.simulated(jobs[i], 1, "1s", 0, ""))
	}
	w.push("more jobs")
	w.eventually("a job waits", func() bool { return strings.Contains(daemons["alone"].out.String(), "job waits") })
	w.eventually("the lease is tried for", func() bool { return strings.Contains(daemons["leased"].out.String(), "cannot be had") })
	for what, d := range daemons {
		out := d.out.String()
		assert.Equal(t, 1, strings.Count(out, "cannot be watched")+strings.Count(out, "cannot be had"), "%s: %s", what, out)
		assert.LessOrEqual(t, strings.Count(out, "job waits"), 2, "%s: %s", what, out)
	}
	c.Restart(t, "kube-apiserver")
	w.eventually("all succeed", func() bool { return w.phases(jobs)[repo.PhaseSucceeded] == len(jobs) })
	w.eventually("the daemon is well again", healthy)
}

// TestClusterNodeLost: the pods of a node that does not answer are given up
// when the node is known to have ended them, or when the job allows overlap.
func TestClusterNodeLost(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Nodes: 3, NodeGrace: 10 * time.Second})
	w := newOnCluster(t, c)
	impatient := `tolerations:
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        terminationGracePeriodSeconds: 1`
	patient := strings.Replace(w.simulated("patient", 1, forEver, 0, "  retry: {limit: 0}\n"), "terminationGracePeriodSeconds: 1", impatient, 1)
	w.write("jobs/patient.yaml", patient)
	overlap := strings.Replace(patient, "{name: patient", "{name: overlap", 1)
	w.write("jobs/overlap.yaml", strings.Replace(overlap, "    replicas: 1\n", "    replicas: 1\n    forceDeleteAfter: 3s\n", 1))
	w.push("jobs")
	w.start(w.flags()...)
	lost := map[string]*corev1.Pod{}
	for _, job := range []string{"patient", "overlap"} {
		lost[job] = w.untilPod(job+" runs", job, attempt("0"))
	}
	for _, pod := range lost {
		c.SetNode(t, pod.Spec.NodeName, false)
	}
	w.untilPod("the one that may overlap runs again", "overlap", attempt("1"))
	w.untilRecord("the other one says what it waits for", "patient", func(r repo.Record) bool {
		return strings.Contains(r.Roles[0].Tasks[0].Attempts[0].Waiting, lost["patient"].Spec.NodeName)
	})
	rec, _ := w.clusterRecord("patient")
	require.Len(t, rec.Roles[0].Tasks[0].Attempts, 1, "nobody knows that the first one is dead")
	c.SetNode(t, lost["patient"].Spec.NodeName, true)
	w.untilPod("the patient one runs again", "patient", attempt("1"))
	for _, job := range []string{"patient", "overlap"} {
		rec := w.untilRecord(job+" is told", job, func(r repo.Record) bool { return len(r.Roles[0].Tasks[0].Attempts) == 2 })
		assert.EqualValues(t, 0, rec.Roles[0].Tasks[0].Retries.Accountable, "%s: %+v", job, rec.Roles[0].Tasks[0].Attempts[0])
		require.NotNil(t, rec.Roles[0].Tasks[0].Attempts[0].Outcome)
	}
}

// TestClusterFormats runs the example of every format, unchanged but for the
// overlay of an environment: simulated pods run for a moment and succeed.
func TestClusterFormats(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	w.copyExample("formats")
	_, err := w.c.Client().CoreV1().ServiceAccounts(w.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mpijob-launcher"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.write("overlays/default/kustomization.yaml", `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
namespace: `+w.namespace+`
patches:
- target: {kind: Pod}
  patch: |-
    apiVersion: v1
    kind: Pod
    metadata:
      name: any
      annotations: {simulate.trainyard.dev/exit-code: "0", simulate.trainyard.dev/run-for: 2s}
`)
	w.push("every format")
	code, out := w.once(w.flags()...)
	require.Equal(t, 0, code, out)
	files, err := filepath.Glob(filepath.Join(w.checkout, "jobs", "*.yaml"))
	require.NoError(t, err)
	for _, f := range files {
		job := strings.TrimSuffix(filepath.Base(f), ".yaml")
		if job == "trainingjob" {
			job = "own-format"
		}
		rec, ok := w.clusterRecord(job)
		require.True(t, ok, job)
		assert.Equal(t, repo.PhaseSucceeded, rec.Phase, "%s: %s", job, rec.Message)
	}

	// With the file all goes that was made for it.
	w.write("trainyard.yaml", "removal: {maxShare: 1}\n")
	for _, f := range files[1:] {
		require.NoError(t, os.Remove(f))
	}
	w.push("one is enough")
	w.start(w.flags()...)
	left := metav1.ListOptions{LabelSelector: repo.LabelJob + "," + repo.LabelJob + "!=" + strings.TrimSuffix(filepath.Base(files[0]), ".yaml")}
	w.eventually("nothing else is left", func() bool {
		pods, err := w.c.Client().CoreV1().Pods(w.namespace).List(t.Context(), left)
		services, serr := w.c.Client().CoreV1().Services(w.namespace).List(t.Context(), left)
		maps, merr := w.c.Client().CoreV1().ConfigMaps(w.namespace).List(t.Context(), left)
		return err == nil && serr == nil && merr == nil && len(pods.Items)+len(services.Items)+len(maps.Items) == 0
	})
}
