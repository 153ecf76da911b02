package runner

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// pushed is a repository with one job of two tasks, main-0 and main-1.
func pushed(t *testing.T, change ...func(*repo.Job)) *world {
	job := trainJob("mnist", "A", 2, 0)
	for _, f := range change {
		f(&job)
	}
	return newWorld(t, &job)
}

// digest is an edit that changes what runs.
func digest(d string) func(*repo.Job) { return func(j *repo.Job) { j.Digest, j.Shape = d, d } }

// succeed lets every pod that lives end well, until the run has ended.
func (w *world) succeed() {
	w.settle()
	for range 10 {
		for _, task := range w.live() {
			w.sleep(time.Minute)
			w.end(task, 0)
		}
		w.settle()
		if len(w.live()) == 0 {
			return
		}
	}
	require.Fail(w.t, "does not end")
}

// ran are the digests of the finished runs.
func (w *world) ran() []string {
	out := []string{}
	for _, s := range w.record.History {
		out = append(out, s.Digest)
	}
	return out
}

func TestOneRunForEachPush(t *testing.T) {
	w := pushed(t)
	out := w.act()
	assert.Equal(t, []string{"create main-0/0/0", "create main-1/0/0"}, kinds(out))
	assert.Equal(t, repo.PhasePending, out.Record.Phase)
	assert.Equal(t, "r1", out.Record.ObservedRevision)
	require.NotNil(t, out.Run)
	assert.Equal(t, repo.RunID("default", w.key, "A", repo.Trigger{Kind: repo.TriggerPush}), out.Run.ID)

	assert.Empty(t, kinds(w.act()), "both pods are there")
	w.start("main-0", "main-1")
	assert.Equal(t, repo.PhaseRunning, w.act().Record.Phase)
	w.sleep(time.Minute)
	w.end("main-0", 0)
	assert.Equal(t, repo.PhaseRunning, w.act().Record.Phase)
	assert.False(t, w.out.Settled)
	w.sleep(time.Minute)
	w.end("main-1", 0)
	out = w.act()
	assert.Equal(t, repo.PhaseSucceeded, out.Record.Phase)
	assert.Equal(t, w.now, out.Record.Run.FinishedAt.Time)
	assert.True(t, out.Settled)
	assert.Equal(t, []string{"A"}, w.ran())

	w.push(w.job) // a commit that changes a comment
	w.settle()
	w.sleep(24 * time.Hour)
	w.settle()
	assert.Equal(t, "r1", w.record.ObservedRevision, "nothing of the record follows from a comment")
	w.kill()
	w.settle()
	assert.Len(t, w.starts, 2, "no second run: not by a comment, not by time, not by a restart")
}

func TestChangedDefinition(t *testing.T) {
	for _, row := range []struct {
		policy   repo.OnChange
		stops    bool
		ran      []string
		upToDate string
	}{
		{repo.Finish, false, []string{"A", "B"}, "WaitsForRun"},
		{repo.Restart, true, []string{"A", "B"}, "Current"},
		{repo.Ignore, false, []string{"A"}, "Ignored"},
	} {
		t.Run(string(row.policy), func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) { j.OnChange = row.policy })
			w.settle()
			w.start("main-0", "main-1")
			w.edit(digest("B"))
			w.settle()
			stopped := w.record.Run.Digest == "B"
			assert.Equal(t, row.stops, stopped)
			if row.stops {
				assert.Equal(t, []string{"A"}, w.ran())
				assert.Equal(t, repo.Stopped, w.record.History[0].Result)
				assert.Equal(t, ReasonReplaced, w.record.History[0].Reason)
			}
			assert.Equal(t, row.upToDate, w.record.Conditions[1].Reason)
			w.succeed()
			assert.Equal(t, row.ran, w.ran())
			w.edit(digest("A"))
			w.succeed()
			w.edit(digest("B"))
			w.succeed()
			assert.Equal(t, row.ran, w.ran(), "what has run does not run again by a revert and its revert")
			w.edit(digest("C"))
			w.succeed()
			assert.Equal(t, append(row.ran, "C"), w.ran())
		})
	}
}

