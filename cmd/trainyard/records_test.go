package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/status"
)

func at(second int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 7, 1, 12, 0, second, 0, time.UTC))
}

// record of a job of one worker, which failed twice when it has failed.
func record(name string, phase repo.Phase) repo.Record {
	end, code := at(90), int32(3)
	failed := &repo.Outcome{Result: repo.Failed, Class: repo.Permanent, Reason: "ExitCode", ExitCode: &code}
	start := at(5)
	return repo.Record{
		Metadata: repo.RecordMeta{Namespace: "default", Name: name}, Phase: phase, Reason: "BecauseOf", Message: "It is as it is.",
		Run: &repo.RunRecord{ID: name + "-run", StartedAt: at(0), FinishedAt: &end, Retries: repo.Retries{Total: 1}},
		Roles: []repo.RoleRecord{{Name: "worker", Replicas: 1, Failed: 1, Tasks: []repo.TaskRecord{{
			Name: "worker-0", Phase: repo.TaskFailed, Retries: repo.Retries{Total: 1},
			Attempts: []repo.TaskAttemptRecord{
				{Attempt: 0, StartedAt: &start, FinishedAt: &end, Outcome: failed, Log: "logs/r/worker-0-0-0.log"},
				{Attempt: 1, StartedAt: &start, FinishedAt: &end, Outcome: failed, Log: "logs/r/worker-0-0-1.log"},
			},
		}}}},
	}
}

// published lets the program read records from a status branch: each call gives
// the next set of them.
func (b *bench) published(sets ...[]repo.Record) *treeBranch {
	branch := &treeBranch{}
	for i := range sets {
		branch.trees = append(branch.trees, fstest.MapFS{
			fmt.Sprint(i):                                    {},
			"default/default/a/status.yaml":                  {},
			"default/default/a/logs/r/worker-0-0-0.log":      {Data: []byte("first\n")},
			"default/default/a/logs/r/worker-0-0-1.log":      {Data: []byte("second\n")},
			"default/default/3f/b/status.yaml":               {},
			"default/default/3f/b/logs/r/worker-0-0-1.log":   {Data: []byte("sharded\n")},
			"default/default/a/logs/r/unused/worker-0-0.log": {},
		})
	}
	b.parts.Fetch = func(context.Context, remoteOptions, string) (remoteBranch, error) { return branch, nil }
	b.parts.Records = func(tree fs.FS, _ repo.Layout, _ string) ([]repo.Record, error) {
		for i := range sets {
			if _, err := fs.Stat(tree, fmt.Sprint(i)); err == nil {
				return sets[i], nil
			}
		}
		return nil, fs.ErrNotExist
	}
	return branch
}

func TestStatus(t *testing.T) {
	b := newBench(t)
	b.published([]repo.Record{record("a", repo.PhaseFailed), {Metadata: repo.RecordMeta{Namespace: "nlp", Name: "b"}, Phase: repo.PhaseScheduled}})
	code, out, errs := b.run("status", "--repo", "x")
	require.Zero(t, code, errs)
	assert.Equal(t, `JOB         PHASE       TASKS   RETRIES   STARTED               TOOK    REASON
default/a   Failed      0/1     2         2026-07-01 12:00:00   1m30s   BecauseOf
nlp/b       Scheduled   -       -         -                     -       `+"\n", out)

	code, out, _ = b.run("status", "a", "--repo", "x")
	require.Zero(t, code)
	assert.Contains(t, out, "\nIt is as it is.\n")
	assert.Contains(t, out, "worker-0   Failed   1         3      1m25s   -      Permanent ExitCode\n")

	code, out, _ = b.run("status", "default/a", "--repo", "x", "-o", "yaml")
	require.Zero(t, code)
	assert.Contains(t, out, "phase: Failed\n")
	code, out, _ = b.run("status", "--repo", "x", "-o", "json")
	require.Zero(t, code)
	assert.Contains(t, out, `"phase": "Scheduled"`)

	code, _, errs = b.run("status", "nope", "--repo", "x")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, errs, "nope has no record in environment default of "+b.dir+"/x, branch trainyard/status\nhint: trainyard status lists")
}

func TestStatusWithoutRecords(t *testing.T) {
	b := newBench(t)
	b.published()
	code, out, _ := b.run("status", "--repo", "x")
	assert.Zero(t, code)
	assert.Contains(t, out, "no records yet in environment default")
	code, out, _ = b.run("status", "--repo", "x", "-o", "json")
	assert.Zero(t, code)
	assert.Equal(t, "[]\n", out)
	code, _, errs := b.run("status", "a", "--repo", "x")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, errs, "does a daemon run for it")
}

