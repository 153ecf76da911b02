package runner

import (
	"fmt"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// failures are those of the present attempt that the job has to answer for,
// over all roles.
func (d *decision) failures() (n int32) {
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		role := d.def.Job.Role(r.Name)
		if role == nil || role.Retry.Limit == repo.Always {
			return
		}
		n += t.Retries.Accountable
		if t.Phase == repo.TaskFailed && !last(t).Free {
			n++
		}
	})
	return n
}

// budgetSpent says that one more failure is too many.
func (d *decision) budgetSpent() bool {
	limit := d.def.Job.FailureBudget
	return limit != nil && d.failures() >= *limit
}

// overBudget is reached by the failure that was one too many.
func (d *decision) overBudget() *verdict {
	limit := d.def.Job.FailureBudget
	if limit == nil {
		return nil
	}
	n, e := d.failures(), d.lastFailed()
	if n <= *limit || e == nil {
		return nil
	}
	o := *e.last.Outcome
	o.Task, o.Reason = e.task.Name, ReasonFailureBudget
	o.Message = cut(fmt.Sprintf("%d task attempts have failed and %d may: %s: %s", n, *limit, e.last.Reason, e.last.Message))
	return &verdict{e.at(), o}
}

// failedRun is reached by the first failure that a rule says ends the attempt.
func (d *decision) failedRun() (first *verdict) {
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if t.Phase != repo.TaskFailed || t.Index >= r.Replicas || !last(t).FailRun {
			return
		}
		o := *last(t).Outcome
		o.Task = t.Name
		if e := (&ended{t, last(t)}); first == nil || e.at().Before(first.at) {
			first = &verdict{e.at(), o}
		}
	})
	return first
}

// lastFailed is the task that failed for good last.
func (d *decision) lastFailed() (found *ended) {
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		if t.Phase != repo.TaskFailed || t.Index >= r.Replicas {
			return
		}
		if e := (&ended{t, last(t)}); found == nil || e.at().After(found.at()) {
			found = e
		}
	})
	return found
}