func TestChangeAndBackWhileItRuns(t *testing.T) {
	w := pushed(t)
	w.settle()
	w.edit(digest("B"))
	w.settle()
	w.edit(digest("A"))
	w.succeed()
	assert.Equal(t, []string{"A"}, w.ran())
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
}

func TestReplacedPodsEndBeforeNewOnesStart(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.OnChange = repo.Restart })
	w.settle()
	w.stubborn = true
	w.edit(digest("B"))
	w.settle()
	assert.Len(t, w.starts, 2)
	assert.Equal(t, "Stopping", w.record.Reason)
	w.endPod(w.latest("main-0"), 143)
	w.settle()
	assert.Len(t, w.starts, 2, "one of them still runs")
	w.endPod(w.latest("main-1"), 143)
	w.settle()
	assert.Len(t, w.starts, 4)
	assert.Equal(t, "B", w.record.Run.Digest)
}

func TestRerun(t *testing.T) {
	w := pushed(t)
	w.succeed()
	rerun := func(value string) { w.edit(func(j *repo.Job) { j.Rerun = value }) }
	rerun("1")
	w.succeed()
	assert.Equal(t, []string{"A", "A"}, w.ran())
	assert.Equal(t, repo.Trigger{Kind: repo.TriggerRerun, Value: "1"}, w.record.Run.Trigger)
	w.settle()
	rerun("2")
	w.succeed()
	rerun("1")
	w.succeed()
	assert.Len(t, w.ran(), 3, "a value that was acted upon is used up")
	rerun("")
	w.succeed()
	assert.Len(t, w.ran(), 3)
}

// However many runs come after it, a finished run does not run again.
func TestOldRunsDoNotRunAgain(t *testing.T) {
	w := pushed(t)
	w.succeed()
	w.edit(func(j *repo.Job) { j.Digest, j.Rerun = "again", "1" })
	w.succeed()
	for i := range 2 * repo.KeptRuns {
		w.edit(func(j *repo.Job) { j.Digest, j.Rerun = fmt.Sprint("later-", i), "" })
		w.succeed()
	}
	runs := 2*repo.KeptRuns + 2
	require.Less(t, len(w.record.History), runs, "the first runs are not kept whole")
	require.Equal(t, runs, w.record.Runs())
	for _, job := range []struct{ digest, rerun string }{{"A", ""}, {"again", ""}, {"again", "1"}, {"A", "1"}, {"later-0", ""}} {
		w.edit(func(j *repo.Job) { j.Digest, j.Rerun = job.digest, job.rerun })
		w.settle()
		require.Equal(t, runs, w.record.Runs(), "%s", job)
		require.NotNil(t, w.record.Run.FinishedAt, "%s", job)
		w.kill()
		w.settle()
		require.NotNil(t, w.record.Run.FinishedAt, "%s after a restart", job)
	}
	w.edit(func(j *repo.Job) { j.Rerun = "2" })
	w.settle()
	require.Equal(t, runs+1, w.runs[len(w.runs)-1].Number)
}

