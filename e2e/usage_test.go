package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// asked is a web server that nobody may ask.
type asked struct {
	url   string
	count atomic.Int32
}

func listener(t *testing.T) *asked {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := &asked{url: "http://" + l.Addr().String()}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { a.count.Add(1) }), ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return a
}

// TestFiveMinutes does what the README tells people to do, word for word.
func TestFiveMinutes(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.RemoveAll(w.checkout))
	home := filepath.Dir(w.checkout)
	w.checkout = home
	code, out := w.trainyard("init", "my-jobs")
	require.Equal(t, 0, code, out)
	w.checkout = filepath.Join(home, "my-jobs")
	w.git(w.checkout, "init", "-q", "-b", "main")
	w.git(w.checkout, "add", ".")
	w.git(w.checkout, "commit", "-q", "-m", "first job")
	code, out = w.trainyard("validate")
	require.Equal(t, 0, code, out)
	require.Equal(t, "1 job, 0 errors, 0 warnings (environment: default)\n", out)
	code, out = w.trainyard("render")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "kind: Pod")
	code, out = w.trainyard("run", "--repo", ".", "--once")
	require.Equal(t, 0, code, out)
	code, out = w.trainyard("status")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "default/hello   Succeeded")
	code, out = w.trainyard("logs", "hello")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "step 3 of 3")
	require.Contains(t, w.git(w.checkout, "show", repo.StatusBranch+":README.md"), "1 Succeeded")
	for _, command := range []string{"suspend", "resume", "rerun", "stop"} {
		code, out = w.trainyard(command, "hello")
		require.Equal(t, 0, code, out)
		code, out = w.trainyard("validate")
		require.Equal(t, 0, code, "%s: %s", command, out)
	}
}

// TestExitCodes: 1 for what went wrong, 2 for wrong usage, and words that help.
func TestExitCodes(t *testing.T) {
	w := newWorld(t)
	w.write("jobs/a.yaml", job("a", "true"))
	w.write("broken.policy", "a: [")
	w.write("unknown.policy", "maxReplica: 1")
	w.write("file", "")
	w.push("a job")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "a command is missing"},
		{"frobnicate", 2, `unknown command "frobnicate"`},
		{"run", 2, "--repo is missing"},
		{"run --repo . --frob", 2, "unknown flag: --frob"},
		{"run --repo . extra", 2, "too many arguments: extra"},
		{"run --repo . --env No", 2, `--env: "No" is no name`},
		{"run --repo . --env ../x", 2, `--env: "../x" is no name`},
		{"run --repo . --poll never", 2, "--poll"},
		{"run --repo . --poll 0s", 2, "--poll: 0s is not above zero"},
		{"run --repo . --runner docker", 2, `"docker" is none of local, kubernetes`},
		{"run --repo . --policy nothing", 2, "no such file"},
		{"run --repo . --status-branch refs/heads/x", 2, "is no branch"},
		{"run --repo . --once --policy broken.policy", 1, "broken.policy: line 1"},
		{"run --repo . --once --policy unknown.policy", 1, `line 1: unknown field "maxReplica"`},
		{"run --repo nowhere --once", 1, "nowhere: repository not found"},
		{"run --repo file --once", 1, "the remote says: fatal: invalid gitfile format"},
		{"run --repo jobs --once", 1, "jobs: the remote says: fatal: '"},
		{"run --repo ftp://x/y --once", 1, `scheme "ftp" is not supported`},
		{"run --repo https://127.0.0.1:1/x --once", 1, "connection refused"},
		{"run --repo . --branch nothing --once", 1, `branch "nothing": the remote has no such branch`},
		{"run --repo . --state-dir file --once", 1, "not a directory"},
		{"run --repo . --listen 99999 --once", 1, "as in :8080"},
		{"validate nothing", 2, "no such file"},
		{"validate --env ../x", 2, `"../x" is no name`},
		{"status nothing", 1, "nothing"},
		{"logs nothing", 1, "nothing"},
		{"rerun nothing", 1, "nothing"},
	} {
		code, out := w.trainyard(strings.Fields(c.args)...)
		assert.Equal(t, c.code, code, "trainyard %s: %s", c.args, out)
		assert.Contains(t, out, c.want, "trainyard %s", c.args)
		for _, inside := range []string{"panic", "goroutine ", "unexpected EOF", "%!"} {
			assert.NotContains(t, out, inside, "trainyard %s", c.args)
		}
	}
}

