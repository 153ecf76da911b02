package runner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// budgets sets the retries of a task and of the run.
func budgets(mode repo.RetryMode, task, run int32) func(*repo.Job) {
	return func(j *repo.Job) {
		j.Retry = repo.Retry{Limit: run, Mode: mode}
		for i := range j.Roles {
			j.Roles[i].Retry = repo.Retry{Limit: task, Mode: mode}
		}
	}
}

func single(j *repo.Job) { j.Roles[0].Replicas, j.Roles[0].MinSucceeded = 1, 1 }

// fail lets main-0 fail with code as often as it is started, at most most times.
func (w *world) fail(code int32, most int) {
	w.settle()
	for range most {
		if len(w.live()) == 0 {
			if w.out.At.IsZero() || w.record.Run.FinishedAt != nil {
				return
			}
			w.wake()
			continue
		}
		w.sleep(time.Minute)
		w.end("main-0", code)
		w.settle()
	}
}

func TestTwoLevelsOfRetry(t *testing.T) {
	for _, row := range []struct {
		rule      string
		mode      repo.RetryMode
		task, run int32
		want      int // starts of main-0
	}{
		{"no retries", repo.ByFault, 0, 0, 1},
		{"a task runs limit+1 times", repo.ByFault, 2, 0, 3},
		{"an attempt runs limit+1 times", repo.ByFault, 0, 2, 3},
		{"both", repo.ByFault, 1, 2, 6},
		{"the seed Framework: maxRetryCount 3, not fancy", repo.ByCount, 3, 3, 16},
		{"fancy, Unknown uses the budget", repo.ByClass, 1, 1, 4},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t, single, budgets(row.mode, row.task, row.run))
			w.fail(1, 50)
			assert.Len(t, w.starts, row.want)
			assert.Equal(t, repo.PhaseFailed, w.record.Phase)
			assert.Equal(t, row.run, w.record.Run.Attempt)
			assert.Equal(t, repo.Retries{Total: row.run, Accountable: row.run}, w.record.Run.Retries)
			assert.Equal(t, repo.Retries{Total: row.task, Accountable: row.task}, w.task("main-0").Retries, "of the last attempt: counters start again with each")
			assert.Len(t, w.record.Attempts, int(row.run))
			assert.Equal(t, fmt.Sprintf("main-0/%d/%d", row.run, row.task), w.starts[row.want-1])
			assert.Equal(t, "main-0", w.record.Run.Outcome.Task)
		})
	}
}

func TestRetriesThatAreFree(t *testing.T) {
	w := pushed(t, single, budgets(repo.ByFault, 1, 0), func(j *repo.Job) {
		j.Rules = []repo.FailureRule{{Name: "Preempted", ExitCodes: codes(99, 99), Class: repo.Transient, Free: true}}
	})
	w.fail(99, 15)
	assert.Len(t, w.starts, 16)
	assert.Equal(t, repo.Retries{Total: 15}, w.task("main-0").Retries)
	assert.Len(t, w.task("main-0").Attempts, repo.MaxAttempts, "a record keeps the latest")
	assert.Equal(t, int32(15), w.task("main-0").Attempts[9].Attempt)
	for _, p := range w.pods {
		assert.Equal(t, !p.Ended(), p.Held, "outcomes that a record no longer has were published, too")
	}
	w.fail(1, 9)
	assert.Len(t, w.starts, 17, "the budget was still whole")
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
}

func TestPermanentIsNotRetried(t *testing.T) {
	w := pushed(t, single, budgets(repo.ByFault, 5, 5), func(j *repo.Job) {
		j.Rules = []repo.FailureRule{{Name: "BadConfig", ExitCodes: codes(2, 2), Class: repo.Permanent}}
	})
	w.fail(2, 9)
	assert.Len(t, w.starts, 1)
	assert.Equal(t, "BadConfig", w.record.Reason)
	assert.Equal(t, repo.Permanent, w.record.Run.Outcome.Class)
	assert.Equal(t, int32(2), *w.record.Run.Outcome.ExitCode)
}

