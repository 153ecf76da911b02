package runner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// last is a task's latest attempt, nil before its first.
func last(t *repo.TaskRecord) *repo.TaskAttemptRecord {
	if len(t.Attempts) == 0 {
		return nil
	}
	return &t.Attempts[len(t.Attempts)-1]
}

// live is a task's attempt that has no outcome yet, nil if it has none.
func live(t *repo.TaskRecord) *repo.TaskAttemptRecord {
	if a := last(t); a != nil && a.Outcome == nil {
		return a
	}
	return nil
}

// tasks calls f for every task of the run's present attempt.
func (d *decision) tasks(f func(r *repo.RoleRecord, t *repo.TaskRecord)) {
	for i := range d.rec.Roles {
		r := &d.rec.Roles[i]
		for j := range r.Tasks {
			f(r, &r.Tasks[j])
		}
	}
}

// attemptOf names the task attempt with that number in the run's present attempt.
func (d *decision) attemptOf(r *repo.RoleRecord, t *repo.TaskRecord, n int32) repo.TaskAttempt {
	return repo.TaskAttempt{Task: repo.Task{Role: r.Name, Index: t.Index}, RunAttempt: d.rec.Run.Attempt, Attempt: n}
}

// advanceTasks starts tasks, retries them, and finds out which have ended for good.
func (d *decision) advanceTasks() (moved bool) {
	free := d.places()
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		role := d.def.Job.Role(r.Name)
		if role == nil || t.Index >= r.Replicas || final(t) {
			return
		}
		moved = d.advance(role, r, t, free[r.Name]) || moved
	})
	return moved
}

// final says whether a task has ended for good in this attempt of the run.
func final(t *repo.TaskRecord) bool {
	return t.Phase == repo.TaskSucceeded || t.Phase == repo.TaskFailed
}

// places are how many more tasks of a role may go on at a time: new ones, and
// all together. A task that waits for its retry keeps its place.
type places struct{ fresh, all int32 }

// places of each role that runs a few tasks at a time, or starts none any more.
func (d *decision) places() map[string]*places {
	free := map[string]*places{}
	for i := range d.rec.Roles {
		r := &d.rec.Roles[i]
		role := d.def.Job.Role(r.Name)
		switch {
		case role == nil:
		case d.drains(role):
			free[r.Name] = &places{}
		case role.Parallelism > 0:
			p := &places{role.Parallelism, role.Parallelism}
			for j := range r.Tasks {
				t := &r.Tasks[j]
				if t.Index < r.Replicas && last(t) != nil && !final(t) {
					p.fresh--
				}
				if live(t) != nil {
					p.all--
				}
			}
			free[r.Name] = p
		}
	}
	return free
}

// advance takes a task further, as far as there is a place for it.
func (d *decision) advance(role *repo.Role, r *repo.RoleRecord, t *repo.TaskRecord, free *places) bool {
	a := last(t)
	if a != nil && a.Outcome != nil && t.RetryAt != nil {
		own := *t.RetryAt // the record that came in is not changed
		t.RetryAt = &own
		d.notLater(t.RetryAt, backoff(role.Retry, a.Outcome, t.Retries.Total-1, d.rec.Run.ID, t.Name))
	}
	switch {
	case a != nil && a.Outcome == nil:
		return false
	case a == nil && free != nil && free.fresh <= 0:
		return false
	case a == nil || a.Result == repo.Stopped || a.Attempt < t.FirstAttempt:
	case t.RetryAt == nil:
		return d.planRetry(role, t, a)
	case d.drains(role) || !d.due(t.RetryAt.Time):
		return false
	}
	if free != nil && free.all <= 0 || !d.startTask(r, t) {
		return false
	}
	if free != nil {
		free.all--
		if a == nil {
			free.fresh--
		}
	}
	return true
}

// startTask begins a task's next attempt: its pod is asked for until it is there.
func (d *decision) startTask(r *repo.RoleRecord, t *repo.TaskRecord) bool {
	if d.rec.Run.Suspended != nil || d.overtakenRun() || d.overtakenAttempt() {
		return false
	}
	d.appendAttempt(r, t, d.now)
	return true
}

