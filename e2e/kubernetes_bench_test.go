package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
)

// BenchmarkClusterPods tells how long it takes from a push to all pods
// created, in the time that a program needs which does nothing but create the
// same pods as fast as the server takes them.
func BenchmarkClusterPods(b *testing.B) {
	for _, c := range []struct{ jobs, replicas int }{{1, 100}, {1, 500}, {100, 4}} {
		b.Run(fmt.Sprintf("%dx%d", c.jobs, c.replicas), func(b *testing.B) {
			for b.Loop() {
				ours, limit := pushed(b, c.jobs, c.replicas)
				b.ReportMetric(ours.Seconds(), "s/push")
				b.ReportMetric(limit.Seconds(), "s/limit")
				b.ReportMetric(ours.Seconds()/limit.Seconds(), "ratio")
			}
		})
	}
}

// pushed measures one push, and then the limit with copies of its pods.
func pushed(b *testing.B, jobs, replicas int) (ours, limit time.Duration) {
	const address, secret = "127.0.0.1:18080", "secret"
	w := newOnCluster(b, cluster.Shared(b))
	w.write("../secret", secret)
	w.push("nothing yet")
	seen := w.watchBirths()
	d := w.start(w.flags("--poll", "1h", "--listen", address, "--webhook-secret-file", w.checkout+"/../secret")...)
	defer d.kill()
	w.eventually("the daemon is ready", func() bool { return reachable("http://" + address + "/readyz") })
	for i := range jobs {
		name := fmt.Sprintf("j%d", i)
		w.write("jobs/"+name+".yaml", w.simulated(name, replicas, "10m", 0, ""))
	}
	w.push("jobs")
	start := time.Now()
	sendHook(b, address, secret)
	seen.wait(jobs * replicas)
	ours = time.Since(start)
	d.kill()

	list, err := w.c.Client().CoreV1().Pods(w.namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(b, err)
	plain := newOnCluster(b, w.c)
	start = time.Now()
	var group sync.WaitGroup
	todo := make(chan *corev1.Pod)
	for range 32 {
		group.Go(func() {
			for pod := range todo {
				_, err := plain.c.Client().CoreV1().Pods(plain.namespace).Create(context.Background(), pod, metav1.CreateOptions{})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range list.Items {
		p := &list.Items[i]
		copied := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: plain.namespace, Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
		copied.Spec.NodeName = ""
		todo <- copied
	}
	close(todo)
	group.Wait()
	return ours, time.Since(start)
}

// BenchmarkClusterMemory is the most memory that a daemon has held while
// 10,000 pods of its jobs started in several namespaces.
func BenchmarkClusterMemory(b *testing.B) {
	const namespaces, jobs, replicas = 5, 20, 100
	for b.Loop() {
		c := cluster.Start(b, cluster.Options{Nodes: 60})
		w := newOnCluster(b, c)
		served := []string{w.namespace}
		for n := range namespaces {
			if n > 0 {
				served = append(served, c.Namespace(b))
			}
			for i := range jobs {
				name := fmt.Sprintf("j%d", i)
				text := strings.Replace(w.simulated(name, replicas, forEver, 0, ""), "namespace: "+w.namespace, "namespace: "+served[n], 1)
				w.write(fmt.Sprintf("jobs/%s/%s.yaml", served[n], name), text)
			}
		}
		w.push("ten thousand pods")
		d := w.start(w.flags("--namespaces", strings.Join(served, ","))...)
		running := func() (tasks int) {
			for _, n := range served {
				for i := range jobs {
					if rec, ok := w.record(fmt.Sprintf("%s/j%d", n, i)); ok && len(rec.Roles) > 0 {
						tasks += int(rec.Roles[0].Running)
					}
				}
			}
			return tasks
		}
		require.Eventually(b, func() bool { return running() == namespaces*jobs*replicas }, 10*time.Minute, 5*time.Second)
		b.ReportMetric(highWater(b, d.cmd.Process.Pid), "MiB")
	}
}

// highWater is the most memory that a process has held, in MiB.
func highWater(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	require.NoError(b, err)
	return kib / 1024
}