func TestServiceIsStartedAgain(t *testing.T) {
	w := pushed(t, single, budgets(repo.ByClass, repo.Always, 0))
	w.fail(0, 5)
	w.fail(1, 5)
	assert.Len(t, w.starts, 11)
	assert.Equal(t, repo.PhasePending, w.record.Phase)
}

func TestBackoffBetweenAttempts(t *testing.T) {
	w := pushed(t, budgets(repo.ByFault, 1, 1), func(j *repo.Job) {
		j.Roles[0].Retry.Backoff = repo.Backoff{Initial: 10 * time.Second, Factor: 2}
		j.Retry.Backoff = repo.Backoff{Initial: 10 * time.Minute}
	})
	w.settle()
	w.start("main-0", "main-1")
	w.end("main-0", 1)
	w.settle()
	wait := w.out.At.Sub(w.now)
	assert.GreaterOrEqual(t, wait, 8*time.Second, "ends are known to the second: never too early")
	assert.LessOrEqual(t, wait, 12*time.Second)
	assert.Equal(t, repo.TaskRetrying, w.task("main-0").Phase)
	assert.Equal(t, repo.PhaseRunning, w.record.Phase, "the other task runs on")
	at := w.out.At
	w.sleep(3 * time.Second)
	w.kill()
	w.settle()
	assert.Equal(t, at, w.out.At, "a restart changes nothing")
	w.wake()
	assert.Equal(t, "main-0/0/1", w.starts[2])
	w.end("main-0", 1)
	w.settle()
	assert.Equal(t, repo.PhaseRetrying, w.record.Phase)
	assert.Empty(t, w.live())
	assert.GreaterOrEqual(t, w.out.At.Sub(w.now), 8*time.Minute)
	assert.Contains(t, w.record.Message, "attempt 2 starts at")
	w.wake()
	assert.Equal(t, []string{"main-0/1/0", "main-1/1/0"}, w.starts[3:], "all tasks start afresh")
}

func TestSucceededTasksRunAgainInTheNextAttempt(t *testing.T) {
	w := pushed(t, budgets(repo.ByFault, 0, 1))
	w.settle()
	w.end("main-0", 0)
	w.settle()
	w.end("main-1", 1)
	w.succeed()
	assert.Equal(t, []string{"main-0/0/0", "main-1/0/0", "main-0/1/0", "main-1/1/0"}, w.starts)
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	require.Len(t, w.record.Attempts, 1)
	assert.Equal(t, "main-1", w.record.Attempts[0].Task)
	assert.Equal(t, int32(2), w.record.History[0].Attempts)
}

func TestOutcomeIsHeldUntilPublished(t *testing.T) {
	w := pushed(t, single, func(j *repo.Job) { j.Cleanup = repo.Cleanup{Pods: repo.CleanupAll} })
	w.act()
	w.publish()
	w.start("main-0")
	w.end("main-0", 0)
	for range 3 {
		assert.Empty(t, kinds(w.act()), "the outcome is not at the remote")
	}
	w.kill()
	assert.Empty(t, kinds(w.act()))
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase, "found again in the pod")
	w.publish()
	pod := w.pods[0].Name
	assert.Equal(t, []string{"release " + pod}, kinds(w.act()))
	assert.Equal(t, []string{"delete " + pod}, kinds(w.act()))
	assert.Equal(t, []string{"forget " + w.record.Run.ID}, kinds(w.act()))
	assert.Empty(t, kinds(w.act()))
	assert.Empty(t, w.pods)
	w.kill()
	w.settle()
	assert.Len(t, w.starts, 1)
}

func TestReleaseWhileOthersRun(t *testing.T) {
	w := pushed(t, budgets(repo.ByFault, 1, 0))
	w.act()
	w.publish()
	w.end("main-0", 1)
	first := w.pods[0]
	assert.Equal(t, []string{"create main-0/0/1"}, kinds(w.act()))
	w.publish()
	assert.Equal(t, []string{"release " + first.Name}, kinds(w.act()), "held no longer than needed")
	assert.NotNil(t, w.pod(first.Name), "but kept, as its log is of use")
}