func (d *decision) appendAttempt(r *repo.RoleRecord, t *repo.TaskRecord, at time.Time) {
	n := nextAttempt(t)
	t.Attempts = append(t.Attempts, repo.TaskAttemptRecord{
		Attempt: n, Pod: repo.PodName(d.rec.Run.ID, d.attemptOf(r, t, n)), CreatedAt: *stamp(at),
	})
	if extra := len(t.Attempts) - repo.MaxAttempts; extra > 0 {
		t.Attempts = t.Attempts[extra:]
	}
	t.RetryAt, t.Phase, t.AvoidNodes = nil, repo.TaskPending, d.failedTwice(t)
}

// notLater brings a retry forward that is further away than its wait can be:
// the clock was ahead when it was planned, or is where the pod ran.
func (d *decision) notLater(at *metav1.Time, wait time.Duration) {
	if most := retryAt(d.now, wait); at.After(most.Time) {
		*at = *most
	}
}

func nextAttempt(t *repo.TaskRecord) int32 {
	if a := last(t); a != nil {
		return a.Attempt + 1
	}
	return 0
}

// planRetry decides whether a task that has ended is tried again, and when.
func (d *decision) planRetry(role *repo.Role, t *repo.TaskRecord, a *repo.TaskAttemptRecord) bool {
	if phase := d.endedAs(role, t); phase != "" {
		t.Phase = phase
		return true
	}
	_, accountable := shouldRetry(role.Retry, a.Outcome, t.Retries)
	wait := backoff(role.Retry, a.Outcome, t.Retries.Total, d.rec.Run.ID, t.Name)
	t.RetryAt, t.Phase = retryAt(finished(a, d.now), wait), repo.TaskRetrying
	d.notLater(t.RetryAt, wait)
	t.Retries.Total++
	if accountable {
		t.Retries.Accountable++
	}
	return true
}

// endedAs is what a task has come to that ended by itself and is not tried
// again, "" for any other.
func (d *decision) endedAs(role *repo.Role, t *repo.TaskRecord) repo.TaskPhase {
	a := last(t)
	if role == nil || a == nil || a.Outcome == nil || a.Result == repo.Stopped || a.Attempt < t.FirstAttempt || t.RetryAt != nil {
		return ""
	}
	retry, accountable := shouldRetry(role.Retry, a.Outcome, t.Retries)
	switch {
	case retry && !(a.Result == repo.Failed && d.givesUp(role, t, a, accountable)):
		return ""
	case a.Result == repo.Succeeded:
		return repo.TaskSucceeded
	}
	return repo.TaskFailed
}

// givesUp says that a failed task is not tried again although its own budget
// lets it be, unless it already was.
func (d *decision) givesUp(role *repo.Role, t *repo.TaskRecord, a *repo.TaskAttemptRecord, accountable bool) bool {
	tried := repo.TaskAttempt{Task: repo.Task{Role: role.Name, Index: t.Index}, RunAttempt: d.rec.Run.Attempt, Attempt: a.Attempt}
	return !d.overtaken(tried) && (a.FailRun || d.drains(role) || accountable && d.budgetSpent())
}

// finished is when a task attempt ended.
func finished(a *repo.TaskAttemptRecord, now time.Time) time.Time {
	if a.FinishedAt != nil {
		return a.FinishedAt.Time
	}
	return now
}

// createPods asks for the pods of task attempts that have none yet.
func (d *decision) createPods() {
	if !d.active() || d.def == nil || d.behind() {
		return
	}
	gang := d.gangs()
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		a := live(t)
		if a == nil || a.UID != "" || a.Stop != "" || d.in.Refused[a.Pod] != "" {
			return
		}
		id := d.attemptOf(r, t, a.Attempt)
		d.do(Action{
			Kind: Create, Run: d.rec.Run.ID, Attempt: id, Pod: a.Pod, Gang: gang(id),
			Avoid: repo.Avoid{Never: d.rec.Run.AvoidNodes, Rather: t.AvoidNodes},
		})
	})
}
