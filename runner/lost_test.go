package runner

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// loseNode lets a task's node fall silent, and the cluster ask its pod to end.
func (w *world) loseNode(task string) *Pod {
	p := w.latest(task)
	w.silent[p.Name] = true
	p.Waiting = "node " + p.Node + " does not answer since 2026-03-02 09:14:05 UTC"
	p.DeletedAt, p.DeleteBy = w.now, w.now.Add(30*time.Second)
	p.Failure.Reasons, p.Failure.Disruption = []string{"DisruptionTarget", "DeletionByTaintManager"}, "Taint manager: deleting due to NoExecute taint"
	return p
}

func lostNodes(after *time.Duration) func(*repo.Job) {
	return func(j *repo.Job) {
		j.Roles[0].ForceDeleteAfter, j.Roles[0].Retry.Backoff = after, repo.Backoff{}
		j.Rules = []repo.FailureRule{{Name: "NodeLost", Reasons: []string{"DeletionByTaintManager"}, Class: repo.Transient, Free: true}}
	}
}

// A pod on a node that does not answer is waited for, and the record says so.
func TestNodeThatDoesNotAnswer(t *testing.T) {
	w := pushed(t, lostNodes(nil))
	w.settle()
	w.start("main-0", "main-1")
	p := w.latest("main-1")
	w.silent[p.Name], p.Waiting = true, "node node-1 does not answer since 2026-03-02 09:14:05 UTC"
	w.settle()
	assert.Equal(t, "main-1: node node-1 does not answer since 2026-03-02 09:14:05 UTC", w.record.Message)
	assert.Equal(t, repo.PhaseRunning, w.record.Phase)
	assert.Equal(t, repo.TaskRunning, w.task("main-1").Phase)
	w.loseNode("main-1")
	w.settle()
	assert.NotContains(t, w.record.Message, "deleted", "it still has time to end")
	assert.Equal(t, w.now.Add(30*time.Second), w.out.At)
	w.sleep(time.Hour)
	w.settle()
	assert.Equal(t, "main-1: node node-1 does not answer since 2026-03-02 09:14:05 UTC; the pod is being deleted since 2026-03-02 09:00:00 UTC", w.record.Message)
	assert.Equal(t, "TasksWaiting", w.record.Reason)
	assert.Len(t, w.starts, 2, "nothing runs beside it")
	assert.Zero(t, w.out.At)

	w.endPod(p, 137) // its node was removed
	w.settle()
	a := w.task("main-1").Attempts
	assert.Equal(t, "NodeLost", a[0].Reason)
	assert.True(t, a[0].Free)
	assert.Equal(t, "Taint manager: deleting due to NoExecute taint", a[0].Message)
	assert.Empty(t, a[0].Waiting)
	assert.Equal(t, repo.Retries{Total: 1}, w.task("main-1").Retries)
	assert.Len(t, w.starts, 3)
}

// A job that says so gives up pods that somebody else deleted, too.
func TestLostPodIsGivenUp(t *testing.T) {
	after := 5 * time.Minute
	w := pushed(t, lostNodes(&after))
	w.settle()
	w.start("main-0", "main-1")
	w.loseNode("main-1")
	w.settle()
	w.sleep(after - time.Second)
	w.settle()
	assert.Len(t, w.starts, 2)
	assert.Equal(t, w.now.Add(time.Second), w.out.At)
	w.wake()
	assert.Len(t, w.starts, 3)
	assert.Equal(t, "NodeLost", w.task("main-1").Attempts[0].Reason)
	assert.Len(t, w.live(), 2)
}

// What is asked to stop on such a node says what it waits for.
func TestStoppingWaitsForALostNode(t *testing.T) {
	w := pushed(t, lostNodes(nil))
	w.settle()
	w.start("main-0", "main-1")
	w.loseNode("main-1")
	w.edit(func(j *repo.Job) { j.Stop = true })
	w.settle()
	assert.Equal(t, "Stopping", w.record.Reason)
	assert.Contains(t, w.record.Message, "main-1: node node-1 does not answer since")
	w.endPod(w.latest("main-1"), 137)
	w.settle()
	assert.Equal(t, repo.PhaseStopped, w.record.Phase)
	assert.Equal(t, repo.Stopped, w.task("main-1").Attempts[0].Result, "it was we who asked, whatever the cluster did")
}

