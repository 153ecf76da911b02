package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// onCluster is a world whose daemon runs pods in a namespace of a cluster.
type onCluster struct {
	*world
	c         *cluster.Cluster
	namespace string
	real      *realNodes // where pods run, nil: on simulated ones
}

func newOnCluster(t testing.TB, c *cluster.Cluster) *onCluster {
	w := &onCluster{world: newWorld(t), c: c, namespace: c.Namespace(t)}
	t.Cleanup(w.letGo)
	return w
}

// letGo takes our finalizers off what is left, when no daemon does it any more.
// Of a test that has failed it tells what that is.
func (w *onCluster) letGo() {
	pods := w.c.Client().CoreV1().Pods(w.namespace)
	list, err := pods.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return // the cluster has gone first
	}
	for _, p := range list.Items {
		if w.t.Failed() && !slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, p.Status.Phase) {
			rec, _ := w.clusterRecord(p.Labels[repo.LabelJob])
			w.t.Logf("pod %s: %s on %q, deleted at %v, %+v; its job: %s: %s", p.Name, p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp, p.Status.Conditions, rec.Phase, rec.Message)
		}
		_, _ = pods.Patch(context.Background(), p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
}

// flags of a daemon that serves the namespace.
func (w *onCluster) flags(more ...string) []string {
	return append([]string{"--runner", "kubernetes", "--kubeconfig", w.c.Kubeconfig(), "--namespaces", w.namespace, "--lease-namespace", w.namespace}, more...)
}

// simulated is a TrainingJob whose pods run for a while on simulated nodes and
// then exit with a code.
func (w *onCluster) simulated(name string, replicas int, runFor string, code int, spec string) string {
	return fmt.Sprintf(`apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: %s, namespace: %s}
spec:
%s  roles:
  - name: worker
    replicas: %d
    template:
      metadata: {annotations: {simulate.trainyard.dev/exit-code: "%d", simulate.trainyard.dev/run-for: %s}}
      spec:
        terminationGracePeriodSeconds: 1
        containers: [{name: main, image: example/train:1, command: [train]}]
`, name, w.namespace, spec, replicas, code, runFor)
}

// clusterRecord reads the record of a job in the namespace.
func (w *onCluster) clusterRecord(job string) (repo.Record, bool) {
	return w.record(w.namespace + "/" + job)
}

// births remembers every pod that there ever was in the namespace.
type births struct {
	mu   sync.Mutex
	uids map[string][]types.UID // by name
}

// watchBirths begins to look; what it has seen stays when the pods go.
func (w *onCluster) watchBirths() *births {
	b := &births{uids: map[string][]types.UID{}}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactoryWithOptions(w.c.Client(), 0, informers.WithNamespace(w.namespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { b.add(o.(*corev1.Pod)) }, UpdateFunc: func(_, o any) { b.add(o.(*corev1.Pod)) }})
	require.NoError(w.t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	w.t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	return b
}

func (b *births) add(p *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.uids[p.Name], p.UID) {
		b.uids[p.Name] = append(b.uids[p.Name], p.UID)
	}
}

// count is how many names and how many pods there were.
func (b *births) count() (names, pods int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uids := range b.uids {
		pods += len(uids)
	}
	return len(b.uids), pods
}

// phases counts the jobs' records by phase.
func (w *onCluster) phases(jobs []string) map[repo.Phase]int {
	out := map[repo.Phase]int{}
	for _, j := range jobs {
		rec, _ := w.clusterRecord(j)
		out[rec.Phase]++
	}
	return out
}

// TestClusterKilledDaemon: 100 jobs of 4, the daemon killed in the middle of
// creating their pods, twice. Every pod is made once, every job succeeds.
func TestClusterKilledDaemon(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	var jobs []string
	for i := range 100 {
		name := fmt.Sprintf("j%d", i)
		jobs = append(jobs, name)
		w.write("jobs/"+name+".yaml", w.simulated(name, 4, "1s", 0, ""))
	}
	w.push("a hundred jobs")
	for _, at := range []int{200, 300} {
		d := w.start(w.flags()...)
		w.eventually(fmt.Sprintf("%d pods are created", at), func() bool { n, _ := seen.count(); return n >= at })
		d.kill()
	}
	code, out := w.once(w.flags()...)
	require.Equal(t, 0, code, out)
	require.Equal(t, map[repo.Phase]int{repo.PhaseSucceeded: 100}, w.phases(jobs))
	names, pods := seen.count()
	require.Equal(t, 400, names)
	require.Equal(t, 400, pods)
	left, err := w.c.Client().CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, p := range left.Items {
		require.NotContains(t, p.Finalizers, repo.Finalizer, p.Name)
	}
}
