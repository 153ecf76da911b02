package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// reasons why a run is not to go on, and what its record says then.
var reasons = []struct {
	name, reason string
	change       func(*world)
}{
	{"the file is removed", ReasonRemoved, func(w *world) { w.push(nil) }},
	{"the file asks to stop", ReasonStopRequested, func(w *world) { w.edit(func(j *repo.Job) { j.Stop = true }) }},
	{"another run is to take its place", ReasonReplaced, func(w *world) {
		w.edit(func(j *repo.Job) { digest("B")(j); j.OnChange = repo.Restart })
	}},
	{"its deadline is past", ReasonDeadline, func(w *world) { w.sleep(24 * time.Hour) }},
}

// A run that has succeeded by itself has, whatever comes about before anybody sees it.
func TestSuccessThatNobodySaw(t *testing.T) {
	for _, row := range reasons {
		for _, seen := range []struct {
			name string
			ends func(*world)
			want repo.Result // "" for what the reason makes of it
		}{
			{"all had succeeded", func(w *world) { w.end("main-0", 0); w.end("main-1", 0) }, repo.Succeeded},
			{"one goes on", func(w *world) { w.end("main-0", 0) }, ""},
			{"one had failed", func(w *world) { w.end("main-0", 0); w.end("main-1", 1) }, ""},
		} {
			run := func(t *testing.T, late bool) {
				w := pushed(t, func(j *repo.Job) { j.Deadline = 12 * time.Hour })
				w.settle()
				w.start("main-0", "main-1")
				w.settle()
				first := w.record.Run.ID
				w.sleep(time.Hour)
				if late { // than what was decided by the last look
					row.change(w)
					w.decide()
					w.now = day.Add(time.Hour)
					seen.ends(w)
				} else {
					seen.ends(w)
					w.kill()
					row.change(w)
				}
				w.settle()
				h := w.record.History[0]
				require.Equal(t, first, h.ID)
				if seen.want == "" {
					assert.Equal(t, row.reason, h.Outcome.Reason)
					assert.NotEqual(t, repo.Succeeded, h.Outcome.Result)
					return
				}
				assert.Equal(t, seen.want, h.Outcome.Result)
				assert.Equal(t, ReasonCompleted, h.Outcome.Reason)
				assert.Equal(t, "2 of 2 tasks of role main succeeded", h.Outcome.Message)
			}
			t.Run(row.name+": "+seen.name, func(t *testing.T) { run(t, false) })
			t.Run(row.name+": "+seen.name+", after that was decided", func(t *testing.T) { run(t, true) })
		}
	}
}

// What is believed to be stuck and turns out to have succeeded is not tried again.
func TestSuccessOfWhatSeemedStuck(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.ProgressDeadline, j.Retry.Limit = 10*time.Minute, 3 })
	w.settle()
	w.start("main-0", "main-1")
	w.settle()
	w.sleep(10 * time.Minute)
	w.decide()
	require.Equal(t, ReasonNoProgress, w.record.Run.Ending.Reason)
	w.end("main-0", 0)
	w.end("main-1", 0)
	w.settle()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.starts, 2)
}

// A role that drains has not succeeded while a task of it is stopped, also by a
// daemon that was killed before its record was pushed; what it only kept waiting
// does not count.
func TestDrainIsStopped(t *testing.T) {
	for _, row := range reasons[:3] {
		t.Run(row.name, func(t *testing.T) {
			w := pushed(t, draining)
			w.settle()
			w.start("main-0", "main-1")
			w.sleep(time.Minute)
			w.end("main-0", 0)
			w.settle()
			require.Equal(t, repo.PhaseRunning, w.record.Phase)
			first := w.record.Run.ID
			w.sleep(time.Minute)
			row.change(w)
			w.act()
			w.kill()
			w.settle()
			require.Equal(t, first, w.record.History[0].ID)
			assert.Equal(t, row.reason, w.record.History[0].Outcome.Reason)
		})
	}
	t.Run("the other was never started", func(t *testing.T) {
		w := pushed(t, draining, func(j *repo.Job) { j.Roles[0].Parallelism = 1 })
		w.settle()
		w.start("main-0")
		w.settle()
		w.edit(func(j *repo.Job) { j.Stop = true })
		w.decide()
		w.end("main-0", 0)
		w.settle()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	})
}

