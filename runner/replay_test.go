package runner

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// replay is what a new daemon makes of the same pods, from the record that the
// remote has: the lost one, if nothing of it was lost.
func (w *world) replay() repo.Record {
	again := *w
	again.pods = deepCopy(w.pods)
	again.kill()
	for range 100 {
		record := again.record
		if again.decide(); reflect.DeepEqual(record, again.record) {
			break
		}
	}
	return again.record
}

// plain is a record without what depends on when it was looked at.
func plain(r repo.Record) repo.Record {
	r = deepCopy(r)
	r.Conditions, r.ObservedRevision, r.Message = nil, "", ""
	if r.Run != nil {
		r.Run.AttemptAt, r.Run.RunningAt = nil, nil
	}
	for i := range r.Attempts {
		r.Attempts[i].StartedAt, r.Attempts[i].FinishedAt = metav1.Time{}, metav1.Time{}
	}
	return r
}

func TestKilledDaemonFindsTheSame(t *testing.T) {
	w := pushed(t, budgets(repo.ByFault, 1, 2))
	same := func() {
		t.Helper()
		for len(w.act().Actions) > 0 {
		}
		require.Equal(t, plain(w.record), plain(w.replay()))
	}
	same() // nothing was ever published
	w.start("main-0", "main-1")
	same()
	for range 2 {
		w.sleep(time.Minute)
		w.end("main-0", 1)
		same()
	}
	w.sleep(time.Minute)
	assert.Equal(t, int32(1), w.record.Run.Attempt)
	w.end("main-0", 0)
	same()
	w.sleep(time.Minute)
	w.end("main-1", 0)
	same()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Len(t, w.starts, 5)
	assert.Len(t, w.pods, 5, "all of them hold their outcomes")
	w.kill()
	w.settle()
	assert.Len(t, w.starts, 5)
}

// Whatever was published last, what follows is the same.
func TestKilledDaemonWithAnOldRecord(t *testing.T) {
	for stop := range 8 {
		w := pushed(t, budgets(repo.ByFault, 1, 2))
		ends := []int32{1, 1, 0, 1, 1, 0, 0}
		for i := range ends {
			w.act()
			if i == stop {
				w.publish()
			}
			w.act()
			live := w.live()
			if len(live) == 0 {
				break
			}
			w.sleep(time.Minute)
			w.end(live[0], ends[i])
		}
		w.act()
		assert.Equal(t, plain(w.record), plain(w.replay()), "published after %d ends", stop)
	}
}

// A failure that ended the attempt, and the pods that were asked to end because
// of it, all within a second: a daemon that lost its record must not take the
// pods that it ended itself for the reason.
func TestKilledDaemonKnowsWhoFailed(t *testing.T) {
	for _, success := range []repo.Success{repo.AllRoles, repo.AnyRole} {
		for _, mode := range []repo.RetryMode{repo.ByFault, repo.ByClass, repo.ByCount} {
			w := pushed(t, budgets(mode, 0, 1), func(j *repo.Job) {
				j.Success = success
				j.Rules = []repo.FailureRule{{ExitCodes: codes(2, 2), Class: repo.Permanent}}
			})
			w.settle()
			w.start("main-0", "main-1")
			w.settle()
			w.sleep(time.Minute)
			w.end("main-1", 2)
			w.act() // main-0 is asked to end, and does so at once
			w.kill()
			w.settle()
			if mode == repo.ByCount {
				require.Len(t, w.record.Attempts, 1)
				assert.Equal(t, "main-1", w.record.Attempts[0].Task)
				continue
			}
			require.NotNil(t, w.record.Run.Outcome, "%s %s: it was Permanent", success, mode)
			assert.Equal(t, "main-1", w.record.Run.Outcome.Task)
			assert.Len(t, w.starts, 2)
		}
	}
}

// The same of a success, and of a suspension.
func TestKilledDaemonKnowsWhatItStopped(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		w := pushed(t, budgets(repo.ByCount, 0, 0), func(j *repo.Job) {
			ps := deepCopy(j.Roles[0])
			ps.Name, ps.MinSucceeded = "ps", repo.Never
			j.Roles = []repo.Role{ps, j.Roles[0]}
			j.Roles[1].Replicas, j.Roles[1].MinSucceeded = 1, 1
			j.Success = repo.AnyRole
		})
		w.settle()
		w.start("ps-0", "ps-1", "main-0")
		w.settle()
		w.sleep(time.Minute)
		w.end("main-0", 0)
		w.act()
		w.kill()
		w.settle()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	})
	t.Run("suspension", func(t *testing.T) {
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
		w.edit(func(j *repo.Job) { j.Suspend = false })
		w.succeed()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	})
}

func TestRunThatTheRecordDoesNotKnow(t *testing.T) {
	w := pushed(t)
	w.act()
	run := w.record.Run.ID
	w.kill()
	w.edit(digest("B"))
	w.settle()
	assert.Equal(t, run, w.record.Run.ID, "what was started goes on, as it was defined")
	assert.Len(t, w.starts, 2)
	w.succeed()
	assert.Equal(t, []string{"A", "B"}, w.ran())
}

func TestUnknownRunOfARemovedJob(t *testing.T) {
	w := pushed(t)
	w.act()
	w.kill()
	w.push(nil)
	w.settle()
	assert.Equal(t, repo.PhaseRemoved, w.record.Phase)
	assert.Empty(t, w.pods)
	assert.Len(t, w.record.History, 1)
}

