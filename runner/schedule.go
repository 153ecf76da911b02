package runner

import (
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// cronTrigger is the schedule's latest time that has come and was not acted
// upon. Of several missed times only the latest counts, as for a CronJob.
func (d *decision) cronTrigger() (repo.Trigger, bool) {
	at, ok := d.scheduled()
	if !ok {
		return repo.Trigger{}, false
	}
	if limit := d.in.Job.Schedule.StartingDeadline; limit > 0 && d.now.Sub(at) > limit {
		d.rec.Schedule.Last = stamp(at) // too late: this time is given up
		return repo.Trigger{}, false
	}
	t := repo.Trigger{Kind: repo.TriggerCron, Value: at.UTC().Format(time.RFC3339)}
	if d.ran(repo.RunID(d.in.Environment, d.in.Job.Key, d.in.Job.Digest, t)) {
		d.rec.Schedule.Last = stamp(at)
		return repo.Trigger{}, false
	}
	return t, true
}

// scheduled keeps the record's schedule up to date and returns the latest
// time that has come since the last one acted upon.
func (d *decision) scheduled() (time.Time, bool) {
	s := d.in.Job.Schedule
	spec, err := parseCron(s)
	if err != nil {
		return time.Time{}, false // render has checked it
	}
	if d.rec.Schedule == nil {
		d.rec.Schedule = &repo.ScheduleRecord{Since: metav1.NewTime(d.now)}
	}
	rec := d.rec.Schedule
	from := rec.Since.Time
	if rec.Last != nil && rec.Last.After(from) {
		from = rec.Last.Time
	}
	last, next := latest(spec, from, d.now)
	if rec.Next = stamp(next); next.IsZero() { // the 30th of February
		rec.Next = nil
	}
	d.wake(next)
	return last, !last.IsZero()
}

// latest is the last time of a schedule in (from, now], zero if none, and the
// first one after now. A schedule of every minute that lay still for years is
// not walked minute by minute: its last time is found by halving.
func latest(s cron.Schedule, from, now time.Time) (last, next time.Time) {
	if every, ok := s.(cron.ConstantDelaySchedule); ok { // counts from its start, not by the clock
		n := max(0, now.Sub(from)/every.Delay)
		if n > 0 {
			last = from.Add(n * every.Delay)
		}
		return last, from.Add((n + 1) * every.Delay)
	}
	next = s.Next(from)
	for end := now; !next.IsZero() && !next.After(now); next = s.Next(last) {
		last = next
		for end.Sub(last) > time.Minute { // no time of the schedule is in (end, now]
			half := last.Add(end.Sub(last) / 2)
			if t := s.Next(half); t.IsZero() || t.After(now) {
				end = half
			} else {
				last = t
			}
		}
	}
	return last, next
}

func parseCron(s *repo.Schedule) (cron.Schedule, error) {
	spec := s.Cron
	zone := s.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	return cron.ParseStandard("CRON_TZ=" + zone + " " + spec)
}
