package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/sync"
)

// bench is a real remote that several daemons' ledgers write to.
type bench struct {
	t      *testing.T
	remote string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, remote: filepath.Join(t.TempDir(), "remote.git")}
	b.git("init", "-q", "--bare", "-b", "main", b.remote)
	return b
}

func (b *bench) git(args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// daemon is one daemon's ledger, with a mirror of its own, which has read the
// branch. told has what its loop was ended for.
func (b *bench) daemon(environment string) (l *ledger, told *error) {
	b.t.Helper()
	remote, err := gitsync.NewRemote(gitsync.RemoteOptions{URL: b.remote})
	require.NoError(b.t, err)
	mirror, err := gitsync.Open(b.t.Context(), gitsync.Options{Dir: b.t.TempDir(), Read: remote})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, mirror.Close()) })
	told = new(error)
	l = &ledger{
		mirror: mirror, branch: repo.StatusBranch, environment: environment, author: gitsync.Person{Name: "Ada", Email: "ada@example.com"},
		shared: &shared{}, log: zerolog.Nop(), overtaken: func(err error) { *told = err },
	}
	_, err = l.Load(b.t.Context())
	require.NoError(b.t, err)
	return l, told
}

// publish pushes one record.
func (b *bench) publish(l *ledger, rec repo.Record) error {
	rec.Environment = l.environment
	_, err := l.Publish(b.t.Context(), runner.Book{At: time.Unix(1_750_000_000, 0), Changes: []repo.Change{{Record: rec}}, Records: []repo.Record{rec}})
	return err
}

func (b *bench) loaded(l *ledger) repo.Record {
	b.t.Helper()
	records, err := l.Load(b.t.Context())
	require.NoError(b.t, err)
	require.Len(b.t, records, 1)
	return records[0]
}

var began = metav1.NewTime(time.Unix(1_750_000_000, 0).UTC())

// running is a record of two tasks that run, with edits.
func running(edits ...func(*repo.Record)) repo.Record {
	r := repo.Record{
		APIVersion: repo.APIVersion, Kind: repo.RecordKind, Metadata: repo.RecordMeta{Namespace: "nlp", Name: "a"}, Phase: repo.PhaseRunning,
		Run: &repo.RunRecord{ID: "a-1", StartedAt: began},
		Roles: []repo.RoleRecord{{Name: "worker", Replicas: 2, Tasks: []repo.TaskRecord{
			{Name: "worker-0", Attempts: []repo.TaskAttemptRecord{{Pod: "a-1-worker-0-0-0", UID: "u0", CreatedAt: began}}},
			{Name: "worker-1", Index: 1, Attempts: []repo.TaskAttemptRecord{{Pod: "a-1-worker-1-0-0", UID: "u1", CreatedAt: began}}},
		}}},
	}
	for _, e := range edits {
		e(&r)
	}
	return r
}

// ended gives a task's last attempt an outcome.
func ended(task int, reason string) func(*repo.Record) {
	return func(r *repo.Record) {
		attempts := r.Roles[0].Tasks[task].Attempts
		attempts[len(attempts)-1].Outcome = &repo.Outcome{Result: repo.Failed, Class: repo.Transient, Reason: reason}
	}
}

// again gives a task a next attempt.
func again(task int) func(*repo.Record) {
	return func(r *repo.Record) {
		t := &r.Roles[0].Tasks[task]
		t.Attempts = append(t.Attempts, repo.TaskAttemptRecord{Attempt: int32(len(t.Attempts)), Pod: "next", UID: "next", CreatedAt: began})
	}
}

func finished(r *repo.Record) {
	r.Phase, r.Run.FinishedAt = repo.PhaseSucceeded, &began
	r.Run.Outcome = &repo.Outcome{Result: repo.Succeeded}
	r.History = append(r.History, repo.RunSummary{ID: r.Run.ID, StartedAt: began, FinishedAt: began, Outcome: *r.Run.Outcome})
}

func nextAttempt(r *repo.Record) {
	r.Run.Attempt++
	r.Attempts = append(r.Attempts, repo.AttemptRecord{StartedAt: began, FinishedAt: began})
	for i := range r.Roles[0].Tasks {
		r.Roles[0].Tasks[i].Attempts = nil
	}
}

func nextRun(r *repo.Record) {
	finished(r)
	r.Phase, r.Run = repo.PhaseRunning, &repo.RunRecord{ID: "a-2", StartedAt: began}
}

