package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestSuspendAndResume(t *testing.T) {
	w := pushed(t)
	w.settle()
	w.start("main-0", "main-1")
	w.sleep(time.Minute)
	w.end("main-0", 0)
	w.settle()
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	assert.Equal(t, repo.PhaseSuspended, w.record.Phase)
	assert.Empty(t, w.live())
	assert.True(t, w.out.Settled)
	assert.Equal(t, ReasonSuspended, w.task("main-1").Attempts[0].Reason)
	w.sleep(time.Hour)
	w.kill()
	w.settle()
	assert.Len(t, w.starts, 2)

	w.edit(func(j *repo.Job) { j.Suspend = false })
	w.settle()
	assert.Equal(t, []string{"main-0/0/0", "main-1/0/0", "main-1/0/1"}, w.starts, "what succeeded does not run again")
	assert.Zero(t, w.task("main-1").Retries)
	assert.Equal(t, int64(3600), w.record.Run.SuspendedSeconds)
	w.succeed()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.ran(), 1)
	assert.Zero(t, w.record.Run.Retries)
}

func TestSuspendWaitsForStubbornPods(t *testing.T) {
	w := pushed(t)
	w.settle()
	w.stubborn = true
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	assert.False(t, w.out.Settled)
	w.edit(func(j *repo.Job) { j.Suspend = false })
	w.settle()
	assert.Len(t, w.starts, 2, "the old pods are still there")
	w.endPod(w.latest("main-0"), 0)
	w.settle()
	assert.Equal(t, "main-0/0/1", w.starts[2], "an exit code after the request to end says nothing")
	w.endPod(w.latest("main-1"), 1)
	w.settle()
	assert.Len(t, w.starts, 4)
	assert.Zero(t, w.task("main-1").Retries.Total)
}

func TestSucceededJustBeforeItWasAskedToEnd(t *testing.T) {
	w := pushed(t)
	w.settle()
	w.start("main-0", "main-1")
	w.sleep(time.Minute)
	w.end("main-0", 0)
	w.sleep(time.Second)
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.latest("main-0").DeletedAt = w.now // by somebody who did not see that it had ended
	w.settle()
	assert.Equal(t, repo.TaskSucceeded, w.task("main-0").Phase)
}

func TestRunsThatAreStopped(t *testing.T) {
	for _, row := range []struct {
		rule   string
		change func(*world)
		phase  repo.Phase
		result repo.Result
		reason string
	}{
		{"stop", func(w *world) { w.edit(func(j *repo.Job) { j.Stop = true }) }, repo.PhaseStopped, repo.Stopped, ReasonStopRequested},
		{"removal", func(w *world) { w.push(nil) }, repo.PhaseRemoved, repo.Stopped, ReasonRemoved},
		{"stop wins over suspend", func(w *world) {
			w.edit(func(j *repo.Job) { j.Stop, j.Suspend = true, true })
		}, repo.PhaseStopped, repo.Stopped, ReasonStopRequested},
		{"deadline", func(w *world) { w.sleep(12 * time.Hour) }, repo.PhaseFailed, repo.Failed, ReasonDeadline},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) {
				j.Deadline = 12 * time.Hour
				j.Retry.Limit, j.Roles[0].Retry.Limit = 5, 5
			})
			w.settle()
			w.start("main-0", "main-1")
			w.settle()
			w.stubborn = true
			row.change(w)
			w.settle()
			assert.Equal(t, "Stopping", w.record.Reason)
			assert.False(t, w.out.Settled)
			assert.Len(t, w.live(), 2)
			w.sleep(time.Minute)
			w.endPod(w.latest("main-0"), 1)
			w.endPod(w.latest("main-1"), 0)
			w.settle()
			assert.Equal(t, row.phase, w.record.Phase)
			assert.Equal(t, row.result, w.record.Run.Outcome.Result)
			assert.Equal(t, row.reason, w.record.Run.Outcome.Reason)
			w.sleep(2 * time.Hour)
			w.settle()
			assert.Empty(t, w.pods)
			assert.Empty(t, w.runs)
			assert.Len(t, w.starts, 2, "no retry, no new run")
			if w.job == nil || w.job.Stop {
				w.push(&repo.Job{})
				job := trainJob("mnist", "A", 2, 0)
				w.push(&job)
				w.settle()
				assert.Len(t, w.starts, 2, "a stopped run has run")
			}
		})
	}
}

func TestStopOfASuspendedRun(t *testing.T) {
	w := pushed(t)
	w.settle()
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	w.edit(func(j *repo.Job) { j.Stop = true })
	w.settle()
	assert.Equal(t, repo.PhaseStopped, w.record.Phase)
	assert.True(t, w.out.Settled)
}

