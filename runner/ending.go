package runner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// interrupt ends or suspends the run for reasons that lie outside its tasks.
func (d *decision) interrupt() bool {
	job, run := d.in.Job, d.rec.Run
	switch {
	case run.Stopping || (run.Ending != nil && run.Ending.Result == repo.Succeeded):
		return false
	case d.succeededUnseen():
		d.replaced() // to ignore a change that came with it, if changes are ignored
		return false
	case d.gone():
		return d.stopRun(repo.Stopped, "", ReasonRemoved, "the definition was removed from the repository")
	case job != nil && job.Stop:
		return d.stopRun(repo.Stopped, "", ReasonStopRequested, "the definition asks the run to stop")
	case d.replaced():
		return d.stopRun(repo.Stopped, "", ReasonReplaced, "a new run takes its place")
	case d.pastDeadline():
		return d.stopRun(repo.Failed, repo.Permanent, ReasonDeadline, "the run took longer than its deadline of "+d.def.Job.Deadline.String())
	}
	moved := d.suspend()
	if run.Ending != nil || run.Suspended != nil {
		return moved
	}
	if d.releaseGang() {
		return true
	}
	moved = d.stopUnstarted() || moved
	moved = d.stopCutOff() || moved
	return d.stopStuck() || moved
}

// gone says whether the definition was removed, and not by mistake.
func (d *decision) gone() bool {
	return d.in.Job == nil && d.in.Invalid == nil && d.in.Withheld == ""
}

// stopRun ends the whole run, without a retry.
func (d *decision) stopRun(result repo.Result, class repo.Class, reason, message string) bool {
	run := d.rec.Run
	run.Ending = &repo.Outcome{Result: result, Class: class, Reason: reason, Message: message}
	run.Stopping, run.RetryAt = true, nil
	d.ownDeletions(time.Time{})
	if result == repo.Stopped {
		d.rec.ObservedRevision = d.in.Revision
	}
	return true
}

// replaced says whether another run is to take this one's place now.
func (d *decision) replaced() bool {
	job, run := d.in.Job, d.rec.Run
	if job == nil || d.in.Invalid != nil || d.in.Forbidden != "" { // what may not start replaces nothing
		return false
	}
	trigger, ok := d.trigger()
	if !ok {
		return false
	}
	if trigger.Kind == repo.TriggerCron {
		return job.Schedule.Concurrency == repo.Replace
	}
	switch job.OnChange {
	case repo.Restart:
		return true
	case repo.Ignore:
		if trigger.Kind == repo.TriggerPush {
			run.Covers = append(run.Covers, repo.RunID(d.in.Environment, job.Key, job.Digest, trigger))
		}
	}
	return false
}

func (d *decision) pastDeadline() bool {
	at, ok := d.deadline()
	return ok && d.due(at)
}

// deadline is when the run is to be over, if it has to be.
func (d *decision) deadline() (at time.Time, ok bool) {
	run := d.rec.Run
	at = run.StartedAt.Add(time.Duration(run.SuspendedSeconds)*time.Second + d.def.Job.Deadline)
	return at, d.def.Job.Deadline > 0 && run.Suspended == nil
}

// suspend stops the run's pods, or lets them start again, as the definition
// asks. While the definition cannot be read everything stays as it is.
func (d *decision) suspend() (moved bool) {
	run := d.rec.Run
	if d.in.Job == nil || d.in.Invalid != nil {
		return false
	}
	if !d.toSuspend() {
		if run.Suspended == nil {
			return false
		}
		run.SuspendedSeconds += max(0, int64(d.now.Sub(run.Suspended.Time)/time.Second))
		run.Suspended, d.rec.ObservedRevision = nil, d.in.Revision
		return true
	}
	if run.Suspended == nil {
		run.Suspended, d.rec.ObservedRevision, moved = stamp(d.now), d.in.Revision, true
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) { moved = stopTask(t, ReasonSuspended) || moved })
	return moved
}

// toSuspend says whether the definition asks for that.
func (d *decision) toSuspend() bool {
	return d.in.Job != nil && d.in.Invalid == nil && d.in.Job.Suspend
}

// stopTask asks a task's live attempt to end.
func stopTask(t *repo.TaskRecord, why string) bool {
	a := live(t)
	if a == nil || a.Stop != "" {
		return false
	}
	a.Stop = why
	return true
}