func TestRerunStaysInTheFile(t *testing.T) {
	rerun := func(j *repo.Job) { j.Rerun = "1" }
	t.Run("a change after it is one run", func(t *testing.T) {
		w := pushed(t)
		w.succeed()
		w.edit(rerun)
		w.succeed()
		w.edit(digest("B"))
		w.succeed()
		assert.Equal(t, []string{"A", "A", "B"}, w.ran())
		w.edit(func(j *repo.Job) { j.Rerun = "" })
		w.succeed()
		assert.Equal(t, []string{"A", "A", "B"}, w.ran(), "taking the annotation away starts nothing")
	})
	t.Run("from the first push on", func(t *testing.T) {
		w := pushed(t, rerun)
		w.succeed()
		w.edit(func(j *repo.Job) { j.Rerun = "" })
		w.succeed()
		assert.Equal(t, []string{"A"}, w.ran())
	})
	t.Run("a changed schedule waits for its time", func(t *testing.T) {
		w := pushed(t, rerun, func(j *repo.Job) { j.Schedule = &repo.Schedule{Cron: "0 2 * * *", Concurrency: repo.Forbid} })
		w.succeed()
		w.edit(digest("B"))
		w.succeed()
		assert.Equal(t, []string{"A"}, w.ran())
	})
	t.Run("Ignore holds for a change after it", func(t *testing.T) {
		w := pushed(t, rerun, func(j *repo.Job) { j.OnChange = repo.Ignore })
		w.settle()
		w.edit(digest("B"))
		w.succeed()
		assert.Equal(t, []string{"A"}, w.ran())
	})
	t.Run("a rescale is no new run", func(t *testing.T) {
		w := pushed(t, rerun, func(j *repo.Job) { j.Rescale = true })
		w.settle()
		w.edit(scale(3))
		w.succeed()
		assert.Len(t, w.ran(), 1)
	})
}

func TestNothingStarts(t *testing.T) {
	for _, row := range []struct {
		rule   string
		change func(*world)
		phase  repo.Phase
		reason string
	}{
		{"stop", func(w *world) { w.job.Stop = true }, repo.PhaseStopped, ReasonStopRequested},
		{"suspend", func(w *world) { w.job.Suspend = true }, repo.PhaseSuspended, ReasonSuspended},
		{"executionType Create", func(w *world) { w.job.Hold = true }, repo.PhaseWaiting, "Held"},
		{"policy", func(w *world) { w.forbidden = "no host network" }, repo.PhaseWaiting, "PolicyForbids"},
		{"invalid from the start", func(w *world) {
			w.invalid = &repo.Invalid{Key: w.key, Errors: []*repo.Error{{File: "jobs/mnist.yaml", Line: 3, Message: "no"}}}
		}, repo.PhaseInvalid, "DefinitionInvalid"},
		{"removed before anything began", func(w *world) { w.job = nil }, repo.PhaseRemoved, ReasonRemoved},
		{"withheld", func(w *world) { w.job, w.withheld = nil, "all are gone" }, repo.PhaseWaiting, "NotStarted"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t)
			job := deepCopy(w.job)
			row.change(w)
			w.settle()
			assert.Equal(t, row.phase, w.record.Phase)
			assert.Equal(t, row.reason, w.record.Reason)
			assert.True(t, w.out.Settled)
			assert.Empty(t, w.starts)
			w.invalid, w.withheld, w.forbidden = nil, "", ""
			w.push(job)
			w.succeed()
			assert.Equal(t, []string{"A"}, w.ran(), "it starts when nothing keeps it any more")
			assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		})
	}
}

func scale(replicas int32) func(*repo.Job) {
	return func(j *repo.Job) {
		j.Digest = "A" + string('0'+replicas)
		j.Roles[0].Replicas, j.Roles[0].MinSucceeded = replicas, replicas
	}
}

