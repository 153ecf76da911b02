package behaviour

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestFrameworkRunRetries(t *testing.T) {
	t.Parallel()
	run := func(policy string) string { return framework(policy, "worker 1 false/0 1/1") }
	check(t, []row{
		{"A.9 4: -2 runs a Framework that succeeded again", run("false/-2"), "worker-0 exits 0", "Running; run retry"},
		{"A.9 4: -2 runs one that failed again", run("false/-2"), "worker-0 exits 1", "Running; run retry"},
		{"A.9 5: -1 runs one that failed again", run("false/-1"), "worker-0 exits 210; worker-0 exits 1", "Running; run 2 retries"},
		{"A.9 5: -1 leaves one that succeeded", run("false/-1"), "worker-0 exits 0", "Succeeded Completed"},
		{"A.9 7: 0 runs once", run("false/0"), "worker-0 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.9 6: n runs n times more", run("false/2"), "worker-0 exits 1; worker-0 exits 1; worker-0 exits 1", "Failed ContainerUnrecognizedFailed; run 2 retries"},
		{"A.9 2: fancy runs a transient failure again for free", run("true/0"), "worker-0 exits 137; worker-0 exits 200", "Running; run 2 free retries"},
		{"A.9 1: fancy runs a conflict again for free", run("true/0"), "worker-0 exits 201", "Running; run free retry"},
		{"A.9 3: fancy does not run a permanent failure again", run("true/5"), "worker-0 exits 210", "Failed ContainerPermanentFailed"},
		{"A.9 3: out of memory is permanent", run("true/5"), "worker-0 OOMKilled", "Failed ContainerDockerOOMKilled"},
		{"A.9 6: fancy counts an unknown failure", run("true/1"), "worker-0 exits 1; worker-0 exits 1", "Failed ContainerUnrecognizedFailed; run retry"},
		{"A.9: tasks count from 0 in every attempt", framework("false/1", "worker 1 false/1 1/1"), "worker-0 exits 1; worker-0 exits 1; worker-0 exits 1", "Running; run retry; worker-0 retry"},
		{"A.20: 3 of a task and 3 of the Framework are 16 tries", framework("false/3", "worker 1 false/3 1/-1"),
			repeat("worker-0 exits 1", 15), "Running; run 3 retries; worker-0 3 retries"},
		{"A.20: and the 16th is the last", framework("false/3", "worker 1 false/3 1/-1"),
			repeat("worker-0 exits 1", 16), "Failed ContainerUnrecognizedFailed; run 3 retries; worker-0 3 retries"},
		{"A.9 0: stop is not retried (-210)", run("true/-2"), "edit executionType: Start => executionType: Stop", "Stopped StopRequested"},
		{"A.14: stop cuts the wait for a retry short", framework("true/0", "worker 1 false/0 1/1"), "worker-0 exits 1; edit executionType: Start => executionType: Stop", "Failed ContainerUnrecognizedFailed"},
		{"A.12: a refused pod fails its task (-200)", run("false/0"), "refuse worker-0", "Failed PodRefused"},
		{"A.12: which is permanent", framework("true/3", "worker 1 true/3 1/1"), "refuse worker-0", "Failed PodRefused"},
	})
}

func repeat(step string, n int) (script string) {
	for range n {
		script += step + ";"
	}
	return script
}

