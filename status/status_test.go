package status

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	scheduled := record("scheduled", repo.PhaseScheduled)
	scheduled.Schedule = &repo.ScheduleRecord{Since: at(0), Next: later(86400)}
	return []repo.Record{
		running, waiting, retried, ran(record("failed", repo.PhaseFailed), 300, repo.Failed), invalid, warned, board, suspended, scheduled,
		ran(record("removed", repo.PhaseRemoved), 10, repo.Succeeded),
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
	got := Dashboard(nil, repo.Layout{}, "prod", records, []string{"all jobs have vanished: confirm: abc"})
	golden(t, "dashboard.md", got)
	assert.Equal(t, got, Dashboard(got, repo.Layout{}, "prod", records, []string{"all jobs have vanished: confirm: abc"}), "the same state gives the same bytes")
	golden(t, "empty.md", Dashboard(nil, repo.Layout{}, "prod", nil, nil))
}

// Every number of the dashboard, counted once more from the records.
func TestNumbersOfTheDashboard(t *testing.T) {
	records := all()
	text := string(Dashboard(nil, repo.Layout{}, "prod", records, nil))
	phases, runs, seconds := map[repo.Phase]int{}, 0, int64(0)
	for _, r := range records {
		phases[r.Phase]++
		runs += len(r.History)
		ids := map[string]int64{}
		for _, s := range r.History {
			ids[s.ID] = s.GPUSeconds
		}
		if r.Run != nil {
			ids[r.Run.ID] = r.Run.GPUSeconds
		}
		for _, n := range ids {
			seconds += n
		}
		line := ""
		for _, l := range strings.Split(text, "\n") {
			if strings.HasPrefix(l, "| [nlp/"+r.Metadata.Name+"]") {
				line = l
			}
		}
		require.NotEmpty(t, line, r.Metadata.Name)
		cells := strings.Split(line, " | ")
		assert.Equal(t, string(r.Phase), cells[1])
		if r.Run == nil {
			continue
		}
		done, want, retries := 0, 0, r.Run.Retries.Total
		for _, role := range r.Roles {
			for _, task := range role.Tasks {
				retries += task.Retries.Total
				if role.Daemon {
					continue
				}
				if want++; task.Phase == repo.TaskSucceeded {
					done++
				}
			}
		}
		assert.Equal(t, fmt.Sprintf("%d/%d", done, want), cells[2], r.Metadata.Name)
		assert.Equal(t, fmt.Sprint(retries), cells[3], r.Metadata.Name)
	}
	assert.Contains(t, text, fmt.Sprintf("%d jobs", len(records)))
	for p, n := range phases {
		assert.Contains(t, text, fmt.Sprintf("%d %s", n, p))
	}
	assert.Contains(t, text, fmt.Sprintf("%d finished runs · %.2f GPU hours", runs, float64(seconds)/3600))
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

func TestFiles(t *testing.T) {
	r := ran(record("failed", repo.PhaseFailed), 300, repo.Failed)
	tail := repo.Tail{Path: r.Roles[0].Tasks[0].Attempts[0].Log, Text: "boom\n"}
	in := Input{Environment: "prod", Revision: "4b825dc", Changes: []repo.Change{{Record: r, Tails: []repo.Tail{tail}}}, Records: []repo.Record{r}}
	files, message, err := Files(in)
	require.NoError(t, err)
	dir := "prod/nlp/failed/"
	for _, name := range []string{"README.md", ".gitattributes", dir + "status.yaml", dir + "history.jsonl", dir + "README.md", dir + tail.Path} {
		assert.NotEmpty(t, files[name], name)
	}
	assert.Len(t, files, 6)
	assert.Equal(t, "failed: Failed after 1m2s\n\n[skip ci]\n\nTrainyard-Revision: 4b825dc\nTrainyard-Environment: prod\n", message)

	// Once they are there, nothing is left to write, also not without the tail.
	in.Tip = tree(files)
	for _, tails := range [][]repo.Tail{{tail}, nil} {
		in.Changes[0].Tails = tails
		again, _, err := Files(in)
		require.NoError(t, err)
		assert.Empty(t, again)
	}

	got, problems := Read(in.Tip, repo.Layout{}, "prod")
	require.Empty(t, problems)
	require.Len(t, got, 1)
	assert.Equal(t, asText(t, r), asText(t, got[0]))
	require.Len(t, got[0].History, 1)
	assert.True(t, r.History[0].FinishedAt.Equal(&got[0].History[0].FinishedAt))
}

func tree(files map[string][]byte) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, b := range files {
		fs[name] = &fstest.MapFile{Data: b}
	}
	return fs
}

func TestOldTailsAreRemoved(t *testing.T) {
	r := ran(record("j", repo.PhaseSucceeded), 0, repo.Succeeded)
	fs := fstest.MapFS{}
	for i := range keptRuns + 3 {
		s := r.History[0]
		s.ID = fmt.Sprintf("j-%02d", i)
		r.History = append(r.History, s)
		fs["prod/nlp/j/logs/"+s.ID+"/worker-0-0-0.log"] = &fstest.MapFile{Data: []byte("x")}
	}
	files, _, err := Files(Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}, Tip: fs})
	require.NoError(t, err)
	var gone []string
	for name, b := range files {
		if b == nil {
			gone = append(gone, name)
		}
	}
	assert.ElementsMatch(t, []string{
		"prod/nlp/j/logs/j-00/worker-0-0-0.log", "prod/nlp/j/logs/j-01/worker-0-0-0.log", "prod/nlp/j/logs/j-02/worker-0-0-0.log",
	}, gone)
}

func TestRecordsMoveWithTheShards(t *testing.T) {
	r := ran(record("j", repo.PhaseSucceeded), 0, repo.Succeeded)
	files, _, err := Files(Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}})
	require.NoError(t, err)
	tip := tree(files)
	layout := repo.Layout{Shards: 16}
	records, problems := Read(tip, layout, "prod")
	require.Empty(t, problems)
	require.Len(t, records, 1)
	files, _, err = Files(Input{Layout: layout, Environment: "prod", Changes: []repo.Change{{Record: records[0]}}, Records: records, Tip: tip})
	require.NoError(t, err)
	dir := layout.RecordDir("prod", r.Key())
	assert.NotEmpty(t, files[dir+"/status.yaml"])
	assert.NotEmpty(t, files[dir+"/history.jsonl"])
	there, ok := files["prod/nlp/j/status.yaml"]
	assert.True(t, ok && there == nil)
	for name, b := range files {
		delete(tip, name)
		if b != nil {
			tip[name] = &fstest.MapFile{Data: b}
		}
	}
	again, problems := Read(tip, layout, "prod")
	require.Empty(t, problems)
	require.Len(t, again, 1)
	require.Len(t, again[0].History, 1)
	assert.Equal(t, r.History[0].ID, again[0].History[0].ID)
}
