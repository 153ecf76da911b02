package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// newFormats is a world with the example of all formats. Two of them read files
// where their system mounts them, which not every machine allows.
func newFormats(t *testing.T) (w *world, mounts bool) {
	w = newWorld(t)
	w.copyExample("formats")
	mounts = exec.Command("unshare", "--mount", "true").Run() == nil || exec.Command("unshare", "--user", "--map-root-user", "--mount", "true").Run() == nil
	if !mounts {
		t.Log("without private mounts: neither framework.yaml nor mpijob.yaml")
		for _, file := range []string{"framework.yaml", "mpijob.yaml"} {
			require.NoError(t, os.Remove(filepath.Join(w.checkout, "jobs", file)))
		}
	}
	return w, mounts
}

// change replaces text in a job file of the checkout.
func (w *world) change(file, from, to string) {
	w.t.Helper()
	path := filepath.Join("jobs", file)
	text, err := os.ReadFile(filepath.Join(w.checkout, path))
	require.NoError(w.t, err)
	require.Contains(w.t, string(text), from)
	w.write(path, strings.ReplaceAll(string(text), from, to))
}

// log is what a task of a job in the default namespace wrote.
func (w *world) log(t *testing.T, job, task string) string {
	t.Helper()
	code, out := w.trainyard("logs", job, task, "--repo", w.remote, "--state-dir", w.state)
	require.Equal(t, 0, code, out)
	return strings.TrimSpace(out)
}

// ended is how the last attempt of a task ended.
func ended(t *testing.T, rec repo.Record, name string) repo.TaskAttemptRecord {
	t.Helper()
	for _, role := range rec.Roles {
		for _, task := range role.Tasks {
			if task.Name == name {
				require.NotEmpty(t, task.Attempts, name)
				return task.Attempts[len(task.Attempts)-1]
			}
		}
	}
	require.Fail(t, "no task "+name)
	return repo.TaskAttemptRecord{}
}

// TestFormats trains in every format. The processes of a job exchange gradients
// with those that its variables name, so that a job that succeeds has told
// each of them the truth, and all print the same last line.
func TestFormats(t *testing.T) {
	t.Parallel()
	w, mounts := newFormats(t)
	w.push("every format")
	code, out := w.once()
	require.Equal(t, 0, code, out)

	for _, c := range []struct {
		job   string
		ended string            // tasks that always end by themselves
		same  string            // tasks that print the same last line
		says  map[string]string // parts of logs
	}{
		{"own-format", "worker-0 worker-1", "", nil},
		{"tfjob", "master-0", "", map[string]string{"master-0": "worker 0: 200 samples, joins 127.0.0.1:", "worker-0": "worker 1: 200 samples"}},
		{"mxjob", "scheduler-0", "worker-0 worker-1", map[string]string{"scheduler-0": ": 1 servers and 2 workers have come"}},
		{"pytorchjob", "master-0", "master-0 worker-0 worker-1", map[string]string{"master-0": "rank 0 of 3", "worker-0": "rank 1 of 3", "worker-1": "rank 2 of 3"}},
		{"jaxjob", "worker-0", "worker-0 worker-1 worker-2", map[string]string{"worker-0": "rank 0 of 3", "worker-1": "rank 1 of 3", "worker-2": "rank 2 of 3"}},
		{"mpijob", "launcher-0", "launcher-0", map[string]string{"launcher-0": "adds up for 4 at 127.0.0.1:"}},
		{"framework", "server-0", "", nil}, // its pods go with it, and their logs
		{"job", "main-0 main-1 main-2", "", map[string]string{"main-0": "alone with share 0", "main-1": "alone with share 1", "main-2": "alone with share 2"}},
		{"jobset", "leader-0 workers-0 workers-1", "", map[string]string{"leader-0": "alone with share 0", "workers-0": "alone with share 1", "workers-1": "alone with share 2"}},
	} {
		t.Run(c.job, func(t *testing.T) {
			if !mounts && (c.job == "framework" || c.job == "mpijob") {
				t.Skip("this machine allows no private mounts")
			}
			rec, ok := w.record("default/" + c.job)
			require.True(t, ok)
			require.Equal(t, repo.PhaseSucceeded, rec.Phase, rec.Message)
			require.Equal(t, repo.Succeeded, rec.Run.Outcome.Result)
			for _, task := range strings.Fields(c.ended) {
				a := ended(t, rec, task)
				require.Equal(t, repo.Succeeded, a.Result, task)
				require.EqualValues(t, 0, *a.ExitCode, task)
			}
			// A task that the end of the job overtook was stopped, and its log
			// went with its pod. One that had ended keeps it, or its end in the record.
			for task, part := range c.says {
				if ended(t, rec, task).Result == repo.Succeeded {
					assert.Contains(t, w.log(t, c.job, task), part, task)
				}
			}
			var last []string
			for _, task := range strings.Fields(c.same) {
				if ended(t, rec, task).Result == repo.Succeeded {
					last = append(last, lastSteps(w.log(t, c.job, task))...)
				}
			}
			for _, line := range last {
				assert.Equal(t, last[0], line)
			}
		})
	}
	t.Run("second attempts", func(t *testing.T) {
		if mounts {
			triedAgain(t, w, "framework", "worker-1", 7)
		}
		triedAgain(t, w, "jobset", "workers-1", 3)
	})
}

