package runner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// history is a random one: a world, and what may happen to it.
type history struct {
	*world
	t      *rapid.T
	late   []Action // that were lost, and may still come
	digest int
}

func randomRetry(t *rapid.T) repo.Retry {
	r := repo.Retry{
		Limit: rapid.SampledFrom([]int32{0, 1, 2, repo.Unlimited}).Draw(t, "limit"),
		Mode:  rapid.SampledFrom([]repo.RetryMode{repo.ByFault, repo.ByClass, repo.ByCount}).Draw(t, "mode"),
	}
	if rapid.Bool().Draw(t, "backs off") {
		r.Backoff = repo.Backoff{Initial: 5 * time.Second, Factor: 2, Max: time.Minute}
		r.ConflictDelay = repo.Span{Min: time.Second, Max: 30 * time.Second}
	}
	return r
}

// randomJob is a job that ends when its pods do.
func randomJob(t *rapid.T) repo.Job {
	job := trainJob("mnist", "d0", 1, 0)
	job.Retry = randomRetry(t)
	job.Rules = []repo.FailureRule{
		{ExitCodes: codes(2, 2), Class: repo.Permanent},
		{ExitCodes: codes(3, 3), Class: repo.Transient, Free: true},
		{Name: "NodeLost", Reasons: []string{"DeletionByTaintManager"}, Class: repo.Transient, Free: true},
		{ExitCodes: codes(4, 4), Class: repo.TransientConflict, AvoidNode: true, FailRun: rapid.Bool().Draw(t, "4 fails the run")},
	}
	job.Success = rapid.SampledFrom([]repo.Success{repo.AllRoles, repo.AnyRole}).Draw(t, "success")
	job.OnChange = rapid.SampledFrom([]repo.OnChange{repo.Finish, repo.Restart, repo.Ignore}).Draw(t, "onChange")
	job.Gang = rapid.Bool().Draw(t, "gang")
	job.Rescale = rapid.Bool().Draw(t, "rescales")
	job.Cleanup.After = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "clean-up after")
	if rapid.IntRange(0, 4).Draw(t, "has deadlines") == 0 {
		job.Deadline, job.StartDeadline, job.ProgressDeadline = 2*time.Hour, time.Minute, 10*time.Minute
	}
	role := job.Roles[0]
	job.Roles = nil
	for i := range rapid.IntRange(1, 2).Draw(t, "roles") {
		r := role
		r.Name, r.Retry = []string{"main", "ps"}[i], randomRetry(t)
		r.Replicas = rapid.Int32Range(1, 3).Draw(t, "replicas")
		r.MinSucceeded = rapid.SampledFrom([]int32{r.Replicas, 1, repo.Never}).Draw(t, "minSucceeded")
		r.MinFailed = rapid.SampledFrom([]int32{1, r.Replicas, repo.Never}).Draw(t, "minFailed")
		r.Daemon = i > 0 && job.Success == repo.AllRoles && rapid.Bool().Draw(t, "daemon")
		r.Outlives = r.Daemon && rapid.Bool().Draw(t, "outlives")
		r.Parallelism = rapid.Int32Range(0, 2).Draw(t, "parallelism")
		if rapid.Bool().Draw(t, "gives pods up") {
			r.ForceDeleteAfter = new(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "after"))
		}
		r.Drain = rapid.IntRange(0, 3).Draw(t, "drains") == 0
		job.Roles = append(job.Roles, r)
	}
	if rapid.IntRange(0, 2).Draw(t, "has a budget") == 0 {
		job.FailureBudget = new(rapid.Int32Range(0, 3).Draw(t, "budget"))
	}
	if job.Roles[0].MinSucceeded > 0 && rapid.IntRange(0, 3).Draw(t, "has chief") == 0 {
		job.Roles[0].Chief, job.Roles[0].MinSucceeded, job.Roles[0].MinFailed = new(int32), 1, 1
	}
	return job
}

func (h *history) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(h.t, what) }