func TestRescale(t *testing.T) {
	rescaled := func(j *repo.Job) { j.Rescale = true }
	t.Run("up", func(t *testing.T) {
		w := pushed(t, rescaled)
		w.settle()
		w.start("main-0", "main-1")
		w.edit(scale(4))
		w.settle()
		assert.Equal(t, []string{"main-0/0/0", "main-1/0/0", "main-2/0/0", "main-3/0/0"}, w.starts)
		w.succeed()
		assert.Equal(t, []string{"A4"}, w.ran(), "no run of its own")
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		assert.Equal(t, "Current", w.record.Conditions[1].Reason)
	})
	t.Run("down", func(t *testing.T) {
		w := pushed(t, rescaled, func(j *repo.Job) { j.Roles[0].Replicas, j.Roles[0].MinSucceeded = 4, 4 })
		w.settle()
		w.start("main-0", "main-1", "main-2", "main-3")
		w.edit(scale(2))
		w.settle()
		assert.Equal(t, []string{"main-0", "main-1"}, w.live())
		assert.Equal(t, ReasonScaledDown, w.task("main-3").Attempts[0].Reason)
		w.succeed()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		assert.Len(t, w.starts, 4)
	})
	t.Run("down, and the definition changes", func(t *testing.T) {
		w := pushed(t, rescaled, func(j *repo.Job) { j.Roles[0].Replicas, j.Roles[0].MinSucceeded = 4, 4 })
		w.settle()
		w.edit(scale(2))
		w.settle()
		w.edit(digest("B"))
		w.succeed()
		assert.Equal(t, []string{"A2", "B"}, w.ran())
	})
	t.Run("down and up again", func(t *testing.T) {
		w := pushed(t, rescaled)
		w.settle()
		w.edit(scale(1))
		w.settle()
		w.edit(scale(2))
		w.settle()
		assert.Equal(t, []string{"main-0", "main-1"}, w.live())
		assert.Equal(t, []string{"main-0/0/0", "main-1/0/0", "main-1/0/1"}, w.starts)
		assert.Zero(t, w.task("main-1").Retries.Total, "not a retry")
		w.succeed()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	})
	t.Run("down and up again, and the push is lost", func(t *testing.T) {
		w := pushed(t, rescaled, func(j *repo.Job) { j.Roles[0].Replicas, j.Roles[0].MinSucceeded = 2, 2 })
		w.settle()
		w.start("main-0", "main-1")
		w.end("main-1", 0)
		w.settle()
		w.edit(scale(1))
		w.settle()
		w.edit(scale(2))
		w.act()
		w.kill()
		w.settle()
		assert.Equal(t, []string{"main-0/0/0", "main-1/0/0", "main-1/0/1"}, w.starts)
		assert.Zero(t, w.task("main-1").Retries.Total, "not a retry")
	})
	t.Run("a lost push is made up for", func(t *testing.T) {
		w := pushed(t, rescaled)
		w.settle()
		w.edit(scale(3))
		w.act()
		w.kill()
		w.edit(digest("B"))
		w.succeed()
		assert.Len(t, w.ran(), 2)
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	})
	t.Run("up and down again, and the push is lost", func(t *testing.T) {
		w := pushed(t, rescaled)
		w.settle()
		w.start("main-0", "main-1")
		w.settle()
		w.edit(scale(4))
		w.act()
		require.Len(t, w.starts, 4)
		w.kill()
		w.edit(scale(2))
		w.settle()
		assert.Equal(t, []string{"main-0", "main-1"}, w.live())
		for _, name := range []string{"main-2", "main-3"} {
			assert.Equal(t, ReasonScaledDown, w.task(name).Attempts[0].Reason, "%s was started, and how it ended is told", name)
		}
		w.succeed()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		assert.Len(t, w.starts, 4)
	})
	t.Run("up, as the last one ends", func(t *testing.T) {
		w := pushed(t, rescaled)
		w.settle()
		w.start("main-0", "main-1")
		w.end("main-0", 0)
		w.end("main-1", 0)
		w.edit(scale(3))
		w.settle()
		assert.Equal(t, []string{"main-2"}, w.live(), "the run is over when all three have succeeded")
		w.succeed()
		assert.Equal(t, []string{"A3"}, w.ran())
	})
	t.Run("only where the format allows it", func(t *testing.T) {
		w := pushed(t)
		w.settle()
		w.edit(scale(4))
		w.settle()
		assert.Len(t, w.starts, 2)
		w.succeed()
		assert.Equal(t, []string{"A", "A4"}, w.ran())
	})
}
