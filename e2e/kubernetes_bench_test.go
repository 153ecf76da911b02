package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/e2e/cluster"
)

// BenchmarkClusterPods tells how long it takes from a push to all pods
// created, without the time that Git itself takes to fetch it, in the time that
// a program needs which does nothing but create the same pods as fast as the
// server takes them. The two take turns, in namespaces of their own, and who is
// first changes: what is reported are medians. On a machine that others use too,
// processor time tells more than the clock: that of the cluster, of the daemon
// and of the program together, of which a push needs more than the limit.
func BenchmarkClusterPods(b *testing.B) {
	for _, c := range []struct{ jobs, replicas int }{{1, 100}, {1, 500}, {100, 4}} {
		b.Run(fmt.Sprintf("%dx%d", c.jobs, c.replicas), func(b *testing.B) {
			r := race{b: b, c: cluster.Shared(b), jobs: c.jobs, replicas: c.replicas}
			r.pushed() // warms the server up, and shows what is to be created
			r.plain()
			r.pushes, r.fetches, r.limits, r.work = nil, nil, nil, [3][]float64{}
			for i := 0; b.Loop(); i++ {
				sides := []func(){r.pushed, r.plain}
				if i%2 == 1 {
					slices.Reverse(sides)
				}
				for _, side := range sides {
					side()
				}
			}
			r.report()
		})
	}
}

// race is what the two sides have needed, in seconds.
type race struct {
	b                       *testing.B
	c                       *cluster.Cluster
	jobs, replicas          int
	pods                    []corev1.Pod // that a push has made
	pushes, fetches, limits []float64
	work                    [3][]float64 // processor time: of all for a push, for the limit; of the daemon
}

// pushed measures one push, and the work that the daemon had with it.
func (r *race) pushed() {
	const address, secret = "127.0.0.1:18080", "secret"
	w := newOnCluster(r.b, r.c)
	defer r.clear(w)
	w.write("../secret", secret)
	w.push("nothing yet")
	d := w.start(w.flags("--poll", "1h", "--listen", address, "--webhook-secret-file", w.checkout+"/../secret")...)
	defer d.kill()
	w.eventually("the daemon is ready", func() bool { return reachable("http://" + address + "/readyz") })
	created := r.watch(w.namespace)
	mirror := filepath.Join(w.checkout, "..", "mirror")
	w.git("", "clone", "-q", "--mirror", w.remote, mirror)
	for i := range r.jobs {
		name := fmt.Sprintf("j%d", i)
		w.write("jobs/"+name+".yaml", w.simulated(name, r.replicas, "10m", 0, ""))
	}
	w.push("jobs")

	before, all, start := processorTime(strconv.Itoa(d.cmd.Process.Pid)), allTime(r.b), time.Now()
	sendHook(r.b, address, secret)
	created()
	r.pushes = append(r.pushes, time.Since(start).Seconds())
	r.work[0] = append(r.work[0], allTime(r.b)-all)
	r.work[2] = append(r.work[2], processorTime(strconv.Itoa(d.cmd.Process.Pid))-before)
	d.kill()

	start = time.Now()
	w.git(mirror, "fetch", "-q")
	r.fetches = append(r.fetches, time.Since(start).Seconds())
	list, err := r.c.Client().CoreV1().Pods(w.namespace).List(r.b.Context(), metav1.ListOptions{})
	require.NoError(r.b, err)
	require.Len(r.b, list.Items, r.jobs*r.replicas)
	r.pods = list.Items
}

// plain measures the limit, with copies of the pods.
func (r *race) plain() {
	w := newOnCluster(r.b, r.c)
	defer r.clear(w)
	created := r.watch(w.namespace)
	pods := r.c.Client().CoreV1().Pods(w.namespace)
	all, start := allTime(r.b), time.Now()
	var group sync.WaitGroup
	todo := make(chan *corev1.Pod)
	for range 32 {
		group.Go(func() {
			for pod := range todo {
				if _, err := pods.Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
					r.b.Error(err)
				}
			}
		})
	}
	for i := range r.pods {
		p := &r.pods[i]
		copied := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: w.namespace, Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
		copied.Spec.NodeName = ""
		todo <- copied
	}
	close(todo)
	group.Wait()
	created()
	r.limits = append(r.limits, time.Since(start).Seconds())
	r.work[1] = append(r.work[1], allTime(r.b)-all)
}

