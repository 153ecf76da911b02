package runner

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// tasks gives the job's only role n tasks, all of which have to succeed, and
// retries without limit.
func tasks(n int32) func(*repo.Job) {
	return func(j *repo.Job) {
		r := &j.Roles[0]
		r.Replicas, r.MinSucceeded, r.MinFailed = n, n, repo.Never
		r.Retry = repo.Retry{Limit: repo.Unlimited, Mode: repo.ByFault}
	}
}

func budget(n int32) func(*repo.Job) {
	return func(j *repo.Job) { j.FailureBudget = &n }
}

func TestFailureBudgetIsOfAllTasksTogether(t *testing.T) {
	for _, row := range []struct {
		budget   int32
		failures []string // in turn
		failed   bool
	}{
		{0, []string{"main-0"}, true},
		{1, []string{"main-0"}, false},
		{1, []string{"main-0", "main-1"}, true},
		{2, []string{"main-0", "main-0", "main-0"}, true},
		{3, []string{"main-0", "main-1", "main-2"}, false},
	} {
		t.Run(fmt.Sprint(row.budget, row.failures), func(t *testing.T) {
			w := pushed(t, tasks(3), budget(row.budget))
			w.settle()
			for _, task := range row.failures {
				require.Nil(t, w.record.Run.Ending)
				w.sleep(time.Second)
				w.end(task, 1)
				w.settle()
			}
			require.Equal(t, row.failed, w.record.Run.FinishedAt != nil)
			if row.failed {
				assert.Equal(t, repo.PhaseFailed, w.record.Phase)
				assert.Equal(t, ReasonFailureBudget, w.record.Reason)
				assert.Empty(t, w.live())
			}
		})
	}
}

func TestFreeFailuresUseNoFailureBudget(t *testing.T) {
	w := pushed(t, tasks(1), budget(0), func(j *repo.Job) {
		j.Rules = []repo.FailureRule{{ExitCodes: codes(9, 9), Class: repo.Transient, Free: true}}
	})
	w.settle()
	for range 3 {
		w.sleep(time.Second)
		w.end("main-0", 9)
		w.settle()
	}
	require.Nil(t, w.record.Run.FinishedAt)
	w.sleep(time.Second)
	w.end("main-0", 1)
	w.settle()
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
}

func TestRuleThatFailsTheRun(t *testing.T) {
	w := pushed(t, tasks(2), func(j *repo.Job) {
		j.Rules = []repo.FailureRule{{Name: "Fatal", ExitCodes: codes(42, 42), Class: repo.Unknown, FailRun: true}}
	})
	w.settle()
	w.sleep(time.Second)
	w.end("main-1", 42)
	w.settle()
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
	assert.Equal(t, "Fatal", w.record.Reason)
	assert.Equal(t, "main-1", w.record.Run.Outcome.Task)
	assert.Equal(t, []string{"main-0/0/0", "main-1/0/0"}, w.starts, "nothing is tried again")
}

func TestParallelism(t *testing.T) {
	w := pushed(t, tasks(5), func(j *repo.Job) { j.Roles[0].Parallelism = 2 })
	w.settle()
	assert.Equal(t, []string{"main-0", "main-1"}, w.live())
	w.sleep(time.Second)
	w.end("main-1", 0)
	w.settle()
	assert.Equal(t, []string{"main-0", "main-2"}, w.live())
	w.end("main-0", 1) // its retry keeps the place
	w.settle()
	assert.Equal(t, []string{"main-2", "main-0"}, w.live())
	for _, task := range []string{"main-2", "main-0", "main-3", "main-4"} {
		w.sleep(time.Second)
		w.end(task, 0)
		w.settle()
	}
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.starts, 6)
}

func TestDrainWaitsForTheOthersAndStartsNone(t *testing.T) {
	w := pushed(t, tasks(4), func(j *repo.Job) {
		j.Roles[0].MinSucceeded, j.Roles[0].Drain = 1, true
		j.Roles[0].Retry.Backoff = repo.Backoff{Initial: time.Hour, Factor: 1}
	})
	w.settle()
	w.sleep(time.Second)
	w.end("main-0", 1) // would be tried again in an hour
	w.settle()
	w.sleep(time.Second)
	w.end("main-1", 0)
	w.settle()
	require.Nil(t, w.record.Run.FinishedAt, "two tasks go on")
	w.end("main-2", 1)
	w.settle()
	require.Nil(t, w.record.Run.FinishedAt)
	w.sleep(time.Second)
	w.end("main-3", 0)
	w.settle()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.starts, 4)
}

func TestSuccessRules(t *testing.T) {
	for _, row := range []struct {
		rule  repo.SuccessRule
		order []string
		after int // of these the role has succeeded
	}{
		{repo.SuccessRule{Indexes: codes(0, 0)}, []string{"main-2", "main-1", "main-0"}, 3},
		{repo.SuccessRule{Indexes: codes(0, 1)}, []string{"main-1", "main-2", "main-0"}, 3},
		{repo.SuccessRule{Count: 2}, []string{"main-3", "main-1"}, 2},
		{repo.SuccessRule{Indexes: codes(1, 3), Count: 1}, []string{"main-0", "main-2"}, 2},
		{repo.SuccessRule{}, []string{"main-3", "main-1", "main-0", "main-2"}, 4},
	} {
		t.Run(fmt.Sprint(row.rule), func(t *testing.T) {
			w := pushed(t, tasks(4), func(j *repo.Job) { j.Roles[0].SucceedWhen = []repo.SuccessRule{row.rule} })
			w.settle()
			for i, task := range row.order {
				w.sleep(time.Second)
				w.end(task, 0)
				w.settle()
				require.Equal(t, i+1 == row.after, w.record.Run.FinishedAt != nil, "after %s", task)
			}
			assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		})
	}
}

// TestSuspendedAndResumedBeforeThePush: a daemon that was killed asked a task to
// end and has started it again since. That is no failure, and no retry of one
// that the job's budget would not have let be.
func TestSuspendedAndResumedBeforeThePush(t *testing.T) {
	w := pushed(t, tasks(1), budget(0), func(j *repo.Job) { j.Roles[0].Retry = repo.Retry{Limit: 3, Mode: repo.ByCount} })
	w.settle()
	w.start("main-0")
	w.settle()
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.act()
	w.edit(func(j *repo.Job) { j.Suspend = false })
	for range 3 {
		w.act()
	}
	require.Len(t, w.starts, 2)
	w.kill()
	w.settle()
	assert.Equal(t, repo.Stopped, w.task("main-0").Attempts[0].Result)
	assert.Zero(t, w.task("main-0").Retries.Total)
	assert.Equal(t, []string{"main-0"}, w.live())
}
