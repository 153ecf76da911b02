package runner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// pushedGang is a job of four tasks that start together, on a cluster that
// gives no pod a place by itself.
func pushedGang(t *testing.T, change ...func(*repo.Job)) *world {
	w := pushed(t, append([]func(*repo.Job){func(j *repo.Job) {
		j.Gang, j.Roles[0].Replicas, j.Roles[0].MinSucceeded, j.Roles[0].Retry.Limit = true, 4, 4, 3
		tensorboard := j.Roles[0]
		tensorboard.Name, tensorboard.Replicas, tensorboard.Daemon, tensorboard.Outlives = "board", 1, true, true
		j.Roles = append(j.Roles, tensorboard)
	}}, change...)...)
	w.node = ""
	return w
}

// place gives the newest pods of tasks a node now.
func (w *world) place(tasks ...string) {
	for _, task := range tasks {
		p := w.latest(task)
		p.Node, p.PlacedAt = "node-1", w.told()
	}
}

// gangs are the gangs of the pods that have not ended: worker-0 name/size.
func (w *world) gangs() []string {
	out := []string{}
	for _, p := range w.pods {
		g := "alone"
		if p.Gang != nil {
			g = fmt.Sprintf("%s/%d", p.Gang.Name[len(w.record.Run.ID):], p.Gang.Size)
			if p.Gang.Late {
				g += " late"
			}
		}
		if !p.Ended() {
			out = append(out, p.Attempt.Task.String()+" "+g)
		}
	}
	slices.Sort(out)
	return out
}

func TestPodsOfAGangSayWithWhomTheyStart(t *testing.T) {
	w := pushedGang(t)
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-0 -0-0/4", "main-1 -0-0/4", "main-2 -0-0/4", "main-3 -0-0/4"}, w.gangs())

	// One that is lost before the others have a place starts with them.
	w.delete(w.latest("main-1"), true)
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-0 -0-0/4", "main-1 -0-0/4", "main-2 -0-0/4", "main-3 -0-0/4"}, w.gangs())

	// One that fails later comes back by itself.
	w.place("main-0", "main-1", "main-2", "main-3")
	w.start("main-0", "main-1", "main-2", "main-3")
	w.settle()
	w.end("main-3", 0)
	w.end("main-2", 7)
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-0 -0-0/4", "main-1 -0-0/4", "main-2 -0-0/4 late"}, w.gangs())

	// After a suspension those that are left are a gang of their own.
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	w.edit(func(j *repo.Job) { j.Suspend = false })
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-0 -0-7/3", "main-1 -0-7/3", "main-2 -0-7/3"}, w.gangs())
}

func TestRecordSaysHowAGangStarts(t *testing.T) {
	w := pushedGang(t)
	w.settle()
	assert.Empty(t, w.record.Run.Gang)
	w.latest("main-1").GangBy = "native: it is there"
	w.settle()
	assert.Equal(t, "native: it is there", w.record.Run.Gang)
}

func TestFactsOfAPodOfAGang(t *testing.T) {
	run := &repo.Run{ID: "r", Job: repo.Job{Roles: []repo.Role{{Name: "main"}}}}
	pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: "main"}}, func(repo.Task) repo.Address { return repo.Address{} })
	require.NoError(t, err)
	gang := &repo.Gang{Name: "r-0-0", Size: 4, Late: true}
	gang.Mark(pod)
	pod.Annotations[repo.AnnotationGangBy] = "volcano: why not"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(day)}}
	p, ok := podFacts(pod)
	require.True(t, ok)
	assert.Equal(t, gang, p.Gang)
	assert.Equal(t, "volcano: why not", p.GangBy)
	assert.Equal(t, day, p.PlacedAt)
}

func TestGangThatIsHalfCreatedIsJoined(t *testing.T) {
	w := pushedGang(t)
	w.node = "node-1"
	out := w.decide()
	for _, a := range out.Actions[:2] {
		w.perform(a, out.Run)
	}
	w.kill()
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-0 -0-0/4", "main-1 -0-0/4", "main-2 -0-0/4", "main-3 -0-0/4"}, w.gangs())
}

func TestGangOfThoseThatRunAtATime(t *testing.T) {
	w := pushedGang(t, func(j *repo.Job) { j.Roles[0].Parallelism = 3 })
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-0 -0-0/3", "main-1 -0-0/3", "main-2 -0-0/3"}, w.gangs())
	w.place("main-0", "main-1", "main-2")
	w.settle()
	w.end("main-0", 0)
	w.settle()
	assert.Equal(t, []string{"board-0 alone", "main-1 -0-0/3", "main-2 -0-0/3", "main-3 alone"}, w.gangs())
	w.sleep(time.Hour)
	w.settle()
	assert.Zero(t, w.record.Run.Attempt, "who comes later is waited for by nobody")
}