func TestCleanup(t *testing.T) {
	for _, row := range []struct {
		rule    string
		cleanup repo.Cleanup
		after   time.Duration
		left    int
	}{
		{"all at once", repo.Cleanup{Pods: repo.CleanupAll}, 0, 0},
		{"all later: not yet", repo.Cleanup{Pods: repo.CleanupAll, After: time.Hour}, time.Hour - time.Second, 2},
		{"all later", repo.Cleanup{Pods: repo.CleanupAll, After: time.Hour}, time.Hour, 0},
		{"what has ended stays", repo.Cleanup{Pods: repo.CleanupRunning}, 1000 * time.Hour, 2},
		{"none", repo.Cleanup{Pods: repo.CleanupNone}, 1000 * time.Hour, 2},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) { j.Cleanup = row.cleanup })
			w.settle()
			w.end("main-0", 0)
			w.end("main-1", 0)
			w.settle()
			w.sleep(row.after)
			w.kill()
			w.settle()
			assert.Len(t, w.pods, row.left)
			assert.Len(t, w.runs, min(1, row.left), "forgotten when nothing is left, not before")
			for _, p := range w.pods {
				assert.False(t, p.Held)
			}
			w.push(nil)
			w.settle()
			assert.Empty(t, w.pods, "a removed job leaves nothing")
			assert.Empty(t, w.runs)
			assert.Len(t, w.starts, 2)
		})
	}
}

func TestDaemonRoleIsStoppedAtTheEnd(t *testing.T) {
	w := pushed(t, func(j *repo.Job) {
		ps := deepCopy(j.Roles[0])
		ps.Name, ps.Daemon = "ps", true
		j.Roles = append(j.Roles, ps)
	})
	w.settle()
	w.start("main-0", "main-1", "ps-0", "ps-1")
	w.sleep(time.Minute)
	w.end("main-0", 0)
	w.settle()
	assert.Len(t, w.live(), 3)
	w.end("main-1", 0)
	w.settle()
	assert.Empty(t, w.live())
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Equal(t, repo.TaskStopped, w.task("ps-0").Phase)
	assert.Equal(t, ReasonRunEnded, w.task("ps-0").Attempts[0].Reason)
}

func TestPodsThatVanish(t *testing.T) {
	for _, row := range []struct {
		rule   string
		harm   func(*world, *Pod)
		reason string
	}{
		{"gone, and nobody knows how it ended", func(w *world, p *Pod) { w.remove(p) }, ReasonPodLost},
		{"deleted by hand", func(w *world, p *Pod) { w.delete(p, false) }, ReasonPodDeleted},
		{"deleted by hand, ended with 0", func(w *world, p *Pod) { p.DeletedAt = w.now; w.endPod(p, 0) }, ReasonPodDeleted},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := pushed(t)
			w.settle()
			w.start("main-0", "main-1")
			w.settle()
			w.sleep(time.Minute)
			row.harm(w, w.pods[0])
			w.settle()
			a := w.task("main-0").Attempts[0]
			assert.Equal(t, row.reason, a.Reason)
			assert.Equal(t, repo.Failed, a.Result)
			assert.True(t, a.Free)
			assert.Equal(t, "main-0/0/1", w.starts[2])
			assert.Equal(t, repo.Retries{Total: 1}, w.task("main-0").Retries)
			w.succeed()
			assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
		})
	}
}

