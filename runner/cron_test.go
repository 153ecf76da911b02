package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// nightly is a repository with a job that runs at 02:00; every test begins at 09:00.
func nightly(t *testing.T, change ...func(*repo.Schedule)) *world {
	s := &repo.Schedule{Cron: "0 2 * * *", Concurrency: repo.Forbid}
	for _, f := range change {
		f(s)
	}
	return pushed(t, func(j *repo.Job) { j.Schedule = s })
}

// wake sleeps until Decide asked to be called, and settles.
func (w *world) wake() {
	w.now = w.out.At
	w.settle()
}

func (w *world) times() []string {
	out := []string{}
	for _, s := range w.record.History {
		out = append(out, s.Trigger.Value)
	}
	return out
}

func TestScheduleStartsAtItsTime(t *testing.T) {
	w := nightly(t)
	w.settle()
	assert.Equal(t, repo.PhaseScheduled, w.record.Phase)
	assert.True(t, w.out.Settled)
	assert.Empty(t, w.starts, "not at the push")
	assert.Equal(t, zulu("2026-03-03T02:00Z"), w.out.At)
	assert.Equal(t, w.out.At, w.record.Schedule.Next.Time)
	w.wake()
	assert.Equal(t, repo.Trigger{Kind: repo.TriggerCron, Value: "2026-03-03T02:00:00Z"}, w.record.Run.Trigger)
	w.succeed()
	assert.Equal(t, zulu("2026-03-04T02:00Z"), w.record.Schedule.Next.Time)
	w.wake() // to clean up
	assert.Len(t, w.starts, 2)
	w.wake()
	assert.Len(t, w.starts, 4)
	w.succeed()
	w.edit(digest("B"))
	w.settle()
	assert.Equal(t, "WaitsForTime", w.record.Conditions[1].Reason)
	assert.Len(t, w.ran(), 2)
}

func TestMissedTimes(t *testing.T) {
	for _, row := range []struct {
		rule     string
		deadline time.Duration
		back     string // when the daemon is there again
		want     []string
	}{
		{"the latest of several is made up for", 0, "2026-03-06T12:00Z", []string{"2026-03-06T02:00:00Z"}},
		{"just within the starting deadline", time.Hour, "2026-03-06T03:00Z", []string{"2026-03-06T02:00:00Z"}},
		{"too late for it", time.Hour, "2026-03-06T03:01Z", []string{}},
		{"none was missed", 0, "2026-03-03T01:59Z", []string{}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			w := nightly(t, func(s *repo.Schedule) { s.StartingDeadline = row.deadline })
			w.settle()
			w.kill()
			w.now = zulu(row.back)
			w.succeed()
			assert.Equal(t, row.want, w.times())
			w.kill()
			w.succeed()
			assert.Equal(t, row.want, w.times(), "made up for once")
		})
	}
}

func TestForbid(t *testing.T) {
	w := nightly(t)
	w.settle()
	w.wake()
	w.wake()
	w.wake()
	assert.Len(t, w.starts, 2, "a run goes on at 02:00 of two days")
	w.succeed()
	assert.Equal(t, []string{"2026-03-03T02:00:00Z", "2026-03-05T02:00:00Z"}, w.times(), "the latest time is made up for at its end")
}

func TestForbidWithStartingDeadline(t *testing.T) {
	w := nightly(t, func(s *repo.Schedule) { s.StartingDeadline = time.Hour })
	w.settle()
	w.wake()
	w.wake()
	w.sleep(61 * time.Minute)
	w.succeed()
	assert.Equal(t, []string{"2026-03-03T02:00:00Z"}, w.times(), "too late at the end of the first")
}

// A time that was given up stays so, whatever the file says later.
func TestTimeGivenUpStaysSo(t *testing.T) {
	w := nightly(t, func(s *repo.Schedule) { s.StartingDeadline = time.Hour })
	w.settle()
	w.kill()
	w.now = zulu("2026-03-03T04:00Z")
	w.settle()
	require.NotNil(t, w.record.Schedule.Last)
	assert.Equal(t, zulu("2026-03-03T02:00Z"), w.record.Schedule.Last.UTC())
	w.edit(func(j *repo.Job) {
		j.Schedule = &repo.Schedule{Cron: j.Schedule.Cron, Concurrency: repo.Forbid, StartingDeadline: 10 * time.Hour}
	})
	w.succeed()
	assert.Empty(t, w.times())
}

func TestReplace(t *testing.T) {
	w := nightly(t, func(s *repo.Schedule) { s.Concurrency = repo.Replace })
	w.settle()
	w.wake()
	w.wake()
	assert.Equal(t, []string{"2026-03-03T02:00:00Z"}, w.times())
	assert.Equal(t, ReasonReplaced, w.record.History[0].Reason)
	assert.Equal(t, "2026-03-04T02:00:00Z", w.record.Run.Trigger.Value)
	w.succeed()
	assert.Len(t, w.ran(), 2)
}

// A daemon that was killed before the record of a start was pushed must not
// take the same time for a new definition.
func TestScheduleOfAnAdoptedRun(t *testing.T) {
	w := nightly(t)
	w.settle()
	w.now = w.out.At
	w.act()
	w.kill()
	w.edit(digest("B"))
	w.succeed()
	assert.Equal(t, []string{"2026-03-03T02:00:00Z"}, w.times())
	assert.Equal(t, []string{"A"}, w.ran())
}

func TestScheduleThatComesAndGoes(t *testing.T) {
	w := nightly(t)
	w.settle()
	w.edit(func(j *repo.Job) { j.Schedule = nil })
	w.succeed()
	assert.Nil(t, w.record.Schedule)
	assert.Len(t, w.ran(), 1, "without a schedule the push itself starts it")
	w.sleep(20 * 24 * time.Hour)
	w.edit(func(j *repo.Job) { j.Schedule = &repo.Schedule{Cron: "0 2 * * *", Concurrency: repo.Forbid} })
	w.succeed()
	assert.Len(t, w.ran(), 1, "times before it was scheduled are not made up for")
}

func TestRemovedScheduleIsNotMadeUpFor(t *testing.T) {
	w := nightly(t)
	w.settle()
	job := deepCopy(w.job)
	w.push(nil)
	w.settle()
	assert.Equal(t, repo.PhaseRemoved, w.record.Phase)
	assert.Zero(t, w.out.At)
	w.sleep(20 * 24 * time.Hour)
	w.push(job)
	w.succeed()
	assert.Empty(t, w.times(), "times at which it was not defined")
}

func TestSuspendedSchedule(t *testing.T) {
	w := nightly(t)
	w.settle()
	w.edit(func(j *repo.Job) { j.Suspend = true })
	w.settle()
	w.wake()
	assert.Empty(t, w.starts)
	assert.Equal(t, repo.PhaseSuspended, w.record.Phase)
	w.edit(func(j *repo.Job) { j.Suspend = false })
	w.succeed()
	assert.Equal(t, []string{"2026-03-03T02:00:00Z"}, w.times(), "as for a CronJob, a missed time is made up for")
}

// A time that never comes: the record has none, as after it was read again.
func TestScheduleWithoutTimes(t *testing.T) {
	w := nightly(t, func(s *repo.Schedule) { s.Cron = "0 0 30 2 *" })
	w.settle()
	assert.Equal(t, repo.PhaseScheduled, w.record.Phase)
	assert.Nil(t, w.record.Schedule.Next)
	assert.True(t, w.out.At.IsZero())
}
