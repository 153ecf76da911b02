package behaviour

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestWaits: how long worker-0, or the run when no task of it is tried again,
// waits after so many failures. Waits are shortened by up to a fifth, and ends are known to the second.
func TestWaits(t *testing.T) {
	t.Parallel()
	const kubelet, controller = 5 * time.Minute, 10 * time.Minute
	for _, tt := range []struct {
		rule, file, task, fails string
		max                     time.Duration
		first                   time.Duration
	}{
		{"kubelet's waits: TFJob", kubeflow("TFJob", "", "Worker 1 OnFailure"), "worker-0", "exits 1", kubelet, 10 * time.Second},
		{"kubelet's waits: PyTorchJob ExitCode", kubeflow("PyTorchJob", "", "Worker 1 ExitCode"), "worker-0", "exits 137", kubelet, 10 * time.Second},
		{"kubelet's waits: TfJob", tfjob("WORKER"), "worker-0", "exits 137", kubelet, 10 * time.Second},
		{"kubelet's waits: MxJob", mxjob("local", "WORKER"), "worker-0", "exits 1", kubelet, 10 * time.Second},
		{"controller's waits: Job", batch("backoffLimit: 20"), "main-0", "exits 1", controller, 10 * time.Second},
		{"default of TrainingJob: a run", training("retry: {limit: 20}", ""), "worker-0", "exits 1", controller, 10 * time.Second},
		{"A.9: Framework, a task, at once", one("false/20"), "worker-0", "exits 1", 0, 0},
		{"A.9: Framework, the run, at once", framework("false/20", "worker 1 false/0 1/1"), "worker-0", "exits 1", 0, 0},
		{"JobSet: at once", jobset(0, "failurePolicy: {maxRestarts: 20}"), "driver-0", "exits 1", 0, 0},
	} {
		on(t, tt.rule, tt.file, func(w *world) {
			w.settle()
			for i, want := 0, tt.first; i < 9; i, want = i+1, min(2*want, tt.max) {
				w.later(time.Second)
				w.hasty = false
				w.step(tt.task + " " + tt.fails)
				w.settle()
				got := w.wait()
				if want == 0 {
					require.Zero(w.t, got)
				} else {
					assert.InDelta(w.t, float64(want)*0.9, float64(got), float64(want)*0.1+float64(time.Second), "failure %d: %s instead of %s", i+1, got, want)
				}
				w.hasty = true
				w.settle()
			}
		})
	}
}

// wait is how long the next try is away.
func (w *world) wait() time.Duration {
	at := w.record.Run.RetryAt
	w.each(func(t *repo.TaskRecord) {
		if t.RetryAt != nil {
			at = t.RetryAt
		}
	})
	if at == nil {
		return 0
	}
	return at.Sub(w.now)
}