// Of two daemons of an environment the one that does not know of an end must
// not overwrite the record of the one that does.
func TestOlderRecordDoesNotOverwriteNewer(t *testing.T) {
	for _, c := range []struct {
		name         string
		theirs, mine []func(*repo.Record)
		want         string // of the error; "" is overwritten
	}{
		{"nothing has ended", nil, []func(*repo.Record){ended(0, "Error")}, ""},
		{"a task has ended", []func(*repo.Record){ended(1, "Error")}, nil, "pod a-1-worker-1-0-0 has ended"},
		{"another task has ended", []func(*repo.Record){ended(1, "Error")}, []func(*repo.Record){ended(0, "Error")}, "pod a-1-worker-1-0-0 has ended"},
		{"both know", []func(*repo.Record){ended(1, "Error")}, []func(*repo.Record){ended(1, "Error"), again(1)}, ""},
		{"an attempt that is not kept any more", []func(*repo.Record){ended(1, "Error")}, []func(*repo.Record){func(r *repo.Record) {
			r.Roles[0].Tasks[1].Attempts[0].Attempt = 3
		}}, ""},
		{"a retry", []func(*repo.Record){ended(1, "Error"), again(1)}, nil, "pod a-1-worker-1-0-0 has ended"},
		{"it knows no more than that a pod is gone", []func(*repo.Record){ended(1, runner.ReasonPodLost), again(1)}, nil, ""},
		{"it never had a pod", []func(*repo.Record){func(r *repo.Record) { r.Roles[0].Tasks[1].Attempts[0].UID = "" }, ended(1, "PodRefused")}, nil, ""},
		{"the attempt has ended", []func(*repo.Record){nextAttempt}, nil, "attempt 0 of run a-1 has ended"},
		{"mine is the next attempt", []func(*repo.Record){ended(1, "Error")}, []func(*repo.Record){nextAttempt}, ""},
		{"the run has finished", []func(*repo.Record){finished}, nil, "run a-1 has finished"},
		{"the run has finished, and another one runs", []func(*repo.Record){nextRun}, []func(*repo.Record){ended(0, "Error")}, "run a-1 has finished"},
		{"mine is the next run", []func(*repo.Record){finished}, []func(*repo.Record){nextRun}, ""},
		{"a task has ended that it has not scaled up to", []func(*repo.Record){ended(1, "Error")}, []func(*repo.Record){func(r *repo.Record) {
			r.Roles[0].Tasks = r.Roles[0].Tasks[:1]
		}}, "pod a-1-worker-1-0-0 has ended"},
		{"the run was rescaled", []func(*repo.Record){func(r *repo.Record) { r.Run.Covers = []string{"a-2"} }}, nil, "run a-1 has another definition"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			first, _ := b.daemon("prod")
			require.NoError(t, b.publish(first, running()))
			third, told := b.daemon("prod")
			second, _ := b.daemon("prod")
			theirs := append(c.theirs, func(r *repo.Record) { r.Message = "theirs" })
			require.NoError(t, b.publish(second, running(theirs...)))
			before := b.git("-C", b.remote, "rev-parse", repo.StatusBranch)
			err := b.publish(third, running(append(c.mine, func(r *repo.Record) { r.Message = "mine" })...))
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, *told)
				assert.Equal(t, "mine", b.loaded(third).Message)
				return
			}
			require.ErrorContains(t, err, "another daemon writes the record of nlp/a: it knows that "+c.want)
			var overtaken *runner.OvertakenError
			require.ErrorAs(t, *told, &overtaken, "its loop is ended")
			assert.Equal(t, before, b.git("-C", b.remote, "rev-parse", repo.StatusBranch), "nothing was pushed")
		})
	}
}

// A stale daemon reads again and then goes on; the other is stale in its turn
// only if it did not know.
func TestStaleDaemonReadsAgain(t *testing.T) {
	b := newBench(t)
	one, toldOne := b.daemon("prod")
	two, toldTwo := b.daemon("prod")
	require.NoError(t, b.publish(one, running()))
	require.NoError(t, b.publish(one, running(ended(0, "Error"))))
	require.Error(t, b.publish(two, running(ended(1, "OOMKilled"))))
	require.Error(t, *toldTwo)
	rec := b.loaded(two)
	ended(1, "OOMKilled")(&rec)
	require.NoError(t, b.publish(two, rec), "it has read the branch, and knows both ends")
	require.Error(t, b.publish(one, running(ended(0, "Error"), again(0))))
	require.Error(t, *toldOne)
	rec = b.loaded(one)
	again(0)(&rec)
	require.NoError(t, b.publish(one, rec))
}

// A record of a job that this daemon has none of is another daemon's: it has
// acted on a later commit of the repository.
func TestRecordOfAnotherJobIsHeardOf(t *testing.T) {
	for name, another := range map[string]repo.Record{
		"that runs":  running(ended(0, "Error")),
		"that waits": running(func(r *repo.Record) { r.Phase, r.Run, r.Roles = repo.PhaseWaiting, nil, nil }),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			one, told := b.daemon("prod")
			two, _ := b.daemon("prod")
			require.NoError(t, b.publish(one, running()))
			_ = b.loaded(two)
			another.Metadata.Name = "b"
			require.NoError(t, b.publish(two, another))
			var overtaken *runner.OvertakenError
			require.ErrorAs(t, b.publish(one, running(ended(0, "Error"))), &overtaken)
			require.ErrorAs(t, *told, &overtaken)
			assert.Equal(t, another.Key(), overtaken.Job)
		})
	}
}