func TestHalfPlacedGangIsReleased(t *testing.T) {
	w := pushedGang(t)
	w.settle()
	w.sleep(5 * time.Hour)
	w.settle()
	require.Zero(t, w.record.Run.Attempt, "a gang that holds nothing waits")

	w.place("main-0", "main-1")
	w.latest("main-2").Waiting = "Unschedulable: 0/2 nodes are available"
	w.settle()
	assert.Equal(t, w.now.Add(gangPatience), w.out.At)
	w.wake()
	require.Len(t, w.record.Attempts, 1)
	o := w.record.Attempts[0].Outcome
	assert.Equal(t, ReasonGangReleased, o.Reason)
	assert.Contains(t, o.Message, "2 of 4 pods had a place")
	assert.Contains(t, o.Message, "0/2 nodes are available")
	assert.Equal(t, repo.PhaseRetrying, w.record.Phase)
	assert.Equal(t, []string{}, w.live(), "all are released")
	assert.Equal(t, repo.Retries{Total: 1}, w.record.Run.Retries, "it does not count")

	w.wake()
	assert.Len(t, w.live(), 5)
	w.place("main-0", "main-1", "main-2", "main-3")
	w.settle()
	w.start("main-0", "main-1", "main-2", "main-3")
	w.succeed()
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
}

// Whatever the budget and the policy, a gang that was given up comes back.
func TestReleasedGangComesBack(t *testing.T) {
	for _, mode := range []repo.RetryMode{repo.ByFault, repo.ByClass, repo.ByCount} {
		w := pushedGang(t, func(j *repo.Job) { j.Retry = repo.Retry{Mode: mode}; j.StartDeadline = 2 * time.Minute })
		var last time.Duration
		for n := range int32(6) {
			w.settle()
			require.Equal(t, n, w.record.Run.Attempt)
			w.place("main-0")
			w.settle()
			w.start("main-0", "board-0")
			w.settle()
			w.wake() // the job's own patience is shorter
			require.Equal(t, n+1, w.record.Run.Attempt)
			require.Equal(t, ReasonGangReleased, w.record.Attempts[len(w.record.Attempts)-1].Reason)
			last = w.record.Run.RetryAt.Sub(w.now)
			require.GreaterOrEqual(t, last, 30*time.Second)
			w.wake()
		}
		require.Less(t, last, 42*time.Minute)
	}
}

func TestReleasedGangsComeBackAtDifferentTimes(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 20 {
		seen[releaseWait(fmt.Sprint("job-", i), 0, nil).Truncate(time.Second)] = true
	}
	assert.Greater(t, len(seen), 15)
	assert.Equal(t, releaseWait("a", 0, nil), releaseWait("a", 0, nil))
}

// hall is a cluster with room for so many pods, which gives places one by one,
// as a scheduler does that knows nothing of gangs.
type hall struct {
	worlds []*world
	room   int
}

// place gives free places to waiting pods of all jobs in turn.
func (h *hall) place() {
	free := h.room
	var waiting [][]*Pod
	for _, w := range h.worlds {
		var mine []*Pod
		for _, p := range w.pods {
			switch {
			case p.Ended():
			case p.Node != "":
				free--
			default:
				mine = append(mine, p)
			}
		}
		waiting = append(waiting, mine)
	}
	for i := 0; free > 0 && i < 100; i++ {
		if mine := waiting[i%len(waiting)]; len(mine) > i/len(waiting) {
			p := mine[i/len(waiting)]
			p.Node, p.PlacedAt, free = "node-1", h.worlds[0].now, free-1
		}
	}
}

// train lets every run end of which all pods have a place.
func (h *hall) train() {
	for _, w := range h.worlds {
		live := slices.DeleteFunc(slices.Clone(w.pods), func(p *Pod) bool { return p.Ended() || p.Node == "" })
		if len(live) == 4 {
			for _, task := range w.live() {
				w.end(task, 0)
			}
		}
	}
}

// Three jobs, each of which holds places that the others wait for, all end.
func TestHalfPlacedGangsDoNotHoldEachOtherForEver(t *testing.T) {
	h := &hall{room: 5}
	for _, name := range []string{"a", "b", "c"} {
		h.worlds = append(h.worlds, pushedGang(t, func(j *repo.Job) { j.Name, j.Roles = name, j.Roles[:1] }))
	}
	halves, now := 0, day
	for range 2000 {
		over := true
		for _, w := range h.worlds {
			w.now = now
			w.settle()
			over = over && w.record.Phase == repo.PhaseSucceeded
		}
		if over {
			require.Positive(t, halves, "nothing was tested")
			t.Logf("all ended after %s", now.Sub(day))
			return
		}
		h.place()
		h.train()
		for _, w := range h.worlds {
			halves += len(w.record.Attempts)
		}
		now = now.Add(10 * time.Second)
	}
	require.Fail(t, "they wait for each other")
}
