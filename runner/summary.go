package runner

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// define brings the definition into the record. A commit that changes nothing
// of what it says leaves the record as it is, so that no commit follows from
// it: lines that only moved are not a change, unless they are where an error is.
func (d *decision) define() {
	job, invalid := d.in.Job, d.in.Invalid
	def := &d.rec.Definition
	switch {
	case invalid != nil:
		errors := texts(invalid.Errors)
		if slices.Equal(errors, d.rec.Errors) {
			return
		}
		d.rec.Errors, def.Source = errors, invalid.Source
		d.rec.ObservedRevision = d.in.Revision
	case job != nil:
		moved := def.Digest != job.Digest || def.Unit != job.Source.Unit || def.File != job.Source.File || def.Kind != job.Kind
		if !moved && d.rec.Errors == nil && sameMessages(d.rec.Warnings, job.Warnings) {
			return
		}
		*def = repo.Definition{APIVersion: job.APIVersion, Kind: job.Kind, Source: job.Source, Digest: job.Digest}
		d.rec.Errors, d.rec.Warnings, d.rec.Metadata.Labels = nil, texts(job.Warnings), job.Labels
		d.rec.ObservedRevision = d.in.Revision
	}
}

func texts(errs []*repo.Error) []string {
	var out []string
	for _, e := range errs {
		out = append(out, cut(e.Error()))
	}
	return out
}

// sameMessages compares warnings without their positions.
func sameMessages(old []string, now []*repo.Error) bool {
	return slices.EqualFunc(old, now, func(text string, e *repo.Error) bool {
		bare := *e
		bare.File, bare.Line, bare.Column = "", 0, 0
		suffix := cut(bare.Error())
		return len(text) >= len(suffix) && text[len(text)-len(suffix):] == suffix
	})
}

// summarise counts, and says in a word and a sentence where the job stands.
func (d *decision) summarise() {
	for i := range d.rec.Roles {
		countTasks(&d.rec.Roles[i])
	}
	d.rec.Phase, d.rec.Reason, d.rec.Message = d.phase()
	d.rec.Message = cut(d.rec.Message)
	if d.in.Job == nil || d.in.Job.Schedule == nil {
		if d.in.Job != nil || d.gone() { // times from now on, should it come back
			d.rec.Schedule = nil
		}
	} else {
		d.scheduled()
	}
	d.conditions()
}

func countTasks(r *repo.RoleRecord) {
	r.Pending, r.Running, r.Succeeded, r.Failed = 0, 0, 0, 0
	for _, t := range r.Tasks {
		switch t.Phase {
		case repo.TaskPending, repo.TaskRetrying:
			r.Pending++
		case repo.TaskRunning:
			r.Running++
		case repo.TaskSucceeded:
			r.Succeeded++
		case repo.TaskFailed:
			r.Failed++
		}
	}
}

