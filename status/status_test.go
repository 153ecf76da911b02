package status

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// at is a time so many seconds after the morning on which every test begins.
func at(seconds int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 2, 9, 0, seconds, 0, time.UTC))
}

func later(seconds int) *metav1.Time { t := at(seconds); return &t }

func code(n int32) *int32 { return &n }

// record is one of a job of which nothing has run.
func record(name string, phase repo.Phase) repo.Record {
	r := repo.Record{APIVersion: repo.APIVersion, Kind: repo.RecordKind, Environment: "prod", Phase: phase, ObservedRevision: "4b825dc"}
	r.Metadata = repo.RecordMeta{Name: name, Namespace: "nlp"}
	r.Definition = repo.Definition{APIVersion: "trainyard.dev/v1", Kind: "TrainingJob", Source: repo.Source{Unit: "jobs/" + name + ".yaml", File: "jobs/" + name + ".yaml", Line: 1}}
	return r
}

// ran gives a record a run of a worker and a parameter server, 2 GPUs each
// worker, which began at second start and took a minute.
func ran(r repo.Record, start int, result repo.Result) repo.Record {
	id := r.Metadata.Name + "-abcdefghij"
	r.Run = &repo.RunRecord{
		ID: id, Digest: "v1:1", Shape: "v1:s", Trigger: repo.Trigger{Kind: repo.TriggerPush}, Revision: "4b825dc",
		StartedAt: at(start), RunningAt: later(start + 1), AttemptAt: later(start), GPUSeconds: 120,
	}
	worker := repo.TaskAttemptRecord{Pod: id + "-worker-0-0-0", UID: "u1", Node: "n1", CreatedAt: at(start), StartedAt: later(start + 1)}
	server := repo.TaskAttemptRecord{Pod: id + "-ps-0-0-0", UID: "u2", Node: "n1", CreatedAt: at(start), StartedAt: later(start + 1)}
	phase, ps := repo.TaskRunning, repo.TaskRunning
	if result != "" {
		o := repo.Outcome{Result: result, ExitCode: code(0), Reason: "Completed"}
		phase, ps = repo.TaskSucceeded, repo.TaskStopped
		if result == repo.Failed {
			phase = repo.TaskFailed
			o = repo.Outcome{Result: result, Class: repo.Unknown, ExitCode: code(1), Reason: "Exited", Message: `container "train" exited with code 1`}
			worker.Log = repo.TailPath(id, repo.TaskAttempt{Task: repo.Task{Role: "worker"}})
		}
		worker.Outcome, worker.FinishedAt = &o, later(start+61)
		server.Outcome, server.FinishedAt = &repo.Outcome{Result: repo.Stopped, Reason: "RunEnded"}, later(start+62)
		run := o
		run.Task = "worker-0"
		r.Run.Outcome, r.Run.FinishedAt = &run, later(start+62)
		r.History = append(r.History, repo.RunSummary{
			ID: id, Digest: "v1:1", Trigger: r.Run.Trigger, Revision: "4b825dc", StartedAt: r.Run.StartedAt, FinishedAt: *r.Run.FinishedAt,
			Attempts: 1, GPUSeconds: 120, Outcome: run,
		})
		r.Reason, r.Message = run.Reason, run.Message
	}
	r.Roles = []repo.RoleRecord{
		{Name: "worker", Replicas: 1, GPUs: 2, Tasks: []repo.TaskRecord{{Name: "worker-0", Phase: phase, Attempts: []repo.TaskAttemptRecord{worker}}}},
		{Name: "ps", Replicas: 1, Daemon: true, Tasks: []repo.TaskRecord{{Name: "ps-0", Phase: ps, Attempts: []repo.TaskAttemptRecord{server}}}},
	}
	for i := range r.Roles {
		switch role := &r.Roles[i]; role.Tasks[0].Phase {
		case repo.TaskRunning:
			role.Running = 1
		case repo.TaskSucceeded:
			role.Succeeded = 1
		case repo.TaskFailed:
			role.Failed = 1
		}
	}
	return r
}

const gone = `12 of 13 jobs have vanished from the repository; nothing is stopped. If they are meant to go, commit this to trainyard.yaml: removal: {confirm: "4b825dc642"}`