// TestSecondDaemon: one daemon a state directory, and the other is told whose it is.
func TestSecondDaemon(t *testing.T) {
	w := newWorld(t)
	w.write("jobs/a.yaml", job("a", "true"))
	w.push("a job")
	d := w.start()
	w.eventually("the first works", func() bool { return w.phase("default/a") == repo.PhaseSucceeded })
	code, out := w.once()
	require.Equal(t, 1, code)
	require.Contains(t, out, "state directory is in use")
	d.kill()
	code, out = w.once()
	require.Equal(t, 0, code, out)
}

// TestOverlayThatBreaksEverything: what ran stays, what runs goes on, and every
// record says at which line of the overlay it is broken, until it is mended.
func TestOverlayThatBreaksEverything(t *testing.T) {
	const overlay = "overlays/default/kustomization.yaml"
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/done.yaml", job("done", "echo ran >> "+dir+"/done"))
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("jobs")
	d := w.start()
	w.eventually("one has run, one runs", func() bool {
		return w.phase("default/done") == repo.PhaseSucceeded && w.phase("default/gate") == repo.PhaseRunning
	})
	w.write(overlay, component+"patches:\n- patch: '[]'\n")
	w.push("break it")
	w.eventually("the record says so", func() bool { return w.phase("default/done") == repo.PhaseInvalid })
	rec, _ := w.record("default/done")
	require.Len(t, rec.Errors, 1)
	require.True(t, strings.HasPrefix(rec.Errors[0], overlay+":4:3: patches[0]: "), rec.Errors[0])
	require.Equal(t, "jobs/done.yaml", rec.Definition.File)
	code, printed := w.trainyard("validate")
	require.Equal(t, 1, code)
	require.Contains(t, printed, rec.Errors[0]+"\n")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o644))
	w.eventually("what ran went on", func() bool {
		rec, _ := w.record("default/gate")
		return rec.Run != nil && !rec.Run.FinishedAt.IsZero()
	})
	w.write("trainyard.yaml", "apiVersion: [")
	w.push("and the settings too")
	w.write(overlay, component)
	require.NoError(t, os.Remove(filepath.Join(w.checkout, "trainyard.yaml")))
	w.push("mend both")
	w.eventually("all is as it was", func() bool {
		return w.phase("default/done") == repo.PhaseSucceeded && w.phase("default/gate") == repo.PhaseSucceeded
	})
	d.kill()
	require.Equal(t, "ran\n", contents(t, dir+"/done"), "it did not run again")
	require.Equal(t, "start\nend\n", contents(t, dir+"/gate"))
}

// TestConfirmAsToldTo does what the log says when all jobs have vanished, word
// for word, in a repository that never had settings.
func TestConfirmAsToldTo(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	d := w.start()
	w.eventually("it runs", func() bool { return w.phase("default/gate") == repo.PhaseRunning })
	require.NoError(t, os.RemoveAll(filepath.Join(w.checkout, "jobs")))
	w.push("all gone")
	const told = "commit this to trainyard.yaml: "
	w.eventually("the log says what to do", func() bool { return strings.Contains(d.out.String(), told) })
	_, after, _ := strings.Cut(d.out.String(), told)
	line, _, _ := strings.Cut(after, "\n")
	require.Equal(t, repo.PhaseRunning, w.phase("default/gate"), "nothing is stopped")
	w.write("trainyard.yaml", strings.TrimSpace(line)+"\n")
	w.push("yes")
	w.eventually("now it is", func() bool { return w.phase("default/gate") == repo.PhaseRemoved })
}
