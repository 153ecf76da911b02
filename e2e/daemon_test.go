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

// gate is a job that marks its start, waits for a file, and marks its end.
func gate(name, dir string) string {
	return job(name, fmt.Sprintf("echo start >> %[1]s/%[2]s; until [ -e %[1]s/open ]; do sleep 0.05; done; echo end >> %[1]s/%[2]s", dir, name))
}

func contents(t testing.TB, path string) string {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(t, err)
	return string(b)
}

// TestKillDaemon: the job goes on, a new daemon adopts it, and it ran once.
func TestKillDaemon(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	d := w.start()
	w.eventually("the job starts", func() bool { return contents(t, dir+"/gate") == "start\n" })
	w.eventually("its record says so", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	d.kill()
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	w.eventually("the job ends without a daemon", func() bool { return contents(t, dir+"/gate") == "start\nend\n" })
	code, out := w.once()
	require.Equal(t, 0, code, out)
	rec, _ := w.record("default/gate")
	require.Equal(t, repo.PhaseSucceeded, rec.Phase)
	require.Len(t, rec.Roles[0].Tasks[0].Attempts, 1)
	require.Equal(t, "start\nend\n", contents(t, dir+"/gate"), "the task ran exactly once")
}

// TestKillDaemonBeforeItsRecord: the run is adopted although Git never heard of it.
func TestKillDaemonBeforeItsRecord(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	hook := filepath.Join(w.remote, "hooks", "pre-receive")
	require.NoError(t, os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	d := w.start()
	w.eventually("the job starts", func() bool { return contents(t, dir+"/gate") == "start\n" })
	d.kill()
	require.Empty(t, w.tip(), "the remote took no record")
	require.NoError(t, os.Remove(hook))
	w.write("jobs/gate.yaml", strings.Replace(gate("gate", dir), "echo start", "echo changed", 1))
	w.push("another definition meanwhile")
	w.start()
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	w.eventually("both runs end", func() bool { return contents(t, dir+"/gate") == "start\nend\nchanged\nend\n" })
	w.eventually("both are recorded", func() bool {
		history, _ := w.tryGit(w.remote, "show", repo.StatusBranch+":default/default/gate/"+repo.HistoryFile)
		return strings.Count(history, `"result":"Succeeded"`) == 2
	})
}

// TestRemoteAway: jobs go on without the remote, records arrive afterwards.
func TestRemoteAway(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	w.start()
	w.eventually("running", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	require.NoError(t, os.Rename(w.remote, w.remote+".away"))
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	w.eventually("the job ends meanwhile", func() bool { return contents(t, dir+"/gate") == "start\nend\n" })
	require.NoError(t, os.Rename(w.remote+".away", w.remote))
	w.eventually("its record arrives", func() bool { return w.phase("default/gate") == repo.PhaseSucceeded })
}

// TestSomebodyElsePushes: what others put on the status branch stays, and so does ours.
func TestSomebodyElsePushes(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	w.start()
	w.eventually("running", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	other := filepath.Join(dir, "other")
	w.eventually("the other push lands", func() bool {
		require.NoError(t, os.RemoveAll(other))
		w.git("", "clone", "-q", "-b", repo.StatusBranch, w.remote, other)
		require.NoError(t, os.WriteFile(filepath.Join(other, "notes.md"), []byte("a person's notes\n"), 0o644))
		w.git(other, "add", ".")
		w.git(other, "commit", "-q", "-m", "notes")
		_, err := w.tryGit(other, "push", "-q", "origin", "HEAD")
		return err == nil
	})
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	w.eventually("our record follows", func() bool { return w.phase("default/gate") == repo.PhaseSucceeded })
	require.Equal(t, "a person's notes", w.git(w.remote, "show", repo.StatusBranch+":notes.md"))
}

// TestEmptiedRepository: nothing is stopped, and it is said how to confirm.
func TestEmptiedRepository(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	d := w.start()
	w.eventually("running", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	w.git(w.checkout, "rm", "-q", "-r", "jobs")
	w.push("emptied by mistake")
	dashboard := func() string {
		text, _ := w.tryGit(w.remote, "show", repo.StatusBranch+":README.md")
		return text
	}
	w.eventually("the dashboard says so", func() bool { return strings.Contains(dashboard(), "have vanished") })
	require.Contains(t, d.out.String(), "have vanished")
	require.Equal(t, repo.PhaseRunning, w.phase("default/gate"))
	_, token, _ := strings.Cut(d.out.String(), "removal: {confirm: ")
	require.NotEmpty(t, token)
	token = strings.Trim(strings.FieldsFunc(token, func(r rune) bool { return r == '}' })[0], `\"`)
	w.write("trainyard.yaml", "apiVersion: trainyard.dev/v1\nkind: Repository\nremoval: {confirm: \""+token+"\"}\n")
	w.push("confirmed")
	w.eventually("the job is stopped", func() bool { return w.phase("default/gate") == repo.PhaseRemoved })
	require.Equal(t, "start\n", contents(t, dir+"/gate"), "it did not come to its end")
}

// TestSuspendResumeStop drives a running job by edits of its file.
func TestSuspendResumeStop(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	w.start()
	w.eventually("running", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	edit := func(command string) {
		t.Helper()
		code, out := w.trainyard(command, "gate", "--push")
		require.Equal(t, 0, code, out)
	}
	edit("suspend")
	w.eventually("suspended", func() bool { return w.phase("default/gate") == repo.PhaseSuspended })
	edit("resume")
	w.eventually("running again", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	w.eventually("with a second start", func() bool { return contents(t, dir+"/gate") == "start\nstart\n" })
	edit("stop")
	w.eventually("stopped", func() bool { return w.phase("default/gate") == repo.PhaseStopped })
	rec, _ := w.record("default/gate")
	require.Equal(t, repo.Retries{}, rec.Roles[0].Tasks[0].Retries, "a suspension is no retry")
}

// TestHookHastens: with a poll of an hour a signed webhook brings the job at once.
func TestHookHastens(t *testing.T) {
	w := newWorld(t)
	w.write("jobs/first.yaml", job("first", "true"))
	w.push("first")
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	d := w.start("--poll", "1h", "--listen", "127.0.0.1:0", "--webhook-secret-file", secret)
	w.eventually("first runs", func() bool { return w.phase("default/first") == repo.PhaseSucceeded })
	var address string
	w.eventually("it listens", func() bool {
		_, rest, ok := strings.Cut(d.out.String(), "listening on http://")
		if ok {
			address = strings.Fields(rest)[0]
		}
		return ok
	})
	w.write("jobs/second.yaml", job("second", "true"))
	w.push("second")
	require.Equal(t, 401, sendHook(t, address, "wrong"))
	require.Equal(t, 202, sendHook(t, address, "s3cret"))
	w.eventually("second runs", func() bool { return w.phase("default/second") == repo.PhaseSucceeded })
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		require.Equal(t, 200, get(t, "http://"+address+path), path)
	}
}

// TestStops: SIGTERM ends the daemon soon, and its jobs go on.
func TestStops(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	d := w.start()
	w.eventually("running", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	require.NoError(t, d.end(t, os.Interrupt), "a daemon that is asked to end has not failed")
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	w.eventually("the job goes on", func() bool { return contents(t, dir+"/gate") == "start\nend\n" })
	code, out := w.once()
	require.Equal(t, 0, code, out)
}