// all is a record of each kind.
func all() []repo.Record {
	running := ran(record("running", repo.PhaseRunning), 600, "")
	waiting := ran(record("waiting", repo.PhasePending), 700, "")
	waiting.Message = "worker-0: 8 GPUs asked for and none free"
	for i := range waiting.Roles {
		role := &waiting.Roles[i]
		role.Running, role.Pending, role.Tasks[0].Phase = 0, 1, repo.TaskPending
		role.Tasks[0].Attempts[0].StartedAt, role.Tasks[0].Attempts[0].Waiting = nil, "8 GPUs asked for and none free"
	}
	retried := ran(record("retried", repo.PhaseSucceeded), 100, repo.Succeeded)
	failed := retried.Roles[0].Tasks[0].Attempts[0]
	failed.Outcome = &repo.Outcome{Result: repo.Failed, Class: repo.Transient, Free: true, ExitCode: code(137), Signal: 9, Reason: "Preempted", Message: "the place was needed"}
	task := &retried.Roles[0].Tasks[0]
	task.Attempts[0].Attempt, task.Attempts[0].Pod = 1, "retried-abcdefghij-worker-0-0-1"
	task.Attempts = append([]repo.TaskAttemptRecord{failed}, task.Attempts...)
	task.Retries = repo.Retries{Total: 1}
	invalid := record("invalid", repo.PhaseInvalid)
	invalid.Errors = []string{"jobs/invalid.yaml:4:3: spec.role: unknown field (meant roles?)"}
	warned := ran(record("warned", repo.PhaseSucceeded), 50, repo.Succeeded)
	warned.Warnings = []string{"jobs/warned.yaml:7:5: spec.replica_specs: the spelling used before August 2017"}
	board := ran(record("board", repo.PhaseSucceeded), 40, repo.Succeeded)
	b := &board.Roles[1]
	b.Outlives, b.Running, b.Tasks[0].Phase = true, 1, repo.TaskRunning
	b.Tasks[0].Attempts[0].Outcome, b.Tasks[0].Attempts[0].FinishedAt, b.Tasks[0].Attempts[0].Address = nil, nil, "127.0.0.1:6006"
	suspended := record("suspended", repo.PhaseSuspended)
	suspended.Reason, suspended.Message = "Suspended", "the definition says suspend; nothing was started"
	withheld := ran(record("withheld", repo.PhaseRunning), 650, "")
	withheld.Run.GPUSeconds = 0
	withheld.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionUnknown, Reason: "Withheld", Message: gone}}
	retrying := ran(record("retrying", repo.PhaseRetrying), 400, repo.Failed)
	first := retrying.Roles[0].Tasks[0]
	retrying.Run.Attempt, retrying.Run.Retries, retrying.Run.RetryAt = 1, repo.Retries{Total: 1, Accountable: 1}, later(480)
	retrying.Attempts = []repo.AttemptRecord{{StartedAt: at(400), FinishedAt: at(462), Outcome: *retrying.Run.Outcome, Tasks: []repo.TaskRecord{first}}}
	retrying.Run.Outcome, retrying.Run.FinishedAt, retrying.History = nil, nil, nil
	retrying.Reason, retrying.Message, retrying.Run.GPUSeconds = "Retry", "attempt 2 starts at 09:08:00", 7200
	for i := range retrying.Roles {
		role := &retrying.Roles[i]
		role.Failed, role.Pending, role.Tasks = 0, 1, []repo.TaskRecord{{Name: role.Tasks[0].Name, Phase: repo.TaskPending}}
	}
	scheduled := record("scheduled", repo.PhaseScheduled)
	scheduled.Schedule = &repo.ScheduleRecord{Since: at(0), Next: later(86400)}
	return []repo.Record{
		running, waiting, retried, ran(record("failed", repo.PhaseFailed), 300, repo.Failed), invalid, warned, board, suspended, scheduled,
		withheld, retrying, ran(record("removed", repo.PhaseRemoved), 10, repo.Succeeded),
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "go test ./status -update rewrites it")
}

func TestPages(t *testing.T) {
	tail := func(string) string { return "epoch 1\nTraceback: no such file\n" }
	for _, r := range all() {
		t.Run(r.Metadata.Name, func(t *testing.T) {
			golden(t, r.Metadata.Name+".md", Page(&r, tail))
			assert.Equal(t, Page(&r, tail), Page(&r, tail))
		})
	}
}

