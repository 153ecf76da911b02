package runner

import (
	"cmp"
	"slices"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// observe brings what the pods tell into the record, and says whether that
// ended anything.
func (d *decision) observe(job *repo.Job) (moved bool) {
	pods := make(map[string]*Pod, len(d.in.Pods))
	for i := range d.in.Pods {
		pods[d.in.Pods[i].Name] = &d.in.Pods[i]
	}
	d.widen()
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		role := job.Role(r.Name)
		if role == nil {
			role = &repo.Role{}
		}
		for d.observeTask(job, role, r, t, pods) { // of a record that lags behind, all attempts that were made
			moved = true
		}
	})
	return moved
}

// widest is how many tasks a role's record is widened to: labels can be forged.
const widest = 10_000

// widen gives the record tasks for pods beyond those that it counts: the job was
// scaled down, and the record of what it was before is lost.
func (d *decision) widen() {
	for i := range d.in.Pods {
		p := &d.in.Pods[i]
		if p.Run != d.rec.Run.ID || p.Attempt.RunAttempt != d.rec.Run.Attempt || p.Attempt.Index >= widest {
			continue
		}
		for j := range d.rec.Roles {
			r := &d.rec.Roles[j]
			for n := int32(len(r.Tasks)); r.Name == p.Attempt.Role && n <= p.Attempt.Index; n++ {
				r.Tasks = append(r.Tasks, newTask(r.Name, n))
			}
		}
	}
}

// observeTask brings what the pod of a task's live attempt tells into the record,
// and says whether that ended it.
func (d *decision) observeTask(job *repo.Job, role *repo.Role, r *repo.RoleRecord, t *repo.TaskRecord, pods map[string]*Pod) (moved bool) {
	d.find(role, r, t, pods)
	a := live(t)
	if a == nil {
		return false
	}
	if p := pods[a.Pod]; p != nil {
		moved = d.see(job, role, r, t, p)
	} else {
		moved = d.miss(a, d.attemptOf(r, t, a.Attempt))
	}
	if a.Outcome == nil && a.StartedAt != nil {
		t.Phase = repo.TaskRunning
	}
	if a.Outcome != nil && a.Result == repo.Stopped {
		t.Phase = repo.TaskStopped
	}
	return moved
}

// find takes up a pod that the record does not know of: the record is older
// than the pod, because its push was lost with the daemon that made both.
func (d *decision) find(role *repo.Role, r *repo.RoleRecord, t *repo.TaskRecord, pods map[string]*Pod) {
	if a := last(t); a != nil {
		if a.Outcome == nil {
			return
		}
		if a.UID == "" && pods[a.Pod] != nil && d.in.Refused[a.Pod] == "" {
			d.unplan(r, t)
			a.Outcome, a.FinishedAt, t.Phase = nil, nil, repo.TaskPending // it did start after all
			return
		}
	}
	next := d.attemptOf(r, t, nextAttempt(t))
	at := d.now
	if p := pods[repo.PodName(d.rec.Run.ID, next)]; p != nil {
		at = p.CreatedAt
	} else if !d.overtaken(next) {
		return
	}
	if a := last(t); a != nil && a.Result != repo.Stopped && t.RetryAt == nil && a.Attempt >= t.FirstAttempt {
		if d.planRetry(role, t, a); t.RetryAt == nil { // it was decided before, and counts
			t.Retries.Total++
		}
	}
	d.appendAttempt(r, t, at)
}

// see reads a live task attempt's pod.
func (d *decision) see(job *repo.Job, role *repo.Role, r *repo.RoleRecord, t *repo.TaskRecord, p *Pod) bool {
	a := last(t)
	a.UID, a.Node, a.Restarts, a.Address = p.UID, p.Node, p.Restarts, p.Address
	if p.GangBy != "" {
		d.rec.Run.Gang = p.GangBy
	}
	if !p.CreatedAt.IsZero() {
		a.CreatedAt = *stamp(p.CreatedAt)
	}
	if !p.StartedAt.IsZero() {
		a.StartedAt = stamp(p.StartedAt)
		if d.rec.Run.RunningAt == nil {
			d.rec.Run.RunningAt = stamp(p.StartedAt)
		}
	}
	if !p.Ended() {
		if a.Waiting = d.waiting(p); a.Waiting != "" && a.StartedAt == nil {
			a.Waiting += d.keepsAwayFrom(t)
		}
		a.Waiting = cut(a.Waiting)
		return false
	}
	o, avoid := d.outcome(job, role, a, p)
	if o.Reason == ReasonPodDeleted && d.overtaken(p.Attempt) && !d.retries(role, t, &o) {
		o = repo.Outcome{Result: repo.Stopped, Reason: ReasonSuspended} // it was resumed, so it was not a failure
	}
	if avoid && a.Node != "" {
		d.rec.Run.AvoidNodes = withNode(d.rec.Run.AvoidNodes, a.Node)
	}
	d.finish(r, a, o, p.EndedAt)
	if o.Result != repo.Stopped && p.Tail != "" {
		a.Log = repo.TailPath(d.rec.Run.ID, p.Attempt)
		d.logs[p.Name] = a.Log
	}
	return true
}

// retries says whether the budgets of a task and of its job let an outcome be tried again.
func (d *decision) retries(role *repo.Role, t *repo.TaskRecord, o *repo.Outcome) bool {
	retry, accountable := shouldRetry(role.Retry, o, t.Retries)
	return retry && !(accountable && d.def != nil && d.budgetSpent())
}