func (d *decision) phase() (phase repo.Phase, reason, message string) {
	if d.active() {
		return d.activePhase()
	}
	run, outcome := d.rec.Run, &repo.Outcome{}
	if run != nil && run.Outcome != nil {
		outcome = run.Outcome
	}
	switch {
	case d.gone():
		return repo.PhaseRemoved, ReasonRemoved, "the definition is no longer in the repository"
	case d.in.Invalid != nil:
		return repo.PhaseInvalid, "DefinitionInvalid", first(d.rec.Errors)
	case d.waits == ReasonStopRequested:
		return repo.PhaseStopped, d.waits, "the definition says stop; nothing was started"
	case d.waits == ReasonSuspended:
		return repo.PhaseSuspended, d.waits, "the definition says suspend; nothing was started"
	case d.waits == "Forbidden":
		return repo.PhaseWaiting, ReasonForbidden, d.in.Forbidden
	case d.waits != "":
		return repo.PhaseWaiting, d.waits, "the definition says that nothing starts yet"
	case run == nil && d.in.Job != nil && d.in.Job.Schedule != nil:
		return repo.PhaseScheduled, "WaitsForTime", "runs by its schedule " + d.in.Job.Schedule.Cron
	case run == nil:
		return repo.PhaseWaiting, "NotStarted", d.in.Withheld
	}
	return repo.Phase(outcome.Result), outcome.Reason, withTask(outcome)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func withTask(o *repo.Outcome) string {
	if o.Task == "" {
		return o.Message
	}
	return o.Task + ": " + o.Message
}

func (d *decision) activePhase() (phase repo.Phase, reason, message string) {
	run := d.rec.Run
	running, ended, waiting := 0, 0, ""
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		switch t.Phase {
		case repo.TaskRunning:
			running++
		case repo.TaskSucceeded, repo.TaskFailed:
			ended++
		}
		if a := live(t); a != nil && a.Waiting != "" && waiting == "" {
			waiting = t.Name + ": " + a.Waiting
		}
	})
	switch {
	case run.Ending != nil:
		message := "waits for its pods to end: " + withTask(run.Ending)
		if waiting != "" {
			message += "; " + waiting
		}
		if run.Stopping {
			return repo.PhaseRunning, "Stopping", message
		}
		return repo.PhaseRunning, "AttemptEnding", message
	case run.Suspended != nil:
		return repo.PhaseSuspended, ReasonSuspended, "the definition says suspend"
	case run.RetryAt != nil:
		before := d.rec.Attempts[len(d.rec.Attempts)-1]
		return repo.PhaseRetrying, before.Reason, fmt.Sprintf("attempt %d starts at %s, after %s",
			run.Attempt+1, run.RetryAt.UTC().Format("15:04:05 MST"), withTask(&before.Outcome))
	case running == 0 && ended == 0:
		return repo.PhasePending, "TasksPending", waiting
	case waiting != "":
		return repo.PhaseRunning, "TasksWaiting", waiting
	}
	return repo.PhaseRunning, "", ""
}

// ReasonForbidden is why a job waits that the operator's policy forbids.
const ReasonForbidden = "PolicyForbids"

// The condition by which a removal that waits to be confirmed is known again.
const (
	conditionValid = "Valid"
	reasonWithheld = "Withheld"
)

// conditions say whether the definition can be read, and whether it is what ran last.
func (d *decision) conditions() {
	valid := metav1.Condition{Type: conditionValid, Status: metav1.ConditionTrue, Reason: "Read"}
	if d.in.Invalid != nil {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, "DefinitionInvalid", first(d.rec.Errors)
	}
	if d.in.Withheld != "" {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionUnknown, reasonWithheld, d.in.Withheld
	}
	d.set(valid)
	if d.in.Job == nil || d.in.Invalid != nil {
		return
	}
	d.set(d.upToDate())
}

func (d *decision) upToDate() metav1.Condition {
	c := metav1.Condition{Type: "UpToDate", Status: metav1.ConditionTrue, Reason: "Current"}
	run, job := d.rec.Run, d.in.Job
	switch {
	case run == nil || run.Digest == job.Digest:
	case job.Schedule != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "WaitsForTime", "the definition has changed; it runs at the schedule's next time"
	case d.waits != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, d.waits, "the definition has changed; it has not run yet"
	case slices.Contains(run.Covers, repo.RunID(d.in.Environment, job.Key, job.Digest, repo.Trigger{Kind: repo.TriggerPush})):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Ignored", "the definition changed while a run was going on, and onChange is Ignore"
	case d.active():
		if _, ok := d.trigger(); ok {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, "WaitsForRun", "the definition has changed; it runs when the present run has ended"
			break
		}
		fallthrough
	default:
		c.Status, c.Reason = metav1.ConditionFalse, "AlreadyRan"
		c.Message = "the present definition has run before and does not run again; `trainyard rerun " + job.Name + "` starts it anew"
	}
	return c
}

// set puts a condition into the record, keeping the time of an unchanged status.
func (d *decision) set(c metav1.Condition) {
	c.LastTransitionTime = metav1.NewTime(d.now)
	c.Message = cut(c.Message)
	for i := range d.rec.Conditions {
		old := &d.rec.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	d.rec.Conditions = append(d.rec.Conditions, c)
}