func TestDashboard(t *testing.T) {
	records := all()
	got := Dashboard(nil, repo.Layout{}, "prod", records, []string{gone})
	golden(t, "dashboard.md", got)
	assert.Equal(t, got, Dashboard(got, repo.Layout{}, "prod", records, []string{gone}), "the same state gives the same bytes")
	golden(t, "empty.md", Dashboard(nil, repo.Layout{}, "prod", nil, nil))
}

// Every number of the dashboard, counted once more from the records.
func TestNumbersOfTheDashboard(t *testing.T) {
	checkNumbers(t, all())
	rapid.Check(t, func(t *rapid.T) {
		records := all()
		for i := range records {
			r := &records[i]
			if r.Run == nil {
				continue
			}
			r.Run.GPUSeconds = rapid.Int64Range(0, 1<<40).Draw(t, "seconds")
			r.Run.Retries.Total = rapid.Int32Range(0, 99).Draw(t, "retries")
			for k := range rapid.IntRange(0, 3).Draw(t, "runs") {
				r.History = append(r.History, repo.RunSummary{ID: fmt.Sprint("run-", k), GPUSeconds: rapid.Int64Range(0, 1<<40).Draw(t, "before")})
			}
			role := &r.Roles[rapid.IntRange(0, 1).Draw(t, "role")]
			role.Replicas = rapid.Int32Range(1, 40).Draw(t, "replicas")
			role.Succeeded, role.Tasks = 0, nil
			for n := range role.Replicas {
				task := repo.TaskRecord{Name: fmt.Sprint(role.Name, "-", n), Phase: rapid.SampledFrom([]repo.TaskPhase{repo.TaskRunning, repo.TaskSucceeded}).Draw(t, "phase")}
				task.Retries.Total = rapid.Int32Range(0, 3).Draw(t, "again")
				if role.Tasks = append(role.Tasks, task); task.Phase == repo.TaskSucceeded {
					role.Succeeded++
				}
			}
		}
		checkNumbers(t, records)
	})
}

func checkNumbers(t require.TestingT, records []repo.Record) {
	text := string(Dashboard(nil, repo.Layout{}, "prod", records, nil))
	phases, runs, seconds := map[repo.Phase]int{}, 0, int64(0)
	for _, r := range records {
		phases[r.Phase]++
		runs += len(r.History)
		ids := map[string]int64{}
		if r.Run != nil {
			ids[r.Run.ID] = r.Run.GPUSeconds
		}
		for _, s := range r.History { // what was written when it had finished
			ids[s.ID] = s.GPUSeconds
		}
		own := int64(0)
		for _, n := range ids {
			own += n
		}
		seconds += own
		cells := rowOf(t, text, r.Metadata.Name)
		require.Equal(t, string(r.Phase), cells[1])
		if own > 0 {
			require.Equal(t, fmt.Sprintf("%.2f", float64(own)/3600), cells[6], r.Metadata.Name)
		}
		if r.Run == nil {
			continue
		}
		done, want, retries := 0, 0, r.Run.Retries.Total
		tasks := 0
		for _, role := range r.Roles {
			for _, task := range role.Tasks {
				retries += task.Retries.Total
				tasks++
				if role.Daemon {
					continue
				}
				if want++; task.Phase == repo.TaskSucceeded {
					done++
				}
			}
		}
		require.Equal(t, fmt.Sprintf("%d/%d", done, want), cells[2], r.Metadata.Name)
		require.Equal(t, fmt.Sprint(retries), cells[3], r.Metadata.Name)
		require.Equal(t, r.Run.StartedAt.Format("2006-01-02 15:04:05"), cells[4])
	}
	numbers := []string{fmt.Sprintf("%d jobs", len(records))}
	for _, p := range []repo.Phase{
		repo.PhaseRunning, repo.PhaseRetrying, repo.PhasePending, repo.PhaseWaiting, repo.PhaseSuspended, repo.PhaseScheduled,
		repo.PhaseFailed, repo.PhaseInvalid, repo.PhaseSucceeded, repo.PhaseStopped, repo.PhaseRemoved,
	} {
		if phases[p] > 0 {
			numbers = append(numbers, fmt.Sprintf("%d %s", phases[p], p))
		}
	}
	numbers = append(numbers, fmt.Sprintf("%d finished runs", runs), fmt.Sprintf("%.2f GPU hours", float64(seconds)/3600))
	require.Contains(t, text, "\n"+strings.Join(numbers, " · ")+"\n")
}