// lastSteps are the lines of the last step in a log, without the tags of an
// MPIJob's processes.
func lastSteps(log string) (steps []string) {
	for line := range strings.Lines(log) {
		if _, step, ok := strings.Cut(line, "step 20/20 "); ok {
			steps = append(steps, strings.TrimSpace(step))
		}
	}
	return steps
}

// triedAgain: one task failed, which ended the first attempt before others that
// waited for it had given up; the second attempt succeeded.
func triedAgain(t *testing.T, w *world, job, task string, exit int32) {
	t.Helper()
	rec, _ := w.record("default/" + job)
	require.EqualValues(t, 1, rec.Run.Attempt)
	require.Equal(t, repo.Retries{Total: 1, Accountable: 1}, rec.Run.Retries)
	require.Len(t, rec.Attempts, 1)
	first := rec.Attempts[0]
	require.Equal(t, repo.Failed, first.Result)
	require.Equal(t, task, first.Task)
	require.Equal(t, exit, *first.ExitCode)
	require.Len(t, first.Tasks, 1, "all others were stopped or had succeeded")
	require.Equal(t, task, first.Tasks[0].Name)
	require.Equal(t, exit, *first.Tasks[0].Attempts[0].ExitCode)
	tail := w.git(w.remote, "show", repo.StatusBranch+":default/default/"+job+"/"+first.Tasks[0].Attempts[0].Log)
	require.Contains(t, tail, "the first attempt fails")
	for _, role := range rec.Roles {
		require.Zero(t, role.Failed, role.Name)
	}
}

// TestFormatsContradicted: what a task is told wrong fails the job, and so does
// a first attempt where no second one is allowed.
func TestFormatsContradicted(t *testing.T) {
	t.Parallel()
	w, mounts := newFormats(t)
	for _, file := range []string{"trainingjob.yaml", "tfjob.yaml", "job.yaml"} {
		require.NoError(t, os.Remove(filepath.Join(w.checkout, "jobs", file)))
	}
	const torch, jax = "[trainyard, example-trainer, pytorch, ", "[trainyard, example-trainer, jax, "
	w.change("pytorchjob.yaml", "OnFailure", "Never")
	w.change("pytorchjob.yaml", torch, `[sh, -c, 'test "$RANK" = 0 || export RANK=1 PET_NODE_RANK=1; exec "$0" "$@"', trainyard, example-trainer, pytorch, `)
	w.change("jaxjob.yaml", "OnFailure", "Never")
	w.change("jaxjob.yaml", jax, `[sh, -c, 'test "$PROCESS_ID" != 2 || export NUM_PROCESSES=4; exec "$0" "$@"', trainyard, example-trainer, jax, `)
	w.change("mxjob.yaml", "[trainyard, example-trainer, mxnet]", "[env, DMLC_NUM_WORKER=3, trainyard, example-trainer, mxnet]")
	w.change("jobset.yaml", "maxRestarts: 1", "maxRestarts: 0")
	// The log of a task that alone fails. Of those that find out together, the
	// first decides, and the others may be stopped: each exits with 1.
	want := map[string]string{
		"pytorchjob": "", "jaxjob": "", "mxjob": "",
		"jobset workers-1": "the first attempt fails",
	}
	if mounts {
		w.change("mpijob.yaml", "--processes=4", "--processes=3")
		w.change("framework.yaml", "maxRetryCount: 1", "maxRetryCount: 0")
		w.change("framework.yaml", "14001", "14002")
		want["mpijob launcher-0"] = "/etc/mpi/hostfile has 4 slots, want one for each of 3 processes"
		want["framework worker-1"] = "the first attempt fails"
	}
	w.push("contradictions")
	code, out := w.once()
	require.Equal(t, 1, code, out)
	for task, says := range want {
		job, task, alone := strings.Cut(task, " ")
		rec, _ := w.record("default/" + job)
		assert.Equal(t, repo.PhaseFailed, rec.Phase, "%s: %s", job, rec.Message)
		assert.Empty(t, rec.Attempts, job)
		if alone {
			assert.Equal(t, task, rec.Run.Outcome.Task, job)
			assert.Contains(t, w.log(t, job, task), says, job)
		} else if assert.NotNil(t, rec.Run.Outcome.ExitCode, job) {
			assert.EqualValues(t, 1, *rec.Run.Outcome.ExitCode, job)
		}
	}
}