func TestStatusOfOneNameInTwoNamespaces(t *testing.T) {
	b := newBench(t)
	other := record("a", repo.PhaseRunning)
	other.Metadata.Namespace = "nlp"
	b.published([]repo.Record{record("a", repo.PhaseFailed), other})
	code, _, errs := b.run("status", "a", "--repo", "x")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "name it as default/a or nlp/a")
}

// With --watch and a job, status waits for its end and tells of it.
func TestStatusWatch(t *testing.T) {
	for phase, want := range map[repo.Phase]int{repo.PhaseSucceeded: exitFine, repo.PhaseFailed: exitProblems} {
		b := newBench(t)
		branch := b.published(nil, []repo.Record{record("a", repo.PhaseRunning)}, []repo.Record{record("a", phase)})
		code, out, errs := b.run("status", "a", "--watch", "--interval", "1ms", "--repo", "x")
		assert.Equal(t, want, code, errs)
		assert.Equal(t, 3, branch.reads)
		assert.Equal(t, 2, strings.Count(out, "JOB "), "what did not change is not printed")
	}
	b := newBench(t)
	b.published([]repo.Record{record("a", repo.PhaseRunning)})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	code, _, _ := b.runContext(ctx, "status", "--watch", "--repo", "x")
	assert.Zero(t, code, "interrupted is no error")
}

// Without --repo it is the checkout's origin, or the checkout itself.
func TestRepoOfTheCheckout(t *testing.T) {
	b := newBench(t)
	var asked string
	b.published()
	fetch := b.parts.Fetch
	b.parts.Fetch = func(ctx context.Context, o remoteOptions, dir string) (remoteBranch, error) {
		asked = o.Repo
		return fetch(ctx, o, dir)
	}
	here := checkout{ctx: t.Context(), dir: b.dir}
	top, err := filepath.EvalSymlinks(b.dir)
	require.NoError(t, err)
	_, err = here.git("init", "-q")
	require.NoError(t, err)
	for _, c := range []struct{ origin, want string }{
		{"", top},
		{"https://git.example.com/team/jobs", "https://git.example.com/team/jobs"},
		{"git@git.example.com:team/jobs", "git@git.example.com:team/jobs"},
		{"../bare.git", filepath.Join(filepath.Dir(top), "bare.git")},
	} {
		if c.origin != "" {
			_, _ = here.git("remote", "remove", "origin")
			_, err := here.git("remote", "add", "origin", c.origin)
			require.NoError(t, err)
		}
		code, _, errs := b.run("status")
		require.Zero(t, code, errs)
		assert.Equal(t, c.want, asked)
	}
}

// localPods are pods on this machine.
type localPods struct {
	all  []corev1.Pod
	text string
	mute string // a pod whose log cannot be read
}

func (p *localPods) Jobs(context.Context) ([]repo.Key, error) {
	return []repo.Key{{Namespace: "nlp", Name: "a"}}, nil
}

func (p *localPods) Pods(_ context.Context, key repo.Key) ([]corev1.Pod, error) { return p.all, nil }

func (p *localPods) Log(_ context.Context, _, name, container string, tail int64, follow bool) (io.ReadCloser, error) {
	if name == p.mute {
		return nil, errors.New("its node does not answer")
	}
	return io.NopCloser(strings.NewReader(fmt.Sprintf("%s %q %d %v\n%s", name, container, tail, follow, p.text))), nil
}

func (p *localPods) Close() error { return nil }

func pod(t *testing.T, run string, second int, role string, index, runAttempt, attempt int32) corev1.Pod {
	r := repo.Run{ID: run, Job: repo.Job{Key: repo.Key{Namespace: "nlp", Name: "a"}, Roles: []repo.Role{{Name: role, Replicas: 2}}}}
	made, err := r.Pod(repo.TaskAttempt{Task: repo.Task{Role: role, Index: index}, RunAttempt: runAttempt, Attempt: attempt},
		func(repo.Task) repo.Address { return repo.Address{} })
	require.NoError(t, err)
	made.CreationTimestamp = at(second)
	return *made
}

