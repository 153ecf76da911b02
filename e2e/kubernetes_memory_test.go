package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/e2e/cluster"
)

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