// step lets one thing happen.
func (h *history) step() {
	switch h.pick("step", 17) {
	case 0, 1, 2:
		h.act()
	case 3:
		h.actPartly()
	case 4:
		h.actStale()
	case 5, 6:
		h.publish()
	case 7:
		h.kill()
	case 8, 9, 10:
		h.harm()
	case 11:
		h.sleep(time.Duration(rapid.Int64Range(1, 100_000).Draw(h.t, "milliseconds")) * time.Millisecond)
	case 12:
		if !h.out.At.IsZero() && h.out.At.After(h.now) {
			h.now = h.out.At
		}
	case 13:
		h.change()
	case 14:
		h.stubborn = !h.stubborn
	case 15:
		for _, a := range h.late {
			h.perform(a, nil)
		}
		h.late = nil
	case 16:
		h.findNodes()
	}
}

// actPartly performs some of the actions only. Others come late; a creation
// that did not come is as if it had never been asked for.
func (h *history) actPartly() {
	out := h.decide()
	for _, a := range out.Actions {
		switch h.pick("fate of "+a.Pod, 3) {
		case 0:
			h.perform(a, out.Run)
		case 1:
			h.perform(a, out.Run)
			h.perform(a, out.Run)
		case 2:
			if a.Kind != Create {
				h.late = append(h.late, a)
			}
		}
	}
}

// actStale decides once more before what was created shows up.
func (h *history) actStale() {
	before := len(h.pods)
	h.act()
	for _, p := range h.pods[min(before, len(h.pods)):] {
		if rapid.Bool().Draw(h.t, "hidden") {
			h.hidden[p.Name] = true
		}
	}
	if h.pick("killed", 3) == 0 {
		h.kill()
	}
	h.act()
	h.hidden = map[string]bool{}
}

// harm lets something happen to a pod: it runs, ends, or worse.
func (h *history) harm() {
	if len(h.pods) == 0 {
		return
	}
	p := h.pods[h.pick("pod", len(h.pods))]
	switch {
	case p.Ended():
	case p.State == PodPending:
		p.State, p.StartedAt = PodRunning, h.now
	default:
		switch h.pick("harm", 12) {
		case 0:
			h.delete(p, false) // by hand
		case 1:
			if h.published != nil && seenIn(h.published, p) {
				h.remove(p) // with its node, and against its finalizer
			}
		case 2:
			h.endPod(p, 143)
			p.Failure.Reasons = []string{"Evicted"}
		case 3:
			p.OutputAt = h.now
		case 4, 5:
			h.loseNode(p)
		default:
			h.endPod(p, rapid.SampledFrom([]int32{0, 0, 0, 1, 2, 3, 4}).Draw(h.t, "code"))
		}
	}
}

// loseNode lets a pod's node fall silent; sometimes the cluster has had enough
// of it, and asks the pod to end.
func (h *history) loseNode(p *Pod) {
	h.silent[p.Name] = true
	p.Waiting = "node does not answer"
	if p.DeletedAt.IsZero() && rapid.Bool().Draw(h.t, "deleted") {
		p.DeletedAt, p.DeleteBy = h.told(), h.told().Add(5*time.Second)
		p.Failure.Reasons = []string{"DisruptionTarget", "DeletionByTaintManager"}
	}
}

// findNodes lets every silent node answer again, or be removed.
func (h *history) findNodes() {
	for _, p := range h.pods {
		if p.Waiting = ""; h.silent[p.Name] && !p.Ended() && !p.DeletedAt.IsZero() {
			h.endPod(p, rapid.SampledFrom([]int32{0, 137, 143}).Draw(h.t, "code"))
		}
	}
	h.silent = map[string]bool{}
}

func seenIn(rec *repo.Record, p *Pod) bool {
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			if slices.ContainsFunc(t.Attempts, func(a repo.TaskAttemptRecord) bool { return a.UID == p.UID }) {
				return true
			}
		}
	}
	return false
}