func draining(j *repo.Job) {
	j.Roles[0].Drain, j.Roles[0].MinSucceeded, j.Roles[0].MinFailed = true, 1, repo.Never
}

// uncounted is a job that succeeds when all its tasks have ended, however.
func uncounted(j *repo.Job) {
	j.Success = repo.AnyRole
	j.Roles[0].MinSucceeded, j.Roles[0].MinFailed = repo.Never, repo.Never
}

// What a daemon has deleted, or given up, has not ended by itself.
func TestEndsThatAreOurs(t *testing.T) {
	t.Run("deleted by a daemon that was killed", func(t *testing.T) {
		w := pushed(t, budgets(repo.ByCount, 0, 0), uncounted)
		w.settle()
		w.start("main-0", "main-1")
		w.settle()
		w.sleep(time.Minute)
		w.edit(func(j *repo.Job) { j.Stop = true })
		w.act()
		w.kill()
		w.settle()
		assert.Equal(t, ReasonStopRequested, w.record.Run.Outcome.Reason)
	})
	t.Run("suspended by a daemon that was killed", func(t *testing.T) {
		w := pushed(t, budgets(repo.ByCount, 0, 0))
		w.settle()
		w.start("main-0", "main-1")
		w.settle()
		w.sleep(time.Minute)
		w.edit(func(j *repo.Job) { j.Suspend = true })
		w.act()
		w.kill()
		w.settle()
		assert.Equal(t, repo.PhaseSuspended, w.record.Phase)
		assert.Equal(t, repo.Retries{}, w.task("main-0").Retries)
		w.edit(func(j *repo.Job) { j.Suspend = false })
		w.settle()
		assert.Equal(t, []string{"main-0/0/0", "main-1/0/0", "main-0/0/1", "main-1/0/1"}, w.starts)
	})
	t.Run("cut off", func(t *testing.T) {
		w := pushed(t, single, budgets(repo.ByCount, 0, 0), uncounted)
		w.settle()
		p := w.latest("main-0")
		p.CutOffAt, w.silent[p.Name] = w.now, true
		w.sleep(cutOffPatience)
		w.settle()
		w.push(nil)
		w.settle()
		w.sleep(time.Minute)
		w.endPod(p, 137)
		w.settle()
		assert.Equal(t, ReasonRemoved, w.record.Run.Outcome.Reason)
	})
}

// A success that comes after the failure by which the attempt ends is too late.
func TestSuccessAfterTheFailure(t *testing.T) {
	for _, row := range []struct {
		name   string
		budget int32
		fails  string // with the first one
		later  string // after the success, if any
	}{
		{"a retry that was planned is taken back", 1, "main-1", ""},
		{"another failure comes later still", 0, "", "main-2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := pushed(t, tasks(4), budget(row.budget), func(j *repo.Job) {
				j.Roles[0].SucceedWhen = []repo.SuccessRule{{Count: 1}}
				j.Roles[0].Retry.Backoff = repo.Backoff{Initial: time.Hour, Factor: 1}
			})
			w.settle()
			w.start("main-0", "main-1", "main-2", "main-3")
			w.sleep(time.Minute)
			if row.fails != "" {
				w.end(row.fails, 1)
				w.settle()
				w.sleep(time.Minute)
			}
			w.end("main-0", 1)
			w.decide()
			require.Equal(t, ReasonFailureBudget, w.record.Run.Ending.Reason)
			w.publish()
			w.sleep(10 * time.Second)
			w.end("main-3", 0)
			w.sleep(10 * time.Second)
			if row.later != "" {
				w.end(row.later, 1)
			}
			w.settle()
			assert.Equal(t, ReasonFailureBudget, w.record.Run.Outcome.Reason)
		})
	}
}

