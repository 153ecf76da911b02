package runner

import (
	"fmt"
	"slices"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// verdict is a completion rule that was reached: at the end of the task whose
// end reached it.
type verdict struct {
	at      time.Time
	outcome repo.Outcome
}

// judge decides whether the run's present attempt is over, by the completion
// rules of its roles.
func (d *decision) judge() bool {
	v := d.firstReached()
	if v == nil {
		return false
	}
	d.rec.Run.Ending = &v.outcome
	d.ownDeletions(v.at)
	return true
}

// succeededUnseen says whether the present attempt has succeeded, in time, and
// nobody has seen it yet: what has come about since takes nothing away from it.
func (d *decision) succeededUnseen() bool {
	if d.rec.Run.Ending != nil || d.rec.Run.RetryAt != nil {
		return false
	}
	before, deleted := map[*repo.TaskRecord]repo.TaskPhase{}, false
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		deleted = deleted || d.deletedUnseen(r, t)
		if phase := d.byItself(r, t); phase != "" {
			before[t], t.Phase = t.Phase, phase
		}
	})
	var v *verdict
	if len(before) > 0 && !deleted { // what was there before has been judged; who deletes has a reason
		v = d.firstReached()
	}
	for t, phase := range before {
		t.Phase = phase
	}
	return d.inTime(v)
}

// byItself is what a task has come to that is said to go on, and ended by itself
// without being tried again, "" for any other.
func (d *decision) byItself(r *repo.RoleRecord, t *repo.TaskRecord) repo.TaskPhase {
	a := last(t)
	if d.def == nil || final(t) || a == nil || a.Outcome == nil || a.Stop != "" && a.Reason == a.Stop {
		return ""
	}
	return d.endedAs(d.def.Job.Role(r.Name), t)
}

// inTime says whether a verdict is a success, before the run's deadline.
func (d *decision) inTime(v *verdict) bool {
	if v == nil || v.outcome.Result != repo.Succeeded {
		return false
	}
	deadline, ok := d.deadline()
	return !ok || !v.at.After(deadline)
}

// firstReached is what the completion rules have come to: of several the one
// reached first wins.
func (d *decision) firstReached() *verdict {
	var first *verdict
	consider := func(v *verdict) {
		if v != nil && (first == nil || v.at.Before(first.at)) {
			first = v
		}
	}
	if d.def.Job.Success == repo.AllRoles { // on a tie the work that was done counts
		consider(d.allSucceeded())
	}
	consider(d.failedRun())
	consider(d.overBudget())
	for i := range d.def.Job.Roles {
		role := &d.def.Job.Roles[i]
		failed, succeeded := d.counted(role)
		consider(d.minFailed(role, failed))
		if d.def.Job.Success == repo.AnyRole {
			consider(d.succeeded(role, succeeded))
		}
	}
	if first == nil {
		first = d.allEnded()
	}
	return first
}

// ended is a task that has ended for good, for sorting by time.
type ended struct {
	task *repo.TaskRecord
	last *repo.TaskAttemptRecord
}

// at is when it ended, to the second. A pod that was asked to end comes after
// what else ended within the second: that may be why it was asked, by a daemon
// that was killed before its record was pushed.
func (e *ended) at() time.Time {
	if e.last.Outcome != nil && e.last.Reason == ReasonPodDeleted {
		return e.last.FinishedAt.Add(time.Second)
	}
	return e.last.FinishedAt.Time
}

// counted are the tasks of a role that have ended for good and count for its
// rules, each list in the order of their ends.
func (d *decision) counted(role *repo.Role) (failed, succeeded []ended) {
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if r.Name != role.Name || !counts(role, r, t) || !final(t) {
			return
		}
		if t.Phase == repo.TaskFailed {
			failed = append(failed, ended{t, last(t)})
		} else {
			succeeded = append(succeeded, ended{t, last(t)})
		}
	})
	order := func(a, b ended) int { return a.at().Compare(b.at()) }
	slices.SortStableFunc(failed, order)
	slices.SortStableFunc(succeeded, order)
	return failed, succeeded
}

// counts says whether a task counts for its role's rules.
func counts(role *repo.Role, r *repo.RoleRecord, t *repo.TaskRecord) bool {
	return t.Index < r.Replicas && (role.Chief == nil || *role.Chief == t.Index)
}

func (d *decision) minFailed(role *repo.Role, failed []ended) *verdict {
	n := int(role.MinFailed)
	if n < 1 || len(failed) < n {
		return nil
	}
	e := failed[n-1]
	o := *e.last.Outcome
	o.Task = e.task.Name
	if n > 1 {
		o.Message = cut(fmt.Sprintf("%d tasks of role %s have failed, the last: %s", n, role.Name, o.Message))
	}
	return &verdict{e.at(), o}
}

// allSucceeded is reached when every role that is no daemon has enough
// succeeded tasks: at the time the last of them got there.
func (d *decision) allSucceeded() *verdict {
	var latest *verdict
	for i := range d.def.Job.Roles {
		role := &d.def.Job.Roles[i]
		if role.Daemon || (role.MinSucceeded < 1 && len(role.SucceedWhen) == 0) {
			continue
		}
		_, succeeded := d.counted(role)
		v := d.succeeded(role, succeeded)
		if v == nil {
			return nil
		}
		if latest == nil || v.at.After(latest.at) {
			latest = v
		}
	}
	return latest
}

// allEnded is reached when every task that counts has ended for good and no
// rule was: a success for AnyRole, a failure for AllRoles.
func (d *decision) allEnded() *verdict {
	any := d.def.Job.Success == repo.AnyRole
	var latest, lastFailed *ended
	counted := 0
	for i := range d.def.Job.Roles {
		role := &d.def.Job.Roles[i]
		if role.Daemon && !any {
			continue
		}
		failed, succeeded := d.counted(role)
		want := int(role.Replicas)
		if role.Chief != nil {
			want = 1
		}
		if d.drains(role) && !d.goesOn(role) {
			want = len(failed) + len(succeeded) // nothing more of it starts
		}
		if len(failed)+len(succeeded) < want {
			return nil
		}
		counted += want
		for _, list := range [][]ended{failed, succeeded} {
			for j := range list {
				if latest == nil || list[j].at().After(latest.at()) {
					latest = &list[j]
				}
			}
		}
		if n := len(failed); n > 0 {
			lastFailed = &failed[n-1]
		}
	}
	switch {
	case latest == nil:
		return nil // a job of no tasks, or of daemons alone, does not end by itself
	case any || lastFailed == nil:
		return &verdict{latest.at(), repo.Outcome{
			Result: repo.Succeeded, Reason: ReasonCompleted, Task: latest.task.Name,
			Message: fmt.Sprintf("all %d tasks have ended, and no completion rule was reached", counted),
		}}
	}
	o := *lastFailed.last.Outcome
	o.Task, o.Message = lastFailed.task.Name, cut("too few tasks succeeded, and none is left: "+o.Message)
	return &verdict{latest.at(), o}
}
