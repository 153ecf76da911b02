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
	rec.Next = stamp(next)
	d.wake(next)
	return last, !last.IsZero()
}

// latest is the last time of a schedule in (from, now], zero if none, and the
// first one after now. A schedule of every minute that lay still for a year is
// not walked minute by minute: half-way points that still have a time before
// now are skipped to.
func latest(s cron.Schedule, from, now time.Time) (last, next time.Time) {
	next = s.Next(from)
	for !next.IsZero() && !next.After(now) {
		last = next
		if half := last.Add(now.Sub(last) / 2); half.Sub(last) > time.Hour {
			if t := s.Next(half); !t.IsZero() && !t.After(now) {
				last = t
			}
		}
		next = s.Next(last)
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
