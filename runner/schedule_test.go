package runner

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// zulu reads a time such as 2026-03-29T01:30Z.
func zulu(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse("2006-01-02T15:04Z", text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestLatest(t *testing.T) {
	const berlin = "Europe/Berlin"
	for _, row := range []struct {
		rule            string
		cron, zone      string
		from, now       string
		wantLast, wants string
	}{
		{"nothing yet", "0 2 * * *", "", "2026-03-02T09:00Z", "2026-03-03T01:59Z", "", "2026-03-03T02:00Z"},
		{"at its very time", "0 2 * * *", "", "2026-03-02T09:00Z", "2026-03-03T02:00Z", "2026-03-03T02:00Z", "2026-03-04T02:00Z"},
		{"the time itself was acted upon", "0 2 * * *", "", "2026-03-03T02:00Z", "2026-03-03T02:00Z", "", "2026-03-04T02:00Z"},
		{"of several missed the latest", "0 2 * * *", "", "2026-03-02T09:00Z", "2026-03-06T12:00Z", "2026-03-06T02:00Z", "2026-03-07T02:00Z"},
		{"@daily", "@daily", "", "2026-03-02T09:00Z", "2026-03-03T09:00Z", "2026-03-03T00:00Z", "2026-03-04T00:00Z"},
		{"winter in Berlin", "0 2 * * *", berlin, "2026-01-10T00:00Z", "2026-01-10T12:00Z", "2026-01-10T01:00Z", "2026-01-11T01:00Z"},
		{"summer in Berlin", "0 2 * * *", berlin, "2026-07-09T12:00Z", "2026-07-10T12:00Z", "2026-07-10T00:00Z", "2026-07-11T00:00Z"},
		{"half hours in Kolkata", "0 0 * * *", "Asia/Kolkata", "2026-01-10T12:00Z", "2026-01-10T19:00Z", "2026-01-10T18:30Z", "2026-01-11T18:30Z"},
		{"the hour that does not exist in spring", "30 2 * * *", berlin, "2026-03-28T12:00Z", "2026-03-29T23:00Z", "", "2026-03-30T00:30Z"},
		{"after the gap in spring", "30 3 * * *", berlin, "2026-03-28T12:00Z", "2026-03-29T23:00Z", "2026-03-29T01:30Z", "2026-03-30T01:30Z"},
		{"the hour that comes twice in autumn, first", "30 2 * * *", berlin, "2026-10-24T12:00Z", "2026-10-25T01:00Z", "2026-10-25T00:30Z", "2026-10-25T01:30Z"},
		{"every hour over the autumn change", "0 * * * *", berlin, "2026-10-25T00:00Z", "2026-10-25T01:00Z", "2026-10-25T01:00Z", "2026-10-25T02:00Z"},
		{"the 29th of February", "0 0 29 2 *", "", "2025-01-01T00:00Z", "2028-03-01T00:00Z", "2028-02-29T00:00Z", "2032-02-29T00:00Z"},
		{"@every counts from its start", "@every 90m", "", "2026-03-02T09:10Z", "2026-03-02T12:30Z", "2026-03-02T12:10Z", "2026-03-02T13:40Z"},
		{"@every, nothing yet", "@every 90m", "", "2026-03-02T09:10Z", "2026-03-02T10:39Z", "", "2026-03-02T10:40Z"},
		{"a day that never comes", "0 0 30 2 *", "", "2025-01-01T00:00Z", "2028-03-01T00:00Z", "", ""},
	} {
		t.Run(row.rule, func(t *testing.T) {
			spec, err := parseCron(&repo.Schedule{Cron: row.cron, TimeZone: row.zone})
			require.NoError(t, err)
			last, next := latest(spec, zulu(row.from), zulu(row.now))
			assert.Equal(t, row.wantLast, short(last))
			assert.Equal(t, row.wants, short(next))
		})
	}
}

func short(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04Z")
}

// counting counts how often a schedule is asked.
type counting struct {
	cron.Schedule
	asked int
}

func (c *counting) Next(t time.Time) time.Time {
	c.asked++
	return c.Schedule.Next(t)
}

func TestLatestIsBounded(t *testing.T) {
	now := zulu("2026-03-02T09:00Z")
	for _, expr := range []string{"* * * * *", "*/5 * * * *", "0 2 * * *", "* * * 1 *", "* 3 1 1 *", "0 0 29 2 *", "0 0 30 2 *"} {
		for _, back := range []time.Duration{time.Minute, time.Hour, 48 * time.Hour, 400 * 24 * time.Hour, 3653 * 24 * time.Hour} {
			spec, err := parseCron(&repo.Schedule{Cron: expr, TimeZone: "Europe/Berlin"})
			require.NoError(t, err)
			counted := &counting{Schedule: spec}
			last, next := latest(counted, now.Add(-back), now)
			assert.Less(t, counted.asked, 80, "%s after %s", expr, back)
			assert.True(t, next.IsZero() || next.After(now), expr)
			if !last.IsZero() {
				assert.Equal(t, next, spec.Next(last), "%s after %s: no time between the last and the next", expr, back)
				assert.False(t, last.After(now) || !last.After(now.Add(-back)), expr)
			} else {
				assert.Equal(t, next, spec.Next(now.Add(-back)), "%s after %s: there was one", expr, back)
			}
		}
	}
}

func TestParseCron(t *testing.T) {
	for _, bad := range []repo.Schedule{{Cron: ""}, {Cron: "* * * *"}, {Cron: "* * * * * *"}, {Cron: "61 * * * *"}, {Cron: "@daily", TimeZone: "Mars/Olympus"}} {
		_, err := parseCron(&bad)
		assert.Error(t, err, bad)
	}
}