// rowOf are the cells of a job's row.
func rowOf(t require.TestingT, text, name string) []string {
	var rows []string
	for _, l := range strings.Split(text, "\n") {
		if strings.HasPrefix(l, "| [nlp/"+name+"]") {
			rows = append(rows, l)
		}
	}
	require.Len(t, rows, 1, name)
	return strings.Split(rows[0], " | ")
}

// A job in a phase of a later version is shown too, and the newest is the first.
func TestNoJobIsLeftOut(t *testing.T) {
	records := []repo.Record{ran(record("old", "Novel"), 1, ""), ran(record("new", "Novel"), 2, ""), ran(record("also", "Novel"), 1, ""), record("none", "")}
	text := string(Dashboard(nil, repo.Layout{}, "prod", records, nil))
	assert.Regexp(t, `(?s)### Others.*nlp/new.*nlp/also.*nlp/old.*nlp/none`, text)
	assert.Equal(t, text, string(Dashboard(nil, repo.Layout{}, "prod", []repo.Record{records[2], records[3], records[1], records[0]}, nil)), "in any order")
}

// Marks that people or merges damaged cost nobody's words, and no section is there twice.
func TestDamagedMarks(t *testing.T) {
	section := func(env string, existing string) string {
		return string(Dashboard([]byte(existing), repo.Layout{}, env, []repo.Record{record("j", repo.PhaseSucceeded)}, nil))
	}
	whole := section("qa", section("prod", "# Ours\n"))
	for name, text := range map[string]string{
		"no end":      strings.Replace(whole, "<!-- trainyard:end prod -->\n", "", 1),
		"no begin":    strings.Replace(whole, "<!-- trainyard:begin prod -->\n", "", 1),
		"doubled":     whole + "Theirs.\n" + section("prod", ""),
		"no last end": strings.TrimSuffix(whole, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			got := section("prod", text)
			assert.Equal(t, got, section("prod", got))
			assert.Contains(t, got, strings.TrimSpace(section("qa", "#\n")[2:]), "qa's is whole")
			assert.Equal(t, 1, strings.Count(got, "<!-- trainyard:begin prod -->\n## Environment prod\n\n1 job · 1 Succeeded · 0 finished runs")-strings.Count(name, "no end"))
			for _, words := range []string{"# Ours\n", "Theirs.\n"} {
				assert.Equal(t, strings.Contains(text, words), strings.Contains(got, words))
			}
		})
	}
}

func TestDashboardKeepsWhatOthersWrote(t *testing.T) {
	one := func(env string, existing []byte) []byte {
		return Dashboard(existing, repo.Layout{}, env, []repo.Record{record(env+"-job", repo.PhaseSucceeded)}, nil)
	}
	both := one("dev", one("prod", []byte("# Ours\n\nWritten by people.\n")))
	assert.Equal(t, string(both), string(one("prod", one("dev", both))))
	text := string(both)
	assert.True(t, strings.HasPrefix(text, "# Ours\n\nWritten by people.\n"))
	assert.Less(t, strings.Index(text, "Environment dev"), strings.Index(text, "Environment prod"), "in the order of names")
	assert.Contains(t, text, "dev-job")
	assert.Contains(t, text, "prod-job")
}

func TestManyJobsAreCut(t *testing.T) {
	var records []repo.Record
	for i := range dashboardRows + 5 {
		records = append(records, ran(record(fmt.Sprintf("j%03d", i), repo.PhaseSucceeded), i, repo.Succeeded))
	}
	text := string(Dashboard(nil, repo.Layout{}, "prod", records, nil))
	assert.Equal(t, dashboardRows, strings.Count(text, "| [nlp/j"))
	assert.Contains(t, text, "and 5 more")
	assert.Contains(t, text, "j204", "the newest are there")
	assert.NotContains(t, text, "j004")
}