func TestBackendThatLostItsRuns(t *testing.T) {
	t.Run("the repository still has the definition", func(t *testing.T) {
		w := pushed(t)
		w.settle()
		w.runs = nil
		w.kill()
		w.succeed()
		assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		assert.Len(t, w.starts, 2)
	})
	t.Run("nobody has it", func(t *testing.T) {
		w := pushed(t)
		w.settle()
		w.edit(digest("B"))
		w.runs = nil
		w.kill()
		w.settle()
		assert.Equal(t, ReasonDefinitionLost, w.record.History[0].Reason)
		assert.Equal(t, "B", w.record.Run.Digest)
		assert.Len(t, w.live(), 2, "those of B: what nobody can continue was ended")
	})
	t.Run("nobody has it, and its record is an attempt behind", func(t *testing.T) {
		w := pushed(t, budgets(repo.ByFault, 0, 1))
		w.settle()
		w.start("main-0", "main-1")
		w.settle()
		w.publish()
		w.end("main-0", 1)
		w.act() // the other one is to end
		w.sleep(time.Hour)
		w.act()
		require.Len(t, w.starts, 4)
		w.edit(digest("B"))
		w.runs = nil
		for _, p := range w.pods { // whose owner is gone
			w.delete(p, false)
		}
		w.kill()
		w.settle()
		require.Equal(t, ReasonDefinitionLost, w.record.History[0].Reason)
		assert.EqualValues(t, 2, w.record.History[0].Attempts)
		assert.EqualValues(t, 1, w.record.History[0].Retries.Total)
		assert.Len(t, w.pods, 2, "those of B: the others are known, and let go")
	})
	t.Run("nobody has it, when it had given way to others", func(t *testing.T) {
		w := pushedGang(t)
		w.settle()
		w.record.Run.Ending = &repo.Outcome{Result: repo.Failed, Class: repo.Transient, Free: true, Reason: ReasonGangReleased}
		w.edit(digest("B"))
		w.runs = nil
		w.settle()
		assert.Equal(t, ReasonDefinitionLost, w.record.History[0].Reason, "which is why it is not tried again")
	})
	t.Run("nobody has it, when it had succeeded already", func(t *testing.T) {
		w := pushed(t, func(j *repo.Job) {
			j.Roles = append(j.Roles, deepCopy(j.Roles[0]))
			j.Roles[1].Name, j.Roles[1].Daemon = "ps", true
		})
		w.settle()
		w.stubborn = true
		w.end("main-0", 0)
		w.end("main-1", 0)
		w.settle()
		assert.Equal(t, "AttemptEnding", w.record.Reason)
		w.edit(digest("B"))
		w.runs = nil
		w.settle()
		w.endPod(w.latest("ps-0"), 0)
		w.endPod(w.latest("ps-1"), 0)
		w.settle()
		assert.Equal(t, repo.Succeeded, w.record.History[0].Result)
	})
}

// A pod that vanished although it was held, and a record that was lost: what
// came after it tells that it was started.
func TestLostPodBeforeALostRecord(t *testing.T) {
	w := pushed(t, single)
	w.act()
	w.act()
	w.remove(w.pods[0])
	w.act()
	require.Equal(t, []string{"main-0/0/0", "main-0/0/1"}, w.starts)
	w.kill()
	w.act()
	assert.Equal(t, []string{"main-0/0/0", "main-0/0/1"}, w.starts)
}

// A creation whose pod shows up late.
func TestPodThatShowsUpLate(t *testing.T) {
	w := pushed(t)
	w.act()
	for _, p := range w.pods {
		w.hidden[p.Name] = true
	}
	assert.Len(t, w.act().Actions, 2, "asked for again, which is harmless")
	w.edit(func(j *repo.Job) { j.Stop = true })
	w.settle()
	assert.Equal(t, repo.PhaseStopped, w.record.Phase)
	w.hidden = map[string]bool{}
	w.settle()
	assert.Empty(t, w.live(), "ended when they are seen")
	w.sleep(2 * time.Hour)
	w.settle()
	assert.Empty(t, w.pods)
}

// A definition that was lost and comes back does not go past the run that began meanwhile.
func TestDefinitionThatComesBack(t *testing.T) {
	w := pushed(t, digest("A"))
	w.settle()
	w.edit(digest("B"))
	w.runs = nil
	for _, p := range w.pods {
		w.delete(p, false)
	}
	w.act() // ends the run of A, and begins that of B
	require.Equal(t, "B", w.record.Run.Digest)
	starts := len(w.starts)
	w.edit(digest("A"))
	w.kill()
	w.settle()
	assert.Equal(t, "B", w.record.Run.Digest)
	assert.Len(t, w.starts, starts)
}

// A pod that was deleted by hand, and tried again by a daemon that was killed
// before it could say so, was not suspended and resumed: it counts as it did.
func TestDeletedByHandBeforeTheRecordWasPushed(t *testing.T) {
	for _, row := range []struct {
		mode repo.RetryMode
		want repo.Retries
	}{
		{repo.ByFault, repo.Retries{Total: 1}},
		{repo.ByCount, repo.Retries{Total: 1, Accountable: 1}},
	} {
		w := pushed(t, budgets(row.mode, 2, 0))
		w.settle()
		w.start("main-0", "main-1")
		w.settle()
		w.sleep(time.Minute)
		w.delete(w.latest("main-0"), false)
		w.act()
		w.act()
		require.Equal(t, row.want, w.task("main-0").Retries)
		require.Len(t, w.starts, 3)
		w.kill()
		w.settle()
		assert.Equal(t, ReasonPodDeleted, w.task("main-0").Attempts[0].Reason)
		assert.Equal(t, row.want, w.task("main-0").Retries)
		assert.Len(t, w.starts, 3)
	}
}