func TestLogsOfThisMachine(t *testing.T) {
	b := newBench(t)
	local := &localPods{text: "last line without end", all: []corev1.Pod{
		pod(t, "old", 1, "worker", 0, 0, 5), pod(t, "new", 2, "worker", 1, 0, 0), pod(t, "new", 3, "worker", 0, 0, 1),
		pod(t, "new", 4, "worker", 0, 1, 0), pod(t, "new", 5, "ps", 0, 0, 0),
	}}
	var dir string
	b.parts.Pods = func(stateDir, _ string) (pods, error) { dir = stateDir; return local, nil }
	code, out, errs := b.run("logs", "a", "--repo", "x")
	require.Zero(t, code, errs)
	assert.Equal(t, `ps-0 | new-ps-0-0-0 "" -1 false
ps-0 | last line without end
worker-0 | new-worker-0-1-0 "" -1 false
worker-0 | last line without end
worker-1 | new-worker-1-0-0 "" -1 false
worker-1 | last line without end
`, out)
	sys := system{Env: func(name string) (string, bool) { v, ok := b.vars[name]; return v, ok }, Dir: b.dir}
	want, err := stateDir(sys, absoluteRepo("x", sys), "default")
	require.NoError(t, err)
	assert.Equal(t, want, dir, "where run keeps it")

	local.mute = "new-ps-0-0-0"
	for _, args := range [][]string{{}, {"-f"}} {
		code, out, errs := b.run(append([]string{"logs", "a", "--repo", "x"}, args...)...)
		assert.Equal(t, exitProblems, code)
		assert.Contains(t, errs, "log of new-ps-0-0-0: its node does not answer")
		assert.Contains(t, out, "worker-0 | last line")
		assert.Contains(t, out, "worker-1 | last line")
	}
	local.mute = ""

	_, out, _ = b.run("logs", "nlp/a", "worker-0", "--repo", "x", "--attempt", "1", "-c", "train", "-f")
	assert.Equal(t, "new-worker-0-0-1 \"train\" -1 true\nlast line without end", out, "one log is printed as it is")
	for lines, want := range map[string]string{"0": "", "1": "last", "2": "three\nlast", "9": "new-worker-0-0-1 \"\" -1 true\nthree\nlast"} {
		local.text = "three\nlast"
		_, out, _ = b.run("logs", "nlp/a", "worker-0", "--repo", "x", "--attempt", "1", "--tail", lines, "-f")
		assert.Equal(t, want, out, "the last %s lines", lines)
	}
}

func TestLogsOfTheRecord(t *testing.T) {
	b := newBench(t)
	b.parts.Pods = func(string, string) (pods, error) { return nil, fs.ErrNotExist }
	b.published([]repo.Record{record("a", repo.PhaseFailed), record("b", repo.PhaseFailed), {Metadata: repo.RecordMeta{Namespace: "default", Name: "c"}}})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"a"}, "second\n"},
		{[]string{"a", "worker-0", "--attempt", "0"}, "first\n"},
		{[]string{"default/b"}, "sharded\n"},
	} {
		code, out, errs := b.run(append([]string{"logs", "--repo", "x"}, c.args...)...)
		require.Zero(t, code, errs)
		assert.Equal(t, c.want, out)
		assert.Contains(t, errs, "from the record")
	}
	for _, args := range [][]string{{"c"}, {"a", "worker-9"}, {"a", "--attempt", "7"}} {
		code, _, errs := b.run(append([]string{"logs", "--repo", "x"}, args...)...)
		assert.Equal(t, exitProblems, code)
		assert.Contains(t, errs, "keeps none")
	}
}

// The terminal and the dashboard count the same: daemons are no tasks to be done.
func TestStatusCountsAsTheDashboard(t *testing.T) {
	rec := record("a", repo.PhaseSucceeded)
	rec.Roles[0].Replicas, rec.Roles[0].Succeeded, rec.Roles[0].Failed = 2, 2, 0
	rec.Roles = append(rec.Roles, repo.RoleRecord{Name: "ps", Replicas: 1, Daemon: true, Tasks: []repo.TaskRecord{{Name: "ps-0", Retries: repo.Retries{Total: 4}}}})
	b := newBench(t)
	b.published([]repo.Record{rec})
	code, out, errs := b.run("status", "--repo", "x")
	require.Zero(t, code, errs)
	assert.Regexp(t, `default/a +Succeeded +2/2 +6 `, out)
	board := string(status.Dashboard(nil, repo.Layout{}, "default", []repo.Record{rec}, nil))
	assert.Contains(t, board, "| Succeeded | 2/2 | 6 |")
}