// Why the cluster took a pod counts, by the job's own rule too, and not that it
// was deleted on the way.
func TestPodThatTheClusterTook(t *testing.T) {
	for _, row := range []struct {
		what    string
		rules   []repo.FailureRule
		reasons []string
		free    bool
		reason  string
		retried bool
	}{
		{"a rule forgives it", []repo.FailureRule{{Name: "Taken", Reasons: []string{"DisruptionTarget"}, Class: repo.Transient, Free: true}}, []string{"DisruptionTarget"}, true, "Taken", true},
		{"a rule does not", []repo.FailureRule{{Name: "Enough", Reasons: []string{"DisruptionTarget"}, Class: repo.Permanent}}, []string{"DisruptionTarget"}, false, "Enough", false},
		{"a rule of something else", []repo.FailureRule{{Name: "Other", Reasons: []string{"Other"}, Class: repo.Permanent}}, nil, true, ReasonPodDeleted, true},
	} {
		t.Run(row.what, func(t *testing.T) {
			w := pushed(t, func(j *repo.Job) { j.Rules = row.rules })
			w.settle()
			w.start("main-0", "main-1")
			w.settle()
			w.sleep(time.Minute)
			p := w.latest("main-0")
			p.DeletedAt, p.DeleteBy = w.now, w.now.Add(30*time.Second)
			p.Failure.Reasons = row.reasons
			w.endPod(p, 143)
			w.settle()
			a := w.task("main-0").Attempts[0]
			assert.Equal(t, repo.Failed, a.Result)
			assert.Equal(t, row.reason, a.Reason)
			assert.Equal(t, row.free, a.Free)
			assert.Equal(t, row.retried, len(w.starts) == 3, "%v", w.starts)
		})
	}
}

func TestRefusedPod(t *testing.T) {
	w := pushed(t, budgets(repo.ByFault, 3, 3))
	name := repo.PodName(repo.RunID("default", w.key, "A", repo.Trigger{Kind: repo.TriggerPush}), repo.TaskAttempt{Task: repo.Task{Role: "main", Index: 1}})
	w.refuse[name] = "spec.containers[0].image: Required value"
	w.settle()
	assert.Equal(t, repo.PhaseFailed, w.record.Phase)
	assert.Equal(t, ReasonPodRefused, w.record.Reason)
	assert.Contains(t, w.record.Message, "Required value")
	assert.Empty(t, w.live())
	assert.Len(t, w.starts, 1, "what is refused is not asked for again")
}

func TestTroublesAreTold(t *testing.T) {
	w := pushed(t)
	w.decide()
	w.troubles[w.out.Actions[0].Pod] = "exceeded quota: pods=10"
	out := w.decide()
	assert.Equal(t, "main-0: exceeded quota: pods=10", out.Record.Message)
	assert.Len(t, out.Actions, 2, "asked for again")
	w.troubles = map[string]string{}
	w.settle()
	assert.Empty(t, w.record.Message)
}

func TestMessagesAreBounded(t *testing.T) {
	w := pushed(t, single)
	w.settle()
	p := w.latest("main-0")
	w.end("main-0", 1)
	p.Failure.Reasons, p.Failure.Message = []string{"Evicted"}, strings.Repeat("ö", 5000)
	w.settle()
	assert.LessOrEqual(t, len(w.record.Message), repo.MaxMessage)
	assert.LessOrEqual(t, len(w.record.Run.Outcome.Message), repo.MaxMessage)
}

func TestAvoidedNodesAndTails(t *testing.T) {
	w := pushed(t, single, budgets(repo.ByFault, 2, 0), func(j *repo.Job) {
		j.Rules = []repo.FailureRule{{LogPattern: "ECC", Class: repo.Transient, AvoidNode: true}}
	})
	w.settle()
	w.end("main-0", 1)
	w.latest("main-0").Tail = "uncorrectable ECC error"
	w.settle()
	w.end("main-0", 1)
	w.settle()
	assert.Equal(t, []string{"node-1"}, w.record.Run.AvoidNodes)
	a := w.task("main-0").Attempts
	assert.Equal(t, repo.TailPath(w.record.Run.ID, repo.TaskAttempt{Task: repo.Task{Role: "main"}}), a[0].Log)
	assert.Empty(t, a[1].Log, "no log, no path to it")
}