// A success that is seen later than the failure of another task, and came first, counts.
func TestSuccessBeforeTheFailure(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.Roles[0].MinSucceeded, j.Retry.Limit = 1, 3 })
	w.settle()
	w.start("main-0", "main-1")
	w.settle()
	w.sleep(time.Minute)
	w.end("main-1", 1)
	w.decide()
	require.Equal(t, repo.Failed, w.record.Run.Ending.Result)
	w.end("main-0", 0)
	w.latest("main-0").EndedAt = w.now.Add(-30 * time.Second)
	w.settle()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.starts, 2)
}

// A change that is first seen together with the success is one to a run that goes on.
func TestChangeThatCameWithTheSuccess(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.OnChange = repo.Ignore })
	w.settle()
	w.start("main-0", "main-1")
	w.settle()
	w.edit(digest("B"))
	w.end("main-0", 0)
	w.end("main-1", 0)
	w.settle()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.starts, 2)
}

// A task that has ended by itself has done so, though its run was stopped
// before anybody saw it; one that was to be tried again is stopped.
func TestTasksThatEndedUnseen(t *testing.T) {
	for _, row := range []struct {
		name  string
		code  int32
		limit int32
		want  repo.TaskPhase
	}{
		{"it succeeded", 0, 0, repo.TaskSucceeded},
		{"it failed", 1, 0, repo.TaskFailed},
		{"it failed, and would be tried again", 1, 1, repo.TaskStopped},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) { j.Roles[0].Retry.Limit = row.limit })
			w.settle()
			w.start("main-0", "main-1")
			w.end("main-0", row.code)
			w.kill()
			w.edit(func(j *repo.Job) { j.Stop = true })
			w.settle()
			assert.Equal(t, repo.Stopped, w.record.Run.Outcome.Result)
			assert.Equal(t, row.want, w.task("main-0").Phase)
			assert.Equal(t, repo.TaskStopped, w.task("main-1").Phase)
			assert.Zero(t, w.task("main-0").Retries.Total)
		})
	}
}

// A run that has succeeded in time has, also when nobody looked until it was past.
func TestSucceededBeforeTheDeadline(t *testing.T) {
	for _, row := range []struct {
		rule         string
		first, after time.Duration // that the tasks end after, one after the other
		want         string
	}{
		{"in time", time.Minute, 58 * time.Minute, ReasonCompleted},
		{"at the deadline", time.Minute, 59 * time.Minute, ReasonCompleted},
		{"one was late", time.Minute, 60 * time.Minute, ReasonDeadline},
		{"one goes on", time.Minute, 0, ReasonDeadline},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) { j.Deadline = time.Hour })
			w.settle()
			w.start("main-0", "main-1")
			w.sleep(row.first)
			w.end("main-0", 0)
			if row.after > 0 {
				w.sleep(row.after)
				w.end("main-1", 0)
			}
			w.sleep(8 * time.Hour)
			w.kill()
			w.settle()
			assert.Equal(t, row.want, w.record.Run.Outcome.Reason)
			assert.Equal(t, repo.Succeeded, w.task("main-0").Attempts[0].Result)
		})
	}
}

// What outlives a run goes on, though its success was seen after its deadline.
func TestBoardOutlivesARunThatNobodySawSucceed(t *testing.T) {
	w := pushed(t, single, withBoard, func(j *repo.Job) { j.Deadline = 12 * time.Hour })
	w.settle()
	w.start("main-0", "board-0")
	w.sleep(time.Hour)
	w.end("main-0", 0)
	w.kill()
	w.sleep(24 * time.Hour)
	w.settle()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Equal(t, []string{"board-0"}, w.live())
}