// Other environments' pushes and what people do to the branch are no reason to
// read anything again: an older state that was put back is overwritten.
func TestOlderStateOfTheBranchIsOverwritten(t *testing.T) {
	b := newBench(t)
	prod, told := b.daemon("prod")
	dev, _ := b.daemon("dev")
	require.NoError(t, b.publish(prod, running()))
	old := b.git("-C", b.remote, "rev-parse", repo.StatusBranch)
	require.NoError(t, b.publish(dev, running(finished)))
	require.NoError(t, b.publish(prod, running(ended(0, "Error"))))
	b.git("-C", b.remote, "update-ref", "refs/heads/"+repo.StatusBranch, old)
	require.NoError(t, b.publish(prod, running(ended(0, "Error"), again(0))))
	require.NoError(t, *told)
	assert.Len(t, b.loaded(prod).Roles[0].Tasks[0].Attempts, 2)
	var overtaken *runner.OvertakenError
	require.False(t, errors.As(*told, &overtaken))
}

// TestPutBackBranchLosesNoRun: also runs that are long over, of which a record
// in memory keeps nothing but the names.
func TestPutBackBranchLosesNoRun(t *testing.T) {
	b := newBench(t)
	l, told := b.daemon("prod")
	require.NoError(t, b.publish(l, running()))
	old := b.git("-C", b.remote, "rev-parse", repo.StatusBranch)
	rec := running(finished)
	for i := range 3 * repo.KeptRuns {
		s := repo.RunSummary{ID: fmt.Sprintf("a-%d", i+2), StartedAt: began, FinishedAt: began, Outcome: *rec.Run.Outcome}
		if rec.Finish(s); i%(2*repo.KeptRuns) == 0 {
			require.NoError(t, b.publish(l, rec))
			rec.Fold(rec.Runs())
		}
	}
	require.NoError(t, b.publish(l, rec))
	rec.Fold(rec.Runs())
	require.Less(t, len(rec.History), rec.Runs())
	history := repo.StatusBranch + ":prod/nlp/a/history.jsonl"
	before := b.git("-C", b.remote, "show", history)
	require.Len(t, strings.Split(before, "\n"), rec.Runs())
	b.git("-C", b.remote, "update-ref", "refs/heads/"+repo.StatusBranch, old)

	rec.Finish(repo.RunSummary{ID: "a-last", StartedAt: began, FinishedAt: began, Outcome: *rec.Run.Outcome})
	require.NoError(t, b.publish(l, rec))
	require.NoError(t, *told)
	after := b.git("-C", b.remote, "show", history)
	assert.Equal(t, before, after[:strings.LastIndex(after, "\n")])
	loaded := b.loaded(l)
	assert.Equal(t, rec.Runs(), loaded.Runs())
}

// TestOlderRecordsOfOthersAreOverwritten: whatever somebody has put back, or
// taken away, of records that do not change any more is written again, with
// the ends of their logs.
func TestOlderRecordsOfOthersAreOverwritten(t *testing.T) {
	for _, row := range []struct {
		name string
		harm func(b *bench, old string)
	}{
		{"an older state", func(b *bench, old string) { b.git("-C", b.remote, "update-ref", "refs/heads/"+repo.StatusBranch, old) }},
		{"no branch", func(b *bench, _ string) { b.git("-C", b.remote, "update-ref", "-d", "refs/heads/"+repo.StatusBranch) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			l, told := b.daemon("prod")
			require.NoError(t, b.publish(l, running()))
			old := b.git("-C", b.remote, "rev-parse", repo.StatusBranch)
			rec := running(ended(0, "Error"))
			rec.Environment = "prod"
			rec.Roles[0].Tasks[0].Attempts[0].Log = "logs/a-1/worker-0-0-0.txt"
			change := repo.Change{Record: rec, Tails: []repo.Tail{{Path: "logs/a-1/worker-0-0-0.txt", Text: "last words"}}}
			book := runner.Book{At: time.Unix(1_750_000_000, 0), Records: []repo.Record{rec}}
			full := book
			full.Changes = []repo.Change{change}
			_, err := l.Publish(t.Context(), full)
			require.NoError(t, err)
			log := repo.StatusBranch + ":prod/nlp/a/logs/a-1/worker-0-0-0.txt"
			before := b.git("-C", b.remote, "show", log)

			row.harm(b, old)
			pushed, err := l.Publish(t.Context(), book)
			require.NoError(t, err)
			require.NoError(t, *told)
			assert.True(t, pushed)
			assert.Equal(t, before, b.git("-C", b.remote, "show", log))
			assert.NotNil(t, b.loaded(l).Roles[0].Tasks[0].Attempts[0].Outcome)
			pushed, err = l.Publish(t.Context(), book)
			require.NoError(t, err)
			assert.False(t, pushed, "once is enough")
		})
	}
}