// stopUnstarted gives up task attempts that have waited too long for their
// first container, and those that the job was scaled down by.
func (d *decision) stopUnstarted() (moved bool) {
	limit := d.def.Job.StartDeadline
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if t.Index >= r.Replicas {
			moved = stopTask(t, ReasonScaledDown) || moved
			return
		}
		a := live(t)
		if limit > 0 && a != nil && a.StartedAt == nil && a.Stop == "" && d.due(a.CreatedAt.Add(limit)) {
			moved = stopTask(t, ReasonStartDeadline) || moved
		}
	})
	return moved
}

// cutOffPatience is how long a pod must have been without a sandbox, so that no
// report of its kubelet that was overtaken is taken for its last word.
const cutOffPatience = 15 * time.Second

// stopCutOff gives up task attempts whose pods never start any more. As their
// kubelet confirms their end, nothing of them runs when they are tried again.
func (d *decision) stopCutOff() (moved bool) {
	never := map[string]bool{}
	for i := range d.in.Pods {
		if p := &d.in.Pods[i]; !p.CutOffAt.IsZero() && p.DeletedAt.IsZero() && d.due(p.CutOffAt.Add(cutOffPatience)) {
			never[p.Name] = true
		}
	}
	if len(never) == 0 {
		return false
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		if a := live(t); a != nil && never[a.Pod] {
			moved = stopTask(t, ReasonCutOff) || moved
		}
	})
	return moved
}

// stopStuck ends an attempt of which no task has written any output for too long.
func (d *decision) stopStuck() bool {
	limit := d.def.Job.ProgressDeadline
	if limit <= 0 {
		return false
	}
	var latest time.Time
	for i := range d.in.Pods {
		p := &d.in.Pods[i]
		if p.Run != d.rec.Run.ID || p.State != PodRunning {
			continue
		}
		for _, at := range []time.Time{p.StartedAt, p.OutputAt} {
			if at.After(latest) {
				latest = at
			}
		}
	}
	if latest.IsZero() || !d.due(latest.Add(limit)) {
		return false
	}
	d.rec.Run.Ending = &repo.Outcome{
		Result: repo.Failed, Class: repo.Unknown, Reason: ReasonNoProgress,
		Message: "no task has written any output for " + limit.String(),
	}
	return true
}

// endAttempt stops what still runs of an attempt that is over, and closes it
// when the last pod has ended.
func (d *decision) endAttempt() (moved bool) {
	running, last := false, d.lastAttempt()
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if a := live(t); last && r.Outlives && a != nil && a.UID != "" && a.Stop == "" {
			return
		}
		moved = stopTask(t, ReasonRunEnded) || moved
		running = running || live(t) != nil
	})
	if running || d.unknownPods() {
		return moved
	}
	d.closeAttempt()
	return true
}

// lastAttempt says that the run's last attempt ends by itself, so that what
// outlives the run goes on.
func (d *decision) lastAttempt() bool {
	run := d.rec.Run
	if run.Stopping {
		return false
	}
	retry, _ := shouldRetry(d.def.Job.Retry, run.Ending, run.Retries)
	return !retry
}

// ownDeletions puts right how pods have ended that were deleted when the attempt
// was over, since a time: not by somebody else, but by a daemon that was killed
// before its record was pushed. What a record said before stays.
func (d *decision) ownDeletions(since time.Time) {
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		a := last(t)
		if !d.deletedUnseen(r, t) || a.FinishedAt.Time.Before(since) {
			return
		}
		d.unplan(r, t)
		a.Outcome, t.Phase = &repo.Outcome{Result: repo.Stopped, Reason: ReasonRunEnded, ExitCode: a.ExitCode}, repo.TaskStopped
		a.Log = ""
	})
}

// deletedUnseen says whether a task's pod was deleted, and no record says so yet.
func (d *decision) deletedUnseen(r *repo.RoleRecord, t *repo.TaskRecord) bool {
	a := last(t)
	if a == nil || a.Outcome == nil || a.Reason != ReasonPodDeleted {
		return false
	}
	return !hasEnded(&d.in.Record, &Pod{Run: d.rec.Run.ID, Attempt: d.attemptOf(r, t, a.Attempt)})
}

// unplan takes a retry back that does not come to be after all.
func (d *decision) unplan(r *repo.RoleRecord, t *repo.TaskRecord) {
	a := last(t)
	if t.RetryAt == nil || a == nil {
		return
	}
	accountable := !a.Free // as far as anybody knows who has no definition any more
	if d.def != nil {
		if role := d.def.Job.Role(r.Name); role != nil {
			_, accountable = shouldRetry(role.Retry, a.Outcome, t.Retries)
		}
	}
	t.RetryAt = nil
	t.Retries.Total--
	if accountable && t.Retries.Accountable > 0 {
		t.Retries.Accountable--
	}
}