// change pushes another definition.
func (h *history) change() {
	old := h.job
	if old == nil {
		h.digest++
		job := randomJob(h.t)
		job.Digest, job.Shape = fmt.Sprint("d", h.digest), fmt.Sprint("s", h.digest)
		old = &job
	}
	job := deepCopy(old)
	switch h.pick("change", 9) {
	case 0:
		h.digest++
		*job = randomJob(h.t)
		job.Digest, job.Shape = fmt.Sprint("d", h.digest), fmt.Sprint("s", h.digest)
	case 1:
		job.Digest = fmt.Sprint("d", h.pick("digest", h.digest+1)) // a revert
		job.Shape = "s" + job.Digest[1:]
	case 2, 3:
		job.Suspend = !job.Suspend
	case 4:
		job.Stop = h.pick("stop", 3) == 0
	case 5:
		h.push(nil)
		if rapid.Bool().Draw(h.t, "withheld") {
			h.withheld = "all are gone"
		}
		return
	case 6:
		job.Rerun = fmt.Sprint(h.pick("rerun", 3))
	case 7:
		n := rapid.Int32Range(1, 3).Draw(h.t, "replicas")
		r := &job.Roles[0]
		r.Replicas, r.MinSucceeded, r.MinFailed = n, min(n, r.MinSucceeded), min(n, r.MinFailed)
		job.Digest = fmt.Sprintf("%.2sx%d", job.Shape, n)
	case 8:
		h.push(job)
		h.invalid = &repo.Invalid{Key: h.key, Errors: []*repo.Error{{Message: "no"}}}
		return
	}
	h.push(job)
}

// rest lets the world come to rest: pods end well, nothing is lost any more.
func (h *history) rest() {
	h.invalid, h.withheld, h.stubborn = nil, "", false
	h.findNodes()
	if h.job != nil {
		h.edit(func(j *repo.Job) { j.Suspend = false })
	}
	for range 300 {
		h.settle()
		for _, p := range h.pods {
			if !p.Ended() {
				p.State, p.StartedAt = PodRunning, h.now
			}
		}
		h.settle()
		h.sleep(time.Second)
		for _, p := range h.pods {
			if !p.Ended() {
				h.endPod(p, 0)
			}
		}
		h.settle()
		if len(h.live()) > 0 {
			continue
		}
		if h.out.At.IsZero() {
			return
		}
		h.now = h.out.At
	}
	require.Fail(h.t, "does not come to rest")
}

func (h *history) checkRest() {
	require.Empty(h.t, h.live(), "pods that live")
	require.Empty(h.t, h.pods, "pods that are left")
	require.Empty(h.t, h.runs, "runs that are not forgotten")
	require.True(h.t, h.out.Settled)
	require.True(h.t, h.record.Phase.Ended(), h.record.Phase)
	run := h.record.Run
	for name, p := range h.accepted {
		i := slices.IndexFunc(h.record.History, func(s repo.RunSummary) bool { return s.ID == p.Run })
		require.GreaterOrEqual(h.t, i, 0, "%s was started, its run is not in the history", name)
		require.LessOrEqual(h.t, p.Attempt.RunAttempt, h.record.History[i].Attempts-1, name)
		if run.ID != p.Run || p.Attempt.RunAttempt != run.Attempt || !h.hasTask(p.Attempt.Task) {
			continue
		}
		list := h.task(p.Attempt.Task.String()).Attempts
		require.NotEmpty(h.t, list, name)
		if p.Attempt.Attempt >= list[0].Attempt {
			j := slices.IndexFunc(list, func(a repo.TaskAttemptRecord) bool { return a.Pod == name })
			require.GreaterOrEqual(h.t, j, 0, "%s was started, and the record does not know it", name)
			require.NotNil(h.t, list[j].Outcome, name)
		}
	}
}

func (h *history) hasTask(task repo.Task) bool {
	return slices.ContainsFunc(h.record.Roles, func(r repo.RoleRecord) bool { return r.Name == task.Role && int(task.Index) < len(r.Tasks) })
}

func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := randomJob(t)
		h := &history{world: newWorld(t, &job), t: t}
		h.coarse, h.nodes = rapid.Bool().Draw(t, "whole seconds"), 3
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			h.step()
		}
		h.rest()
		h.checkRest()
	})
}