func TestRunGoesOn(t *testing.T) {
	for _, row := range []struct {
		rule   string
		change func(*world)
	}{
		{"withheld removal", func(w *world) { w.push(nil); w.withheld = "100 of 100 jobs have vanished" }},
		{"invalid definition", func(w *world) {
			w.invalid = &repo.Invalid{Key: w.key, Errors: []*repo.Error{{File: "jobs/mnist.yaml", Line: 3, Message: "no"}}}
		}},
		{"invalid definition of a job that cannot be read", func(w *world) {
			w.push(nil)
			w.invalid = &repo.Invalid{Key: w.key, Errors: []*repo.Error{{Message: "no"}}}
		}},
		{"policy forbids the next run", func(w *world) { w.forbidden = "no" }},
		{"executionType Create", func(w *world) { w.edit(func(j *repo.Job) { j.Hold = true }) }},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) { j.Roles[0].Retry.Limit = 1 })
			w.settle()
			w.start("main-0", "main-1")
			w.settle()
			row.change(w)
			w.settle()
			assert.Equal(t, repo.PhaseRunning, w.record.Phase)
			assert.Len(t, w.live(), 2)
			w.end("main-0", 1)
			w.kill()
			w.settle()
			assert.Equal(t, "main-0/0/1", w.starts[2], "with its retries")
			w.succeed()
			assert.Equal(t, repo.Succeeded, w.record.Run.Outcome.Result)
			assert.Len(t, w.starts, 3)
		})
	}
}

func TestDeadlineCountsWithoutSuspension(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.Deadline = time.Hour })
	w.settle()
	assert.Equal(t, day.Add(time.Hour), w.out.At)
	w.sleep(30 * time.Minute)
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	assert.Zero(t, w.out.At)
	w.sleep(5 * time.Hour)
	w.edit(func(j *repo.Job) { j.Suspend = false })
	w.settle()
	assert.Equal(t, day.Add(6*time.Hour), w.out.At)
	w.sleep(30*time.Minute - time.Second)
	w.settle()
	assert.Equal(t, repo.PhasePending, w.record.Phase)
	w.sleep(time.Second)
	w.settle()
	assert.Equal(t, ReasonDeadline, w.record.Run.Outcome.Reason)
	assert.Equal(t, repo.Permanent, w.record.Run.Outcome.Class)
}

func TestStartDeadline(t *testing.T) {
	w := pushed(t, func(j *repo.Job) {
		j.StartDeadline, j.Roles[0].Retry.Limit = 10*time.Minute, 1
	})
	w.settle()
	w.start("main-1")
	w.latest("main-0").Waiting = "ImagePullBackOff: no such image"
	w.settle()
	assert.Equal(t, day.Add(10*time.Minute), w.out.At)
	assert.Contains(t, w.record.Message, "ImagePullBackOff")
	w.wake()
	assert.Len(t, w.task("main-1").Attempts, 1, "what has started is left alone")
	assert.Empty(t, w.task("main-1").Attempts[0].Stop)
	require.Len(t, w.task("main-0").Attempts, 2)
	a := w.task("main-0").Attempts[0]
	assert.Equal(t, ReasonStartDeadline, a.Reason)
	assert.Equal(t, repo.Failed, a.Result)
	assert.Contains(t, a.Message, "ImagePullBackOff")
	assert.Equal(t, repo.Retries{Total: 1, Accountable: 1}, w.task("main-0").Retries, "it counts as a failure")
	w.wake()
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
	assert.Equal(t, ReasonStartDeadline, w.record.Run.Outcome.Reason)
}

// TestCutOff: a pod that never starts any more is given up, and its task is
// tried again when its kubelet has confirmed the end.
func TestCutOff(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.Roles[0].Retry.Limit = 0 })
	w.settle()
	w.start("main-1")
	p := w.latest("main-0")
	p.CutOffAt = w.now
	assert.Equal(t, w.now.Add(cutOffPatience), w.settle().At)
	assert.Len(t, w.task("main-0").Attempts, 1, "its kubelet may have said more since")
	w.sleep(cutOffPatience)
	w.silent[p.Name] = true
	w.settle()
	assert.False(t, p.DeletedAt.IsZero(), "it is asked to end")
	assert.Len(t, w.task("main-0").Attempts, 1, "it has not ended")
	w.silent[p.Name] = false
	w.endPod(p, 137)
	w.settle()
	require.Len(t, w.task("main-0").Attempts, 2)
	a := w.task("main-0").Attempts[0]
	assert.Equal(t, repo.Outcome{Result: repo.Failed, Class: repo.Transient, Free: true, Reason: ReasonCutOff, Message: a.Message}, *a.Outcome)
	assert.Equal(t, repo.Retries{Total: 1}, w.task("main-0").Retries, "it counts for nothing")
	assert.Len(t, w.task("main-1").Attempts, 1)
}

// TestCutOffPodIsGone: somebody else has removed the pod meanwhile.
func TestCutOffPodIsGone(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.Roles[0].Retry.Limit = 0 })
	w.settle()
	p := w.latest("main-0")
	p.CutOffAt, w.silent[p.Name] = w.now, true
	w.sleep(cutOffPatience)
	w.settle()
	w.remove(p)
	w.settle()
	a := w.task("main-0").Attempts[0]
	assert.Equal(t, ReasonCutOff, a.Reason)
	assert.True(t, a.Free)
}