func TestFrameworkCompletion(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{"A.8 1: minFailed 1, the first failure ends the attempt", framework("false/0", "ps 1 false/0 1/-1", "worker 2 false/0 1/2"), "ps-0 exits 7", "Failed ContainerUnrecognizedFailed"},
		{"A.8 1: minFailed 2, one failure does not", framework("false/0", "worker 3 false/0 2/-1"), "worker-1 exits 1", "Running; worker-1 Failed"},
		{"A.8 1: minFailed 2, the second does", framework("false/0", "worker 3 false/0 2/-1"), "worker-1 exits 1; worker-0 exits 139", "Failed ContainerSigSegvReceived"},
		{"A.8 1: minFailed is of one role", framework("false/0", "ps 2 false/0 2/-1", "worker 2 false/0 2/-1"), "ps-0 exits 1; worker-0 exits 1", "Running; ps-0 Failed; worker-0 Failed"},
		{"A.8: a task that is tried again has not failed", framework("false/0", "worker 2 false/1 1/-1"), "worker-0 exits 1", "Running; worker-0 retry"},
		{"A.8 1: minSucceeded 1, the first success ends the attempt", framework("false/0", "ps 1 false/0 1/-1", "worker 2 false/0 1/1"), "worker-1 exits 0", "Succeeded Completed"},
		{"A.8 1: minSucceeded 2, one is not enough", framework("false/0", "ps 1 false/0 1/-1", "worker 2 false/0 1/2"), "worker-1 exits 0", "Running; worker-1 Succeeded"},
		{"A.8 1: minSucceeded 2, two are", framework("false/0", "ps 1 false/0 1/-1", "worker 2 false/0 1/2"), "worker-1 exits 0; worker-0 exits 0", "Succeeded Completed"},
		{"A.8 1: a success of any role is the attempt's", framework("false/0", "ps 1 false/0 1/1", "worker 2 false/0 1/2"), "ps-0 exits 0", "Succeeded Completed"},
		{"A.8 1: the earliest trigger wins, failure", framework("false/0", "ps 1 false/0 1/-1", "worker 1 false/0 1/1"), "ps-0 exits 1; ", "Failed ContainerUnrecognizedFailed"},
		{"A.8 1: at once, the first role wins", framework("false/0", "ps 1 false/0 1/-1", "worker 1 false/0 1/1"), "worker-0 exits 0 & ps-0 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.8 1: at once, the first role wins, success", framework("false/0", "worker 1 false/0 1/1", "ps 1 false/0 1/-1"), "ps-0 exits 1 & worker-0 exits 0", "Succeeded Completed"},
		{"A.8 1: at once in one role, failed before succeeded", framework("false/0", "worker 2 false/0 1/1"), "worker-0 exits 0 & worker-1 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.8 3: none triggers, all ended, a success", framework("false/0", "worker 2 false/0 -1/-1"), "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"A.8 3: also when tasks failed", framework("false/0", "worker 2 false/0 -1/-1"), "worker-0 exits 1; worker-1 exits 1", "Succeeded Completed"},
		{"A.8 3: not before the last has", framework("false/0", "ps 1 false/0 -1/-1", "worker 2 false/0 -1/-1"), "worker-0 exits 0; worker-1 exits 1", "Running; worker-0 Succeeded; worker-1 Failed"},
		{"A.8 3: -2 goes on and on", framework("false/0", "worker 1 false/-2 -1/-1"), "worker-0 exits 0; worker-0 exits 0", "Running; worker-0 2 retries"},
		{"A.2: 0 is off", framework("false/0", "worker 2 false/0 0/0"), "worker-0 exits 1", "Running; worker-0 Failed"},
		{"A.2: absent is off", framework("false/0", "worker 2 false/0"), "worker-0 exits 1; worker-1 exits 1", "Succeeded Completed"},
		{"A.19: of the launcher 0 is 1, failed", launcher("false/0", "worker 2 false/0 0/-1"), "worker-0 exits 1", "Failed ContainerFailedWithUnknownExitCode"},
		{"A.19: of the launcher 0 is 1, succeeded", launcher("false/0", "worker 2 false/0 -1/0"), "worker-0 exits 0", "Succeeded Completed"},
		{"A.19: of the launcher absent is 1", launcher("false/0", "worker 2 false/0"), "worker-1 exits 0", "Succeeded Completed"},
		{"A.19: of the launcher -1 is off", launcher("false/0", "worker 2 false/0 -1/-1"), "worker-0 exits 1", "Running; worker-0 Failed"},
		{"A.18: the master decides, success", framework("false/0", "master 1 false/0 1/1", "worker 2 false/0 -1/-1"), "worker-0 exits 1; worker-1 exits 0; master-0 exits 0", "Succeeded Completed"},
		{"A.18: the master decides, failure", framework("false/0", "master 1 false/0 1/1", "worker 2 false/0 -1/-1"), "worker-0 exits 0; master-0 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.18: all workers decide", framework("true/3", "ps 1 false/0 1/-1", "worker 2 false/0 1/2"), "worker-0 exits 0; worker-1 exits 1", "Running; run retry"},
		{"A.18: any worker decides", framework("false/0", "worker 3 false/0 3/1"), "worker-0 exits 1; worker-1 exits 1; worker-2 exits 0", "Succeeded Completed"},
		{"A.18: or all of them fail", framework("false/0", "worker 3 false/0 3/1"), "worker-0 exits 1; worker-1 exits 1; worker-2 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.20: a server that serves for ever keeps the attempt", framework("false/0", "ps 1 false/0 1/-1", "worker 1 false/0 1/-1"), "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"A.10: the container that finished last speaks, app", other("containers: [%s, "), "worker-0/other exits 139", "Failed ContainerSigSegvReceived"},
		{"A.10: the container that finished last speaks, init", other("initContainers: [%s], containers: ["), "worker-0/other exits 139", "Failed ContainerSigSegvReceived"},
	})
}

func TestFrameworkRescale(t *testing.T) {
	t.Parallel()
	text := framework("false/0", "ps 1 false/0 1/-1", "worker 2 false/0 1/-1")
	check(t, []row{
		{"A.13: up, the new task starts", text, "edit taskNumber: 2 => taskNumber: 3; worker-2 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.13: up, the others go on", text, "worker-0 exits 0; edit taskNumber: 2 => taskNumber: 3", "Running; worker-0 Succeeded"},
		{"A.13: down, the highest index goes and does not fail the attempt", text, "edit taskNumber: 2 => taskNumber: 1; ps-0 exits 0; worker-0 exits 0", "Succeeded Completed"},
		{"A.13: a task that is gone does not count", framework("false/0", "worker 3 false/0 1/2"), "worker-2 exits 0; edit taskNumber: 3 => taskNumber: 2; worker-0 exits 0", "Running; worker-0 Succeeded; worker-2 Succeeded"},
		{"A.13: nor does one that failed", framework("false/0", "worker 3 false/0 2/2"), "worker-2 exits 1; edit taskNumber: 3 => taskNumber: 2; worker-0 exits 1", "Running; worker-0 Failed; worker-2 Failed"},
		{"A.13: down and up, it is a new task", framework("false/0", "worker 3 false/1 2/3"), "worker-2 exits 1; edit taskNumber: 3 => taskNumber: 2; edit taskNumber: 2 => taskNumber: 3", "Running"},
		{"A.13: also one that had succeeded", framework("false/0", "worker 3 false/0 1/3"), "worker-2 exits 0; edit taskNumber: 3 => taskNumber: 2; edit taskNumber: 2 => taskNumber: 3", "Running"},
	})
}

// TestFrameworkConflictDelay: A.9 1, an attempt of a Framework that ended in a
// conflict waits from 60 to 900 s; all others, and tasks, do not wait.
func TestFrameworkConflictDelay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule, file, script string
		min, max           time.Duration
	}{
		{"A.9 1: a conflict of the attempt", framework("true/0", "worker 1 false/0 1/1"), "worker-0 exits 201", time.Minute, 15 * time.Minute},
		{"A.19: the same of the launcher", launcher("true/0", "worker 1 false/0 1/1"), "worker-0 exits 201", time.Minute, 15 * time.Minute},
		{"A.9 6: plain has no delay of conflict", framework("false/1", "worker 1 false/0 1/1"), "worker-0 exits 201", 0, 0},
		{"A.9 2: nor does a transient failure", framework("true/0", "worker 1 false/0 1/1"), "worker-0 exits 200", 0, 0},
		{"A.9 1: a task does not wait", framework("true/0", "worker 1 true/0 1/1"), "worker-0 exits 201", 0, 0},
		{"A.9: no wait grows", framework("false/-1", "worker 1 false/3 1/1"), repeat("worker-0 exits 1", 9), 0, 0},
	} {
		on(t, tt.rule, tt.file, func(w *world) {
			w.hasty = false
			w.play(tt.script)
			if tt.max == 0 {
				require.Equal(w.t, repo.PhaseRunning, w.record.Phase)
				return
			}
			require.Equal(w.t, repo.PhaseRetrying, w.record.Phase)
			require.NotNil(w.t, w.record.Run.RetryAt)
			wait := w.record.Run.RetryAt.Sub(w.now)
			assert.GreaterOrEqual(w.t, wait, tt.min)
			assert.LessOrEqual(w.t, wait, tt.max+time.Second) // ends are known to the second
			w.later(wait - time.Second)
			w.settle()
			require.Equal(w.t, repo.PhaseRetrying, w.record.Phase)
			w.later(time.Second)
			w.settle()
			require.Equal(w.t, "Running; run free retry", w.told())
		})
	}
}
