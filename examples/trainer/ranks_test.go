package trainer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is one of a training: how it finds the others, what it wrote and how it ended.
type process struct {
	mode string
	vars []string
	out  bytes.Buffer
	err  error
}

func (p *process) env(pairs ...string) *process {
	p.vars = append(append([]string{}, pairs...), p.vars...)
	return p
}

// runAll runs processes to their end; a server ends when all others have.
func runAll(t *testing.T, all ...*process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var servers, others sync.WaitGroup
	for _, p := range all {
		run := func() {
			c := Config{Env: environment(p.vars...), Steps: 20, Samples: 50, Rate: 1, Out: &p.out}
			if p.err = Run(ctx, p.mode, c); p.err != nil && ctx.Err() == nil {
				cancel() // as a job does when a task fails
			}
		}
		if environment(p.vars...)("DMLC_ROLE") == "server" {
			servers.Go(run)
		} else {
			others.Go(run)
		}
	}
	others.Wait()
	cancel()
	servers.Wait()
}

func ranks(mode string, n int, vars func(rank int) []string) []*process {
	all := make([]*process, n)
	for i := range all {
		all[i] = &process{mode: mode, vars: vars(i)}
	}
	return all
}

func pytorchRanks(t *testing.T) []*process {
	host, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	return ranks("pytorch", 3, func(rank int) []string {
		r := fmt.Sprint(rank)
		return []string{
			"MASTER_ADDR", host, "MASTER_PORT", port, "RANK", r, "WORLD_SIZE", "3",
			"PET_MASTER_ADDR", host, "PET_MASTER_PORT", port, "PET_NODE_RANK", r, "PET_NNODES", "3", "PET_NPROC_PER_NODE", "1",
		}
	})
}

func jaxRanks(t *testing.T) []*process {
	host, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	return ranks("jax", 3, func(rank int) []string {
		return []string{"COORDINATOR_ADDRESS", host, "COORDINATOR_PORT", port, "PROCESS_ID", fmt.Sprint(rank), "NUM_PROCESSES", "3"}
	})
}

func frameworkRanks(t *testing.T) []*process {
	address := freeAddress(t)
	return ranks("framework", 3, func(rank int) []string {
		v := []string{"FB_SERVER_ADDRESSES", address, "FB_WORKER_IPS", "a,b", "FC_TASKROLE_NAME", "worker", "FC_TASK_INDEX", fmt.Sprint(max(0, rank-1))}
		if rank == 0 {
			v[5] = "server"
		}
		return v
	})
}

func mxnetNodes(t *testing.T) []*process {
	host, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	return ranks("mxnet", 4, func(i int) []string {
		role := []string{"scheduler", "server", "worker", "worker"}[i]
		return []string{"DMLC_PS_ROOT_URI", host, "DMLC_PS_ROOT_PORT", port, "DMLC_NUM_SERVER", "1", "DMLC_NUM_WORKER", "2", "DMLC_ROLE", role}
	})
}

func TestAllSeeTheSameSum(t *testing.T) {
	for name, all := range map[string][]*process{"pytorch": pytorchRanks(t), "jax": jaxRanks(t), "framework": frameworkRanks(t), "mxnet": mxnetNodes(t)} {
		t.Run(name, func(t *testing.T) {
			runAll(t, all...)
			last := lastLine(&all[len(all)-1].out)
			require.Contains(t, last, "step 20/20")
			for i, p := range all {
				require.NoError(t, p.err, i)
				if !strings.Contains(strings.Join(p.vars, " "), "DMLC_ROLE s") { // scheduler and server take no steps
					require.Equal(t, last, lastLine(&p.out), "rank %d", i)
				}
			}
		})
	}
}