func TestStartDeadlineOfAPodThatCannotBeCreated(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.StartDeadline = 10 * time.Minute })
	for range 3 { // the backend takes nothing
		w.decide()
		for _, a := range w.out.Actions {
			w.troubles[a.Pod] = "exceeded quota"
		}
	}
	assert.Equal(t, "main-0: exceeded quota", w.record.Message)
	for range 5 {
		w.sleep(10 * time.Minute)
		w.decide()
	}
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
	assert.Len(t, w.task("main-0").Attempts, 1, "no attempt after attempt without a budget")
}

func TestProgressDeadline(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.ProgressDeadline, j.Retry.Limit = 20*time.Minute, 1 })
	w.settle()
	assert.Zero(t, w.out.At, "nothing runs yet")
	w.sleep(time.Hour)
	w.start("main-0", "main-1")
	w.settle()
	assert.Equal(t, w.now.Add(20*time.Minute), w.out.At, "from the start, if there was no output")
	w.sleep(19 * time.Minute)
	w.latest("main-1").OutputAt = w.now
	w.settle()
	assert.Equal(t, w.now.Add(20*time.Minute), w.out.At, "the output of any task is progress")
	w.wake()
	assert.Equal(t, int32(1), w.record.Run.Attempt)
	assert.Equal(t, ReasonNoProgress, w.record.Attempts[0].Reason)
	assert.Len(t, w.starts, 4, "the attempt failed, the run is tried again")
	w.start("main-0", "main-1")
	w.settle()
	w.wake()
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
}

func TestForceDelete(t *testing.T) {
	after := 30 * time.Second
	w := pushed(t, func(j *repo.Job) { j.Roles[0].ForceDeleteAfter = &after })
	w.settle()
	w.stubborn = true
	w.edit(func(j *repo.Job) { j.Stop = true })
	w.settle()
	assert.Equal(t, w.now.Add(after), w.out.At)
	w.sleep(after - time.Second)
	w.settle()
	assert.Len(t, w.live(), 2)
	w.wake()
	assert.Empty(t, w.live())
	assert.Equal(t, repo.PhaseStopped, w.record.Phase)
}

// A daemon that was killed after it had stopped what still ran, and before it
// could push why, leaves pods that look as if somebody else had deleted them.
func TestOwnDeletionsAreKnownAgain(t *testing.T) {
	withServer := func(j *repo.Job) {
		ps := deepCopy(j.Roles[0])
		ps.Name, ps.Daemon, ps.Replicas = "ps", true, 1
		j.Roles = append(j.Roles, ps)
	}
	for _, row := range []struct {
		rule    string
		code    int32 // of main-1
		over    func(*world)
		result  repo.Result
		reason  string
		retries int32
	}{
		{"the job has succeeded", 0, func(*world) {}, repo.Stopped, ReasonRunEnded, 0},
		{"the job has failed", 1, func(*world) {}, repo.Stopped, ReasonRunEnded, 0},
		{"the job was removed", 0, func(w *world) { w.push(nil) }, repo.Stopped, ReasonRunEnded, 0},
		{"it was somebody else, before", 0, func(w *world) {
			w.delete(w.latest("ps-0"), false)
			w.endPod(w.latest("ps-0"), 143)
			w.sleep(time.Minute)
		}, repo.Failed, ReasonPodDeleted, 0}, // its retry did not come to be
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t, withServer, budgets(repo.ByFault, 0, 0))
			w.settle()
			w.start("main-0", "main-1", "ps-0")
			w.settle()
			w.publish()
			w.sleep(time.Minute)
			row.over(w)
			if w.job != nil {
				w.end("main-0", 0)
				w.end("main-1", row.code)
			}
			w.act()
			for _, p := range w.pods {
				if !p.Ended() {
					w.endPod(p, 143)
				}
			}
			w.kill()
			w.settle()
			ps := w.task("ps-0")
			assert.Equal(t, row.result, ps.Attempts[0].Result)
			assert.Equal(t, row.reason, ps.Attempts[0].Reason)
			assert.Equal(t, row.retries, ps.Retries.Total)
			assert.Len(t, w.starts, 3)
		})
	}
}

// TestRunWaitsFromTheLastEnd: the back-off of a run begins when its last pod has
// ended, also if the task of that pod was about to be tried again.
func TestRunWaitsFromTheLastEnd(t *testing.T) {
	w := pushed(t, budgets(repo.ByFault, 0, 1), func(j *repo.Job) {
		j.Retry.Backoff = repo.Backoff{Initial: 10 * time.Minute, Factor: 1}
	})
	w.settle()
	w.start("main-0", "main-1")
	w.settle()
	w.sleep(5 * time.Minute)
	w.delete(w.latest("main-1"), false) // by hand
	w.decide()                          // that it is tried again, and there it stays
	require.Len(t, w.task("main-1").Attempts, 2)
	w.end("main-0", 1) // decides the attempt; it was earlier, and is heard of late
	w.latest("main-0").EndedAt = w.now.Add(-4 * time.Minute)
	last := w.now
	w.settle()
	require.EqualValues(t, 1, w.record.Run.Attempt)
	assert.WithinDuration(t, last.Add(10*time.Minute), w.record.Run.RetryAt.Time, 2*time.Minute)
}
