package e2e

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/repo-layout/crash"
)

// playCron takes a minute, as a schedule knows no shorter time. It has the daemon killed all the way through a run that a time has
// started: that time is answered for once, whenever it is looked at again.
func (x *crashWorld) playCron() {
	x.t.Helper()
	text := x.crashText("cron", "  schedule: {cron: \"* * * * *\"}\n", [2]string{"", "true"})
	x.write("jobs/cron.yaml", text)
	x.push("a job for each minute")
	x.up()
	x.eventually("it waits for its time", func() bool { return x.phase("default/cron") == repo.PhaseScheduled })
	d := func(e crash.Effect, m crash.Moment) crash.Point {
		return crash.Point{Kind: crash.Daemon, Effect: e, Moment: m}
	}
	for _, p := range []crash.Point{
		d(crash.RunPrepare, crash.Before), d("file-run.json", crash.Before), d("file-run.json", crash.After), d(crash.RunPrepare, crash.After),
		d(crash.PodCreate, crash.Before), d(crash.PodCreate, crash.Half), d(crash.PodCreate, crash.After), d(crash.PodAdmit, crash.After),
		d(crash.Push, crash.Before), d(crash.Push, crash.Half),
		d(crash.PodRelease, crash.Before), d(crash.PodRelease, crash.After), d(crash.PodDelete, crash.After), d(crash.RunForget, crash.Half),
	} {
		x.say("to be killed at %s", p)
		x.arm(p, 1)
		for deadline := time.Now().Add(100 * time.Second); ; pause(x.t.Context(), 5*time.Millisecond) {
			ended, killed := x.ended(), x.killed()
			if len(killed) >= x.due {
				break
			}
			if ended {
				x.up()
			}
			require.True(x.t, time.Now().Before(deadline), "%s was not come to: %v", p, killed)
		}
		x.eventually("the daemon is dead", x.ended)
	}
	x.write("jobs/cron.yaml", strings.Replace(text, "spec:\n", "spec:\n  suspend: true\n", 1))
	x.jobs = append(x.jobs, &crashJob{name: "cron", phase: repo.PhaseSuspended})
	x.witness()
	x.rest()
	x.crashLaws()
	history := strings.Split(x.git(x.remote, "show", repo.StatusBranch+":default/default/cron/"+repo.HistoryFile), "\n")
	times, starts := map[string]bool{}, 0
	for _, line := range history {
		_, trigger, _ := strings.Cut(line, `"trigger":`)
		trigger, _, _ = strings.Cut(trigger, "}")
		assert.Contains(x.t, trigger, string(repo.TriggerCron))
		times[trigger] = true
	}
	for _, m := range x.marks() {
		if m.job == "cron" && m.what == "start" {
			starts++
		}
	}
	assert.NotZero(x.t, starts)
	assert.Len(x.t, times, starts, "times that started a run, by starts")
	assert.Len(x.t, history, starts, "runs, by starts")
}