// A node is avoided from the second failure on, of the task or of the run.
func TestNodesThatFailedTwice(t *testing.T) {
	for _, row := range []struct {
		what    string
		limits  func(*repo.Job)
		nodes   []string // of each failure of main-0 in turn
		reasons []string // of a disruption, or none
		want    []string
	}{
		{"once is chance", budgets(repo.ByFault, 9, 0), []string{"a"}, nil, nil},
		{"on two nodes", budgets(repo.ByFault, 9, 0), []string{"a", "b"}, nil, nil},
		{"twice", budgets(repo.ByFault, 9, 0), []string{"a", "b", "a"}, nil, []string{"a"}},
		{"in the order of the second time", budgets(repo.ByFault, 9, 0), []string{"a", "b", "b", "a", "a"}, nil, []string{"b", "a"}},
		{"attempts of the run count", budgets(repo.ByFault, 0, 9), []string{"a", "b", "a"}, nil, []string{"a"}},
		{"lost nodes count", budgets(repo.ByFault, 0, 0), []string{"a", "a"}, []string{"NodeLost", "NodeLost"}, []string{"a"}},
		{"giving way does not", budgets(repo.ByFault, 0, 0), []string{"a", "a", "a"}, []string{"Preempted", "Preempted", "Preempted"}, nil},
		{"giving way once", budgets(repo.ByFault, 9, 0), []string{"a", "a"}, []string{"", "Preempted"}, nil},
	} {
		t.Run(row.what, func(t *testing.T) {
			w := pushed(t, single, row.limits, func(j *repo.Job) {
				for _, name := range []string{"NodeLost", "Preempted"} {
					j.Rules = append(j.Rules, repo.FailureRule{Name: name, Reasons: []string{name}, Class: repo.Transient, Free: true})
				}
			})
			w.settle()
			for i, node := range row.nodes {
				p := w.latest("main-0")
				p.Node = node
				w.act()
				w.end("main-0", 1)
				if row.reasons != nil && row.reasons[i] != "" {
					p.Failure.Reasons = []string{row.reasons[i]}
				}
				w.settle()
				if !w.out.At.IsZero() {
					w.wake()
				}
			}
			require.Len(t, w.starts, len(row.nodes)+1)
			assert.Equal(t, row.want, w.task("main-0").AvoidNodes)
			if row.want != nil {
				w.latest("main-0").Waiting = "Unschedulable: 0/2 nodes"
				w.settle()
				assert.Contains(t, w.record.Message, "Unschedulable: 0/2 nodes (keeps away from a")
			}
		})
	}
}

// Of many bad nodes the latest are kept, and those of a rule hold for the run.
func TestAvoidedNodesAreBounded(t *testing.T) {
	var nodes []string
	for i := range 3 * repo.MaxAvoided {
		before := nodes
		nodes = withNode(nodes, fmt.Sprint("n", i))
		nodes = withNode(nodes, fmt.Sprint("n", i))
		assert.LessOrEqual(t, len(before), repo.MaxAvoided)
	}
	assert.Len(t, nodes, repo.MaxAvoided)
	assert.Equal(t, "n29", nodes[repo.MaxAvoided-1])

	w := pushed(t, budgets(repo.ByFault, 1, 0), func(j *repo.Job) {
		j.Rules = []repo.FailureRule{{ExitCodes: codes(9, 9), Class: repo.Transient, AvoidNode: true}}
	})
	w.settle()
	w.latest("main-0").Node = "bad"
	w.act()
	w.end("main-0", 9)
	w.end("main-1", 1)
	out := w.decide()
	require.Len(t, out.Actions, 2)
	for _, a := range out.Actions {
		assert.Equal(t, repo.Avoid{Never: []string{"bad"}}, a.Avoid, "also of a task that never was there")
	}
}

// A pod that nobody knew of when its task was given up keeps its outcome until
// the record has that, and its log is read: the record's own was of no pod.
func TestPodKnownOnlyAfterItWasGivenUp(t *testing.T) {
	w := pushed(t)
	w.act()
	late := w.latest("main-1")
	w.hidden[late.Name] = true
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	require.Equal(t, ReasonNotStarted, w.task("main-1").Attempts[0].Reason)
	w.end("main-1", 7)
	delete(w.hidden, late.Name)
	w.kill()
	require.False(t, hasEnded(&w.record, late), "its log is still to be read")
	w.act()
	assert.True(t, late.Held)
	w.publish()
	w.settle()
	assert.False(t, late.Held)
	a := w.task("main-1").Attempts[0]
	assert.Equal(t, repo.Failed, a.Result)
	assert.EqualValues(t, 7, *a.ExitCode)
}

// One that was refused, and is there all the same, holds up nothing.
func TestPodThatIsThereAlthoughRefused(t *testing.T) {
	w := pushed(t, func(j *repo.Job) { j.Roles[0].MinFailed = repo.Never })
	w.act()
	late := w.latest("main-1")
	w.hidden[late.Name], w.refused[late.Name] = true, "denied"
	w.settle()
	w.start("main-0")
	w.hidden = map[string]bool{}
	w.settle()
	require.True(t, late.Ended())
	assert.True(t, hasEnded(&w.record, late), "its log is not read for ever")
	assert.False(t, late.Held)
}