// watch looks at a namespace; what it returns waits for all pods.
func (r *race) watch(namespace string) (created func()) {
	client, err := metadata.NewForConfig(r.c.Config())
	require.NoError(r.b, err)
	ctx, stop := context.WithCancel(r.b.Context())
	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("pods"), namespace, 0, nil, nil).Informer()
	seen := make(chan struct{}, r.jobs*r.replicas)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen <- struct{}{} }})
	require.NoError(r.b, err)
	var done sync.WaitGroup
	done.Go(func() { informer.RunWithContext(ctx) })
	require.True(r.b, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	return func() {
		defer done.Wait()
		defer stop()
		for range r.jobs * r.replicas {
			<-seen
		}
	}
}

// clear removes what a side has made, so that the next one finds the cluster
// as this one did.
func (r *race) clear(w *onCluster) {
	core := r.c.Client().CoreV1()
	list, err := core.Pods(w.namespace).List(r.b.Context(), metav1.ListOptions{})
	require.NoError(r.b, err)
	for i := range list.Items {
		_, err := core.Pods(w.namespace).Patch(r.b.Context(), list.Items[i].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(r.b, err)
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	require.NoError(r.b, core.Pods(w.namespace).DeleteCollection(r.b.Context(), now, metav1.ListOptions{}))
	require.NoError(r.b, core.ConfigMaps(w.namespace).DeleteCollection(r.b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.eventually("nothing is left", func() bool {
		pods, perr := core.Pods(w.namespace).List(r.b.Context(), metav1.ListOptions{})
		services, serr := core.Services(w.namespace).List(r.b.Context(), metav1.ListOptions{})
		return perr == nil && serr == nil && len(pods.Items)+len(services.Items) == 0
	})
}

// report tells the medians, and between what the ratios lay.
func (r *race) report() {
	ratios := make([]float64, len(r.pushes))
	for i := range ratios {
		ratios[i] = (r.pushes[i] - r.fetches[i]) / r.limits[i]
	}
	r.b.ReportMetric(median(r.pushes), "s/push")
	r.b.ReportMetric(median(r.fetches), "s/fetch")
	r.b.ReportMetric(median(r.limits), "s/limit")
	r.b.ReportMetric(median(r.work[0])/median(r.work[1]), "cpu-ratio")
	r.b.ReportMetric(median(r.work[2]), "cpu-s/daemon")
	r.b.ReportMetric(median(ratios), "ratio")
	r.b.ReportMetric(slices.Min(ratios), "ratio-least")
	r.b.ReportMetric(slices.Max(ratios), "ratio-most")
	load, _ := os.ReadFile("/proc/loadavg")
	r.b.Logf("pushes %.2f, limits %.2f s; processor time %.2f and %.2f s, of the daemon %.2f s; load of the machine: %s",
		r.pushes, r.limits, r.work[0], r.work[1], r.work[2], strings.TrimSpace(string(load)))
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// allTime is what this process, the cluster's and the daemon, which it has all
// started, have used so far.
func allTime(b *testing.B) (sum float64) {
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(b, err)
	own := strconv.Itoa(os.Getpid())
	for _, dir := range all {
		pid := filepath.Base(dir)
		if fields := stat(pid); pid == own || len(fields) > 1 && fields[1] == own {
			sum += processorTime(pid)
		}
	}
	return sum
}

// stat is what the kernel tells of a process, behind its name; nil when it has ended.
func stat(pid string) []string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

// processorTime is what a process has used so far, in seconds.
func processorTime(pid string) (sum float64) {
	const own, kernel = 11, 12 // its own code, and the kernel for it
	fields := stat(pid)
	if len(fields) <= kernel {
		return 0
	}
	for _, f := range []string{fields[own], fields[kernel]} {
		ticks, _ := strconv.ParseFloat(f, 64)
		sum += ticks / 100 // a second, on all of Linux's machines
	}
	return sum
}
