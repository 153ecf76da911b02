package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestExamples runs every example but that of the formats, which has tests of
// its own, to its end and looks at the records.
func TestExamples(t *testing.T) {
	for _, c := range []struct {
		example string
		env     string
		exit    int
		phases  map[string]repo.Phase
	}{
		{"hello", "", 0, map[string]repo.Phase{"default/hello": repo.PhaseSucceeded}},
		{"parameter-server", "", 0, map[string]repo.Phase{"demo/softmax": repo.PhaseSucceeded}},
		{"environments", "prod", 0, map[string]repo.Phase{"default/train": repo.PhaseSucceeded}},
		{"environments", "dev", 0, map[string]repo.Phase{"default/train": repo.PhaseSucceeded}},
		{"gpu-classes", "dev", 0, map[string]repo.Phase{"default/train": repo.PhaseSucceeded}},
		{"schedule", "", 0, map[string]repo.Phase{"default/nightly": repo.PhaseScheduled}},
		{"retries", "", 1, map[string]repo.Phase{
			"default/recovers": repo.PhaseSucceeded, "default/fails": repo.PhaseFailed, "default/exhausts": repo.PhaseFailed,
		}},
	} {
		t.Run(c.example+c.env, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.copyExample(c.example)
			w.push("the example")
			env := c.env
			if env == "" {
				env = repo.DefaultEnvironment
			}
			code, out := w.once("--env", env)
			require.Equal(t, c.exit, code, out)
			for job, phase := range c.phases {
				text := w.git(w.remote, "show", repo.StatusBranch+":"+env+"/"+job+"/"+repo.StatusFile)
				require.Contains(t, text, "\nphase: "+string(phase)+"\n", job)
			}
		})
	}
}

// TestRecordOfRetries reads what the record says of two levels of retry.
func TestRecordOfRetries(t *testing.T) {
	w := newWorld(t)
	w.copyExample("retries")
	w.push("jobs")
	code, out := w.once()
	require.Equal(t, 1, code, out)

	rec, ok := w.record("default/recovers")
	require.True(t, ok)
	require.NotEmpty(t, rec.Run.ID)
	require.False(t, rec.Run.StartedAt.IsZero())
	require.False(t, rec.Run.FinishedAt.IsZero())
	require.Equal(t, w.git(w.checkout, "rev-parse", "HEAD"), rec.ObservedRevision)
	attempts := rec.Roles[0].Tasks[0].Attempts
	require.Len(t, attempts, 2)
	require.EqualValues(t, 42, *attempts[0].ExitCode)
	require.Equal(t, repo.Transient, attempts[0].Class)
	require.EqualValues(t, 0, *attempts[1].ExitCode)
	tail := w.git(w.remote, "show", repo.StatusBranch+":default/default/recovers/"+attempts[0].Log)
	require.Contains(t, tail, "the data are not there yet")

	rec, _ = w.record("default/fails")
	require.Len(t, rec.Roles[0].Tasks[0].Attempts, 1, "a permanent failure is not tried again")
	require.Equal(t, repo.Permanent, rec.Run.Outcome.Class)

	rec, _ = w.record("default/exhausts")
	require.EqualValues(t, 1, rec.Run.Attempt)
	require.Equal(t, repo.Retries{Total: 1, Accountable: 1}, rec.Run.Retries)
	require.Len(t, rec.Roles[0].Tasks[0].Attempts, 2)
	require.Len(t, rec.Attempts, 1)
	require.Len(t, rec.Attempts[0].Tasks[0].Attempts, 2)
}

// TestOnceAgain: nothing changed, a comment, a change, a revert, a rerun.
func TestOnceAgain(t *testing.T) {
	w := newWorld(t)
	marks := filepath.Join(t.TempDir(), "marks")
	runs := func() int {
		b, _ := os.ReadFile(marks)
		return strings.Count(string(b), "\n")
	}
	first, second := job("marks", "echo a >> "+marks), job("marks", "echo b >> "+marks)

	w.write("jobs/marks.yaml", first)
	w.push("first")
	code, out := w.once()
	require.Equal(t, 0, code, out)
	require.Equal(t, 1, runs())
	tip := w.tip()
	require.NotEmpty(t, tip)

	again := func(why string, wantRuns int, commits bool) {
		t.Helper()
		code, out := w.once()
		require.Equal(t, 0, code, out)
		require.Equal(t, wantRuns, runs(), why)
		require.Equal(t, commits, w.tip() != tip, "%s: %s", why, w.git(w.remote, "log", "-3", "--stat", repo.StatusBranch))
		tip = w.tip()
	}
	again("nothing changed", 1, false)
	w.write("jobs/marks.yaml", "# a comment\n"+first+"# another\n")
	w.push("a comment")
	again("a comment", 1, false)
	w.write("jobs/marks.yaml", second)
	w.push("a changed command")
	again("a changed command", 2, true)
	w.write("jobs/marks.yaml", first)
	w.push("revert")
	again("a revert runs nothing", 2, true) // its record says that the definition ran before
	again("and says so once", 2, false)

	code, out = w.trainyard("rerun", "marks", "--push")
	require.Equal(t, 0, code, out)
	again("rerun", 3, true)
	again("rerun is done", 3, false)

	// A state directory that was lost changes nothing of what has run.
	require.NoError(t, os.RemoveAll(w.state))
	again("state lost", 3, false)
	history := w.git(w.remote, "show", repo.StatusBranch+":default/default/marks/"+repo.HistoryFile)
	require.Len(t, strings.Split(history, "\n"), 3)
}

// TestOneBrokenAmongMany: the others run, and the broken one says where.
func TestOneBrokenAmongMany(t *testing.T) {
	w := newWorld(t)
	const good = 99
	for i := range good {
		w.write(fmt.Sprintf("jobs/good-%02d.yaml", i), job(fmt.Sprintf("good-%02d", i), "true"))
	}
	w.write("jobs/broken.yaml", strings.Replace(job("broken", "true"), "containers:", "contaners:", 1))
	w.push("one of them is broken")
	code, out := w.once()
	require.Equal(t, 1, code, out)
	for i := range good {
		require.Equal(t, repo.PhaseSucceeded, w.phase(fmt.Sprintf("default/good-%02d", i)))
	}
	rec, ok := w.record("default/broken")
	require.True(t, ok)
	require.Equal(t, repo.PhaseInvalid, rec.Phase)
	require.Contains(t, strings.Join(rec.Errors, "\n"), "jobs/broken.yaml:10:")
	require.Contains(t, strings.Join(rec.Errors, "\n"), `"containers"`)

	code, out = w.trainyard("validate")
	require.Equal(t, 1, code)
	for _, e := range rec.Errors {
		require.Contains(t, out, e, "validate prints the same")
	}
}