// waiting is what a pod waits for: its own words, and that it was asked to end
// and has not, once it should have.
func (d *decision) waiting(p *Pod) string {
	if p.DeletedAt.IsZero() || !d.due(p.DeleteBy) {
		return p.Waiting
	}
	ending := "the pod is being deleted since " + clock(p.DeletedAt)
	switch {
	case p.Waiting != "":
		return p.Waiting + "; " + ending
	case p.Node != "":
		return ending + ", and node " + p.Node + " has not said that it has ended"
	}
	return ending
}

// outcome judges a pod that has ended.
func (d *decision) outcome(job *repo.Job, role *repo.Role, a *repo.TaskAttemptRecord, p *Pod) (repo.Outcome, bool) {
	// A pod that ended after somebody asked it to tells nothing by its exit
	// code: many programs save their work on SIGTERM and exit with 0.
	ended := p.ObeyedDeletion()
	switch {
	case ended && a.Stop == ReasonStartDeadline:
		return repo.Outcome{Result: repo.Failed, Class: repo.Unknown, Reason: a.Stop, Message: "did not start in time: " + p.Waiting}, false
	case ended && a.Stop == ReasonCutOff:
		return wasCutOff(), false
	case ended && a.Stop != "":
		return repo.Outcome{Result: repo.Stopped, Reason: a.Stop, ExitCode: exitCode(role.MainContainer, p)}, false
	case ended && d.toSuspend(): // asked by a daemon that was killed before its record was pushed
		return repo.Outcome{Result: repo.Stopped, Reason: ReasonSuspended, ExitCode: exitCode(role.MainContainer, p)}, false
	case p.State == PodSucceeded && !ended:
		zero := int32(0)
		return repo.Outcome{Result: repo.Succeeded, Reason: ReasonCompleted, ExitCode: &zero}, false
	}
	o, avoid := classify(job.Rules, role.MainContainer, p)
	// How the containers of a pod ended that the cluster took is no sign; why it
	// took it is, also to a rule by which that is not forgiven.
	taken := len(p.Failure.Reasons) > 0 && (o.Free || blamesCluster(job.Rules, role.MainContainer, p))
	if ended && !taken {
		o.Class, o.Free, o.FailRun, o.Reason = repo.Transient, true, false, ReasonPodDeleted
		o.Message = "the pod was deleted by somebody else"
		return o, false
	}
	return o, avoid
}

// wasCutOff is the outcome of a pod that never started, and is nobody's fault.
func wasCutOff() repo.Outcome {
	return repo.Outcome{
		Result: repo.Failed, Class: repo.Transient, Free: true, Reason: ReasonCutOff,
		Message: "its sandbox was lost before it had started, and its kubelet made no other one",
	}
}

func exitCode(main string, p *Pod) *int32 {
	if e := decisive(main, p.Failure.Ends); e != nil {
		return &e.ExitCode
	}
	if p.State == PodSucceeded {
		zero := int32(0)
		return &zero
	}
	return nil
}

// miss judges a live task attempt that has no pod.
func (d *decision) miss(a *repo.TaskAttemptRecord, id repo.TaskAttempt) bool {
	var o repo.Outcome
	switch why := d.in.Refused[a.Pod]; {
	case why != "":
		o = repo.Outcome{Result: repo.Failed, Class: repo.Permanent, Reason: ReasonPodRefused, Message: cut(why)}
	case a.UID == "" && d.in.Asked[a.Pod]:
		a.Waiting = cut(d.in.Troubles[a.Pod])
		return false
	case a.Stop == ReasonStartDeadline:
		o = repo.Outcome{Result: repo.Failed, Class: repo.Unknown, Reason: a.Stop, Message: "did not start in time: " + cmp.Or(d.in.Troubles[a.Pod], a.Waiting)}
	case a.UID != "" && a.Stop == ReasonCutOff:
		o = wasCutOff()
	case (a.UID != "" || d.overtaken(id)) && a.Stop == "":
		o = repo.Outcome{Result: repo.Failed, Class: repo.Transient, Free: true, Reason: ReasonPodLost, Message: "the pod is gone, and nobody knows how it ended"}
	case a.UID != "":
		o = repo.Outcome{Result: repo.Stopped, Reason: a.Stop}
	case a.Stop != "":
		o = repo.Outcome{Result: repo.Stopped, Reason: ReasonNotStarted}
	default:
		a.Waiting = cut(d.in.Troubles[a.Pod])
		return false
	}
	a.Outcome, a.FinishedAt, a.Waiting = &o, stamp(d.now), ""
	return true
}

// overtaken says whether a later attempt of the task has a pod: this one had
// one, too, before the record of it was lost.
func (d *decision) overtaken(id repo.TaskAttempt) bool {
	return slices.ContainsFunc(d.in.Pods, func(p Pod) bool {
		return p.Run == d.rec.Run.ID && p.Attempt.Task == id.Task && p.Attempt.RunAttempt == id.RunAttempt && p.Attempt.Attempt > id.Attempt
	})
}

// finish gives a task attempt its outcome, once.
func (d *decision) finish(r *repo.RoleRecord, a *repo.TaskAttemptRecord, o repo.Outcome, at time.Time) {
	o.Message = cut(o.Message)
	a.Outcome, a.FinishedAt, a.Waiting = &o, stamp(at), ""
	if a.StartedAt != nil && r.GPUs > 0 && at.After(a.StartedAt.Time) {
		d.rec.Run.GPUSeconds += r.GPUs * int64(a.FinishedAt.Sub(a.StartedAt.Time)/time.Second)
	}
}

// cut bounds a message, at the boundary of a character.
func cut(s string) string {
	if len(s) <= repo.MaxMessage {
		return s
	}
	n := repo.MaxMessage - len("…")
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
