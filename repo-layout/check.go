package repo

import "fmt"

// MostAttempts is a number that no count of attempts comes to.
const MostAttempts = 1 << 30

// Check says what in a record cannot be: somebody has changed it by hand, and
// nothing can be decided by it. What it takes for good may still be untrue.
func (r *Record) Check() error {
	if err := r.Run.check(len(r.Attempts)); err != nil {
		return fmt.Errorf("run.%w", err)
	}
	if r.Run == nil && len(r.Roles) > 0 {
		return fmt.Errorf("roles: there is no run that they are of")
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if err := count("attempt", a.Attempt); err != nil {
			return fmt.Errorf("attempts[%d].%w", i, err)
		}
		for j := range a.Tasks {
			if err := a.Tasks[j].check(); err != nil {
				return fmt.Errorf("attempts[%d].tasks[%d].%w", i, j, err)
			}
		}
	}
	names := map[string]bool{}
	for i := range r.Roles {
		role := &r.Roles[i]
		if names[role.Name] {
			return fmt.Errorf("roles[%d].name: there are two roles %q", i, role.Name)
		}
		names[role.Name] = true
		if err := role.check(); err != nil {
			return fmt.Errorf("roles[%d].%w", i, err)
		}
	}
	return nil
}

func (r *RunRecord) check(attempts int) error {
	switch {
	case r == nil:
		return nil
	case r.ID == "":
		return fmt.Errorf("id: it has none")
	case (r.FinishedAt == nil) != (r.Outcome == nil):
		return fmt.Errorf("finishedAt and outcome: one is there without the other")
	case r.FinishedAt == nil && r.RetryAt != nil && attempts == 0:
		return fmt.Errorf("retryAt: there is no attempt that is tried again")
	}
	if err := r.Retries.check(); err != nil {
		return err
	}
	return count("attempt", r.Attempt)
}

func (r *RoleRecord) check() error {
	if r.Replicas < 0 || int(r.Replicas) > len(r.Tasks) {
		return fmt.Errorf("replicas: %d, and there are %d tasks", r.Replicas, len(r.Tasks))
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		if int(t.Index) != i {
			return fmt.Errorf("tasks[%d].index: %d", i, t.Index)
		}
		if want := (Task{Role: r.Name, Index: t.Index}).String(); t.Name != want {
			return fmt.Errorf("tasks[%d].name: %q, not %q", i, t.Name, want)
		}
		if err := t.check(); err != nil {
			return fmt.Errorf("tasks[%d].%w", i, err)
		}
	}
	return nil
}

func (t *TaskRecord) check() error {
	if err := t.Retries.check(); err != nil {
		return err
	}
	if err := count("firstAttempt", t.FirstAttempt); err != nil {
		return err
	}
	before := int32(-1)
	for i := range t.Attempts {
		a := &t.Attempts[i]
		if err := count("attempt", a.Attempt); err != nil {
			return fmt.Errorf("attempts[%d].%w", i, err)
		}
		if a.Attempt <= before {
			return fmt.Errorf("attempts[%d].attempt: %d comes after %d", i, a.Attempt, before)
		}
		before = a.Attempt
	}
	return nil
}

func (r *Retries) check() error {
	if err := count("retries.total", r.Total); err != nil {
		return err
	}
	return count("retries.accountable", r.Accountable)
}

func count(what string, n int32) error {
	if n < 0 || n > MostAttempts {
		return fmt.Errorf("%s: %d", what, n)
	}
	return nil
}
