package runner

import (
	"fmt"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// succeeded is reached when a role has: by its own rules, where it has any, or
// by the number of its tasks. A role that drains waits for its other tasks.
func (d *decision) succeeded(role *repo.Role, succeeded []ended) *verdict {
	if len(role.SucceedWhen) == 0 {
		return d.drained(role, enough(role, succeeded, repo.SuccessRule{Count: role.MinSucceeded}))
	}
	var first *verdict
	for _, rule := range role.SucceedWhen {
		if rule.Count == 0 {
			rule.Count = meant(role, rule)
		}
		if v := enough(role, succeeded, rule); v != nil && (first == nil || v.at.Before(first.at)) {
			first = v
		}
	}
	return d.drained(role, first)
}

// meant is how many tasks a rule speaks of.
func meant(role *repo.Role, rule repo.SuccessRule) (n int32) {
	for i := range role.Replicas {
		if speaksOf(rule, i) {
			n++
		}
	}
	return n
}

func speaksOf(rule repo.SuccessRule, index int32) bool {
	return len(rule.Indexes) == 0 || slices.ContainsFunc(rule.Indexes, func(r repo.CodeRange) bool { return r.Min <= index && index <= r.Max })
}

// enough is the verdict of the task by which so many have succeeded, nil when
// there are fewer. succeeded is in the order of time.
func enough(role *repo.Role, succeeded []ended, rule repo.SuccessRule) *verdict {
	n := int32(0)
	for _, e := range succeeded {
		if !speaksOf(rule, e.task.Index) {
			continue
		}
		if n++; n == rule.Count {
			return &verdict{e.at(), repo.Outcome{
				Result: repo.Succeeded, Reason: ReasonCompleted, Task: e.task.Name,
				Message: fmt.Sprintf("%d of %d tasks of role %s succeeded", n, role.Replicas, role.Name),
			}}
		}
	}
	return nil
}

// drained puts a verdict off until no task of a role that drains goes on.
func (d *decision) drained(role *repo.Role, v *verdict) *verdict {
	if v == nil || !role.Drain {
		return v
	}
	if d.goesOn(role) {
		return nil
	}
	failed, succeeded := d.counted(role)
	for _, list := range [][]ended{failed, succeeded} {
		if n := len(list); n > 0 && list[n-1].at().After(v.at) {
			v.at = list[n-1].at()
		}
	}
	return v
}

// goesOn says whether a task of a role goes on, as far as anybody knows.
func (d *decision) goesOn(role *repo.Role) bool {
	if d.behind() {
		return true
	}
	return slices.ContainsFunc(d.rec.Roles, func(r repo.RoleRecord) bool {
		return r.Name == role.Name && slices.ContainsFunc(r.Tasks, func(t repo.TaskRecord) bool { return live(&t) != nil })
	})
}

// drains says that a role has work enough done, and only waits for its tasks to end.
func (d *decision) drains(role *repo.Role) bool {
	if !role.Drain {
		return false
	}
	_, succeeded := d.counted(role)
	return enough(role, succeeded, repo.SuccessRule{Count: role.MinSucceeded}) != nil
}
