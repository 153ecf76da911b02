package e2e

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/status"
)

// beside reads the phase from a record that lies beside the jobs.
func (w *world) beside(job string) repo.Phase {
	w.t.Helper()
	text, err := w.tryGit(w.remote, "show", "main:"+path.Join(repo.StatusDir, "default/default", job, repo.StatusFile))
	if err != nil {
		return ""
	}
	rec, err := status.Decode([]byte(text))
	require.NoError(w.t, err)
	return rec.Phase
}

func (w *world) main() string { return w.git(w.remote, "rev-parse", "main") }

// quiet requires that main stays where it is for several polls and pushes.
func (w *world) quiet() {
	w.t.Helper()
	// The last records may be on their way still.
	last, since := w.main(), time.Now()
	w.eventually("main is quiet", func() bool {
		if tip := w.main(); tip != last {
			last, since = tip, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
}

// TestRecordsBesideJobs: the daemon commits to the branch that it watches, and
// does not answer its own commits.
func TestRecordsBesideJobs(t *testing.T) {
	w := newWorld(t)
	w.write("jobs/a.yaml", job("a", "true"))
	w.push("a job")
	user := w.git(w.checkout, "rev-parse", "HEAD")
	w.start("--status-branch", "main")
	w.eventually("it succeeds", func() bool { return w.beside("a") == repo.PhaseSucceeded })
	w.quiet()
	require.Less(t, w.count("main"), 10)
	require.Equal(t, job("a", "true"), w.git(w.remote, "show", "main:jobs/a.yaml")+"\n", "the user's files are as they were")
	require.Contains(t, w.git(w.remote, "log", "-1", "--format=%B", "main"), repo.RevisionTrailer+": "+user)
	_, err := w.tryGit(w.remote, "rev-parse", "--verify", "-q", repo.StatusBranch)
	require.Error(t, err, "there is no other branch")
	code, out := w.trainyard("status", "--repo", w.remote, "--status-branch", "main")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "Succeeded")

	w.git(w.checkout, "pull", "-q", "--rebase", "origin", "main")
	w.git(w.checkout, "rm", "-q", "jobs/a.yaml")
	w.push("emptied")
	dashboard := func() string { return w.git(w.remote, "show", "main:"+repo.StatusDir+"/README.md") }
	w.eventually("the dashboard asks", func() bool { return strings.Contains(dashboard(), "have vanished") })
	w.quiet()
	require.Equal(t, repo.PhaseSucceeded, w.beside("a"))
}

// count is how many commits a branch has.
func (w *world) count(branch string) (n int) {
	w.t.Helper()
	_, err := fmt.Sscan(w.git(w.remote, "rev-list", "--count", branch), &n)
	require.NoError(w.t, err)
	return n
}

// TestPushesBesideRecords: people push jobs to the branch while the daemon
// pushes records to it, and nothing is lost on either side.
func TestPushesBesideRecords(t *testing.T) {
	w, marks := newWorld(t), t.TempDir()
	w.write("README.md", "jobs\n")
	w.push("first")
	w.start("--status-branch", "main", "--publish-interval", "50ms", "--poll", "50ms")
	const jobs = 12
	for i := range jobs {
		name := fmt.Sprintf("j%02d", i)
		w.write("jobs/"+name+".yaml", job(name, "echo ran >> "+marks+"/"+name))
		w.git(w.checkout, "add", "-A")
		w.git(w.checkout, "commit", "-q", "-m", name)
		w.eventually("the push lands", func() bool {
			w.git(w.checkout, "pull", "-q", "--rebase", "origin", "main")
			_, err := w.tryGit(w.checkout, "push", "-q", "origin", "HEAD:main")
			return err == nil
		})
	}
	w.eventually("all of them succeed", func() bool {
		for i := range jobs {
			if w.beside(fmt.Sprintf("j%02d", i)) != repo.PhaseSucceeded {
				return false
			}
		}
		return true
	})
	w.quiet()
	log := strings.Split(w.git(w.remote, "log", "--format=%s", "main"), "\n")
	for i := range jobs {
		name := fmt.Sprintf("j%02d", i)
		require.Contains(t, log, name, "the user's commit is in the branch")
		require.NotEmpty(t, w.git(w.remote, "show", "main:jobs/"+name+".yaml"))
		require.Equal(t, "ran\n", contents(t, marks+"/"+name), "it ran exactly once")
	}
}

// TestOnceBesideJobs: the second time starts nothing and commits nothing.
func TestOnceBesideJobs(t *testing.T) {
	w, marks := newWorld(t), t.TempDir()
	w.write("jobs/a.yaml", job("a", "echo ran >> "+marks+"/a"))
	w.push("a job")
	code, out := w.once("--status-branch", "main")
	require.Equal(t, 0, code, out)
	tip := w.main()
	require.NoError(t, os.RemoveAll(w.state))
	code, out = w.once("--status-branch", "main")
	require.Equal(t, 0, code, out)
	require.Equal(t, tip, w.main())
	require.Equal(t, "ran\n", contents(t, marks+"/a"))
}