// TestContradictions: each is noticed, by one of the processes at least.
func TestContradictions(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []*process
		at   int
		vars []string
		by   int
		want string
	}{
		{"rank twice", jaxRanks(t), 2, []string{"PROCESS_ID", "1"}, 0, "two processes were told that they are rank 1"},
		{"size of a worker", jaxRanks(t), 1, []string{"NUM_PROCESSES", "4"}, 0, "rank 1 was told of 4 processes, and rank 0 of 3"},
		{"rank too high", jaxRanks(t), 2, []string{"PROCESS_ID", "3"}, 2, "rank 3 of 3: there is no such rank"},
		{"no number", jaxRanks(t), 0, []string{"NUM_PROCESSES", "three"}, 0, `NUM_PROCESSES is "three", want a number`},
		{"no address", jaxRanks(t), 1, []string{"COORDINATOR_ADDRESS", ""}, 1, "COORDINATOR_ADDRESS is not set"},
		{"torchrun's rank", pytorchRanks(t), 1, []string{"PET_NODE_RANK", "2"}, 1, `PET_NODE_RANK is "2", and RANK "1"`},
		{"torchrun's address", pytorchRanks(t), 1, []string{"PET_MASTER_ADDR", ""}, 1, `PET_MASTER_ADDR is ""`},
		{"torchrun's processes", pytorchRanks(t), 0, []string{"PET_NPROC_PER_NODE", "2"}, 0, `PET_NPROC_PER_NODE is "2"`},
		{"workers of a worker", mxnetNodes(t), 3, []string{"DMLC_NUM_WORKER", "3"}, 0, "a worker was told of 1 servers and 3 workers, and the scheduler of 1 and 2"},
		{"a worker too many", mxnetNodes(t), 1, []string{"DMLC_ROLE", "worker"}, 0, "a worker too many: want 2"},
		{"part of a node", mxnetNodes(t), 1, []string{"DMLC_ROLE", "ps"}, 1, `DMLC_ROLE is "ps"`},
		{"role of a task", frameworkRanks(t), 1, []string{"FC_TASKROLE_NAME", "ps"}, 1, `FC_TASKROLE_NAME is "ps"`},
		{"task index", frameworkRanks(t), 1, []string{"FC_TASK_INDEX", "1"}, 0, "two processes were told that they are rank 2"},
		{"worker's count", frameworkRanks(t), 2, []string{"FB_WORKER_IPS", "a,b,c"}, 0, "rank 2 was told of 4 processes, and rank 0 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.all[c.at].env(c.vars...)
			runAll(t, c.all...)
			assert.ErrorContains(t, c.all[c.by].err, c.want)
		})
	}
}

func TestHostFile(t *testing.T) {
	hosts, err := slots("a slots=2\nb slots=1\n")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a", "b"}, hosts)
	for _, text := range []string{"a\n", "a slots=0\n", "a:2\n", "a slots=2 max=4\n"} {
		_, err := slots(text)
		require.ErrorContains(t, err, "want a host and slots=N", text)
	}

	file := filepath.Join(t.TempDir(), "hostfile")
	require.NoError(t, os.WriteFile(file, []byte("a slots=2\nb slots=2\n"), 0o600))
	vars := environment("OMPI_MCA_orte_default_hostfile", file, "OMPI_MCA_plm_rsh_agent", "false", "POD_IP", "127.0.0.1")
	run := func(processes int) error {
		return Run(t.Context(), "mpirun", Config{Env: vars, Processes: processes, Out: io.Discard})
	}
	require.ErrorContains(t, run(3), "has 4 slots, want one for each of 3 processes")
	require.ErrorContains(t, run(4), "exit status 1", "a process that cannot be started ends the launcher at once")
	require.ErrorContains(t, Run(t.Context(), "mpirun", Config{Env: environment()}), "is not set")
}

func TestUnknownMode(t *testing.T) {
	require.ErrorContains(t, Run(t.Context(), "gloo", Config{}), `"gloo" is not one of alone, framework, jax, mpi, mpirun, mxnet, pytorch, tensorflow`)
}