// closeAttempt gives the attempt its outcome: the run is tried again, or finished.
func (d *decision) closeAttempt() {
	run := d.rec.Run
	at, o := d.lastEnd(), *run.Ending
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if phase := d.byItself(r, t); phase != "" {
			t.Phase = phase
		}
	})
	if v := d.hadSucceeded(); v != nil {
		o = v.outcome
	}
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if !final(t) && live(t) == nil {
			d.unplan(r, t)
			t.Phase = repo.TaskStopped
		}
	})
	if !run.Stopping {
		retry, accountable := shouldRetry(d.def.Job.Retry, &o, run.Retries)
		if !retry && d.overtakenAttempt() { // it was tried again, for a reason that was lost
			o, retry, accountable = *lostOutcome(), true, false
		}
		if retry {
			d.retryRun(o, at, accountable)
			return
		}
	}
	finishedAt := metav1.NewTime(at)
	run.Outcome, run.FinishedAt, run.Ending, run.RetryAt, run.Suspended = &o, &finishedAt, nil, nil, nil
	d.rec.Finish(repo.RunSummary{
		ID: run.ID, Digest: run.Digest, Trigger: run.Trigger, Revision: run.Revision, Covers: run.Covers, StartedAt: run.StartedAt,
		FinishedAt: finishedAt, Attempts: run.Attempt + 1, Retries: run.Retries, GPUSeconds: run.GPUSeconds, Outcome: o,
	})
	d.def = nil
}

// hadSucceeded is the success of an attempt that is said to have ended for
// another reason: that came first, and was seen too late. It is nil for none.
func (d *decision) hadSucceeded() *verdict {
	ending := d.rec.Run.Ending
	if d.def == nil || ending.Result == repo.Succeeded {
		return nil
	}
	v := d.firstReached()
	if !d.inTime(v) {
		return nil
	}
	before := true
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		a, role := last(t), d.def.Job.Role(r.Name)
		switch {
		case a == nil || a.Outcome == nil || t.Index >= r.Replicas:
		case t.Name == ending.Task && v.at.After((&ended{t, a}).at()):
			before = false // the failure that ended the attempt came first
		case a.Result == repo.Stopped && role != nil && role.Drain:
			before = false // it would have been waited for
		}
	})
	if !before {
		return nil
	}
	return v
}

// lastEnd is when the last task attempt of the present attempt ended that had a
// pod; now, if none had.
func (d *decision) lastEnd() time.Time {
	var at time.Time
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		for i := range t.Attempts { // its last may have been planned, and not come to be
			if a := &t.Attempts[i]; a.UID != "" && a.FinishedAt != nil && a.FinishedAt.After(at) {
				at = a.FinishedAt.Time
			}
		}
	})
	if at.Before(d.rec.Run.StartedAt.Time) {
		at = d.now
	}
	return at
}

// retryRun closes the attempt and plans the next: all its tasks start afresh.
func (d *decision) retryRun(o repo.Outcome, at time.Time, accountable bool) {
	run := d.rec.Run
	d.archive(o, at)
	wait := d.waitOfRun()
	run.Attempt++
	run.Retries.Total++
	if accountable {
		run.Retries.Accountable++
	}
	run.Ending, run.RetryAt = nil, retryAt(at, wait)
	d.notLater(run.RetryAt, wait)
	d.rec.Roles = newRoles(&d.def.Job)
}

// archive puts the present attempt, with what failed in it, among those that are over.
func (d *decision) archive(o repo.Outcome, at time.Time) {
	run := d.rec.Run
	attempt := repo.AttemptRecord{Attempt: run.Attempt, StartedAt: run.StartedAt, FinishedAt: metav1.NewTime(at), Outcome: o}
	if run.AttemptAt != nil {
		attempt.StartedAt = *run.AttemptAt
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		if t.Phase == repo.TaskFailed {
			attempt.Tasks = append(attempt.Tasks, *t)
		}
	})
	d.rec.Attempts = append(d.rec.Attempts, attempt)
	if extra := len(d.rec.Attempts) - repo.MaxAttempts; extra > 0 {
		d.rec.Attempts = d.rec.Attempts[extra:]
	}
}

// waitOfRun is how long to wait after the last attempt that has ended.
func (d *decision) waitOfRun() time.Duration {
	n := len(d.rec.Attempts) - 1
	ended := &d.rec.Attempts[n]
	if released(&ended.Outcome) {
		return releaseWait(d.rec.Run.ID, ended.Attempt, d.rec.Attempts[:n])
	}
	return backoff(d.def.Job.Retry, &ended.Outcome, d.rec.Run.Retries.Total-(d.rec.Run.Attempt-ended.Attempt), d.rec.Run.ID)
}
