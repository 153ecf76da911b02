package runner

import (
	"context"
	"fmt"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// ending is a task attempt that has ended.
type ending struct {
	attempt *repo.TaskAttemptRecord
	sequel  string // of its task: what comes after it
}

// announce tells the backend of outcomes, if that wants to hear of them.
func (l *Loop) announce(ctx context.Context, namespace string, endings []ending) {
	to, ok := l.backend.(Announcer)
	if !ok {
		return
	}
	for _, e := range endings {
		if e.attempt.UID != "" {
			reason, message := e.words()
			to.Announce(ctx, namespace, e.attempt.Pod, e.attempt.UID, reason, message, e.attempt.Result == repo.Failed)
		}
	}
}

// words are those of an ending in short: "Failed", "OOMKilled, Permanent, not retried: …".
func (e *ending) words() (reason, message string) {
	o := e.attempt.Outcome
	message = o.Reason
	if o.Class != "" {
		message += ", " + string(o.Class)
	}
	if o.Result == repo.Failed && e.sequel != "" {
		message += ", " + e.sequel
	}
	if o.Message != "" {
		message += ": " + o.Message
	}
	return string(o.Result), cut(message)
}

// newEndings are the task attempts that ended between two records, those of an
// attempt of the run that was closed at once among them.
func newEndings(old, now *repo.Record) (out []ending) {
	known := map[string]bool{}
	each(old, func(_ *repo.TaskRecord, a *repo.TaskAttemptRecord, _ bool) { known[a.Pod] = true })
	each(now, func(t *repo.TaskRecord, a *repo.TaskAttemptRecord, closed bool) {
		if !known[a.Pod] {
			known[a.Pod] = true
			out = append(out, ending{a, sequel(t, a, closed)})
		}
	})
	return out
}

// each calls f for every task attempt of a record that has ended. closed says
// that it is of an earlier attempt of the run.
func each(r *repo.Record, f func(t *repo.TaskRecord, a *repo.TaskAttemptRecord, closed bool)) {
	in := func(tasks []repo.TaskRecord, closed bool) {
		for i := range tasks {
			for j := range tasks[i].Attempts {
				if a := &tasks[i].Attempts[j]; a.Outcome != nil {
					f(&tasks[i], a, closed)
				}
			}
		}
	}
	for i := range r.Attempts {
		in(r.Attempts[i].Tasks, true)
	}
	for i := range r.Roles {
		in(r.Roles[i].Tasks, false)
	}
}

// sequel is what becomes of a task after an attempt that ended.
func sequel(t *repo.TaskRecord, a *repo.TaskAttemptRecord, closed bool) string {
	switch {
	case closed:
		return "retried with the whole run"
	case a.Attempt < last(t).Attempt:
		return "retried"
	case t.RetryAt != nil:
		return fmt.Sprintf("retried at %s", clock(t.RetryAt.Time))
	case t.Phase == repo.TaskFailed:
		return "not retried"
	}
	return ""
}
