package simulation

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// keepTime lets schedules go on for a while in which nothing goes wrong: cron
// times come while runs go on and while none does. In the end each job has run
// for the last of them.
func (w *world) keepTime() {
	if !slices.ContainsFunc(w.repository.defined, scheduled) {
		return
	}
	w.say("schedules go on for a while")
	w.now = w.now.Add(5 * time.Minute) // while whatever goes on goes on
	end := w.now.Add(6 * time.Minute)
	for limit := w.steps + patience; w.laws.broken == "" && w.steps < limit && (w.now.Before(end) || w.runs()); {
		if !w.settle() {
			break
		}
	}
	for n, job := range w.repository.defined {
		if scheduled(job) && !job.Suspend && !job.Stop {
			w.laws.onTime(w, n, job)
		}
	}
}

func scheduled(job *repo.Job) bool { return job != nil && job.Schedule != nil }

// runs says whether a run of a job with a schedule goes on.
func (w *world) runs() bool {
	for n, job := range w.repository.defined {
		rec := w.remote.head.record(keyOf(n))
		if scheduled(job) && !job.Suspend && !job.Stop && (rec == nil || rec.Run != nil && rec.Run.FinishedAt == nil) {
			return true
		}
	}
	return false
}

// onTime: the last time of a schedule that has come was run for.
func (l *laws) onTime(w *world, n int, job *repo.Job) {
	rec := w.remote.head.record(keyOf(n))
	if l.loose || l.jumped {
		return
	}
	if rec == nil || rec.Schedule == nil {
		l.breaks("the schedule of %s is not known", keyOf(n).Name)
		return
	}
	spec, err := cron.ParseStandard(job.Schedule.Cron)
	if err != nil {
		l.breaks("the schedule of %s: %v", keyOf(n).Name, err)
		return
	}
	var due time.Time
	for at := spec.Next(rec.Schedule.Since.Time); at.Before(w.now.Add(-30 * time.Second)); at = spec.Next(at) {
		due = at
	}
	trigger := repo.Trigger{Kind: repo.TriggerCron, Value: due.UTC().Format(time.RFC3339)}
	ran := slices.ContainsFunc(rec.History, func(h repo.RunSummary) bool { return h.Trigger == trigger })
	if !due.IsZero() && !ran && (rec.Run == nil || rec.Run.Trigger != trigger) {
		l.breaks("nothing of %s has run for its time %s", keyOf(n).Name, trigger.Value)
	}
}
