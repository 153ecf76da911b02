package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/e2e/cluster"
)

// containerMemory is the limit of the daemon's container in deploy, and
// memoryGoal what it tells the runtime there.
const (
	containerMemory = 512 << 20
	memoryGoal      = "GOMEMLIMIT=440MiB"
)

// BenchmarkClusterMemory is the most memory that a daemon has held while
// 10,000 pods of its jobs started in several namespaces. It is confined as in
// its container, where that is possible, and fails when it does not fit.
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
		w.env = append(w.env, memoryGoal)
		enter := container(b)
		d := w.start(w.flags("--namespaces", strings.Join(served, ","))...)
		enter(d.cmd.Process.Pid)
		// The daemon's records know all pods, and most run: simulated nodes lag behind.
		known := func() (pods, running int) {
			for _, n := range served {
				for i := range jobs {
					rec, ok := w.record(fmt.Sprintf("%s/j%d", n, i))
					if !ok || len(rec.Roles) == 0 {
						continue
					}
					running += int(rec.Roles[0].Running)
					for _, task := range rec.Roles[0].Tasks {
						if len(task.Attempts) > 0 && task.Attempts[0].UID != "" {
							pods++
						}
					}
				}
			}
			return pods, running
		}
		const all = namespaces * jobs * replicas
		require.Eventually(b, func() bool {
			require.Empty(b, d.done, "the daemon has ended")
			pods, running := known()
			return pods == all && running >= all*9/10
		}, 25*time.Minute, 5*time.Second)
		most := highWater(b, d.cmd.Process.Pid)
		require.Less(b, most, float64(containerMemory>>20), "MiB")
		b.ReportMetric(most, "MiB")
		b.ReportMetric(processorTime(strconv.Itoa(d.cmd.Process.Pid)), "cpu-s/daemon")
	}
}

// container makes a control group, of either version, that has no more memory
// than the daemon's container, and returns how a process is put into it. Who may
// make none measures without. It goes after the processes that are started later.
func container(b *testing.B) (enter func(pid int)) {
	name := fmt.Sprintf("trainyard-bench-%d", os.Getpid())
	for _, v := range []struct{ root, limit string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(v.root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		b.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.limit), []byte(strconv.Itoa(containerMemory)), 0) == nil {
			return func(pid int) {
				require.NoError(b, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
				b.Logf("confined to %d MiB by %s", containerMemory>>20, filepath.Join(dir, v.limit))
			}
		}
	}
	return func(int) { b.Log("not confined: no control group can be made") }
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
