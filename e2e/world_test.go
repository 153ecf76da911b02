package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/status"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "trainyard-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "trainyard")
		build := exec.Command("go", "build", "-o", binary, "../cmd/trainyard")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return cluster.Main(m)
	}())
}

// world is a remote repository, a checkout of it, and a place for a daemon's state.
type world struct {
	t        testing.TB
	remote   string
	checkout string
	state    string
	env      []string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{
		t: t, remote: filepath.Join(dir, "remote.git"), checkout: filepath.Join(dir, "checkout"), state: filepath.Join(dir, "state"),
	}
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o755))
	w.env = []string{
		"HOME=" + home, "PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
	}
	w.git("", "init", "-q", "--bare", "-b", "main", w.remote)
	w.git("", "clone", "-q", w.remote, w.checkout)
	w.git(w.checkout, "checkout", "-q", "-B", "main")
	return w
}

// git runs git in a directory and returns what it printed.
func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	out, err := w.tryGit(dir, args...)
	require.NoError(w.t, err, "git %v: %s", args, out)
	return out
}

func (w *world) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, w.env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// write puts a file into the checkout.
func (w *world) write(path, content string) {
	w.t.Helper()
	full := filepath.Join(w.checkout, path)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(w.t, os.WriteFile(full, []byte(content), 0o644))
}

// push commits everything in the checkout and pushes it.
func (w *world) push(message string) {
	w.t.Helper()
	w.git(w.checkout, "add", "-A")
	w.git(w.checkout, "commit", "-q", "--allow-empty", "-m", message)
	w.git(w.checkout, "push", "-q", "origin", "HEAD:main")
}

// copyExample takes over one of the examples as the checkout's content.
func (w *world) copyExample(name string) {
	w.t.Helper()
	require.NoError(w.t, os.CopyFS(w.checkout, os.DirFS(filepath.Join("..", "examples", name))))
}

func (w *world) runArgs(more ...string) []string {
	return append([]string{"run", "--repo", w.remote, "--state-dir", w.state, "--poll", "200ms", "--publish-interval", "200ms", "--log-format", "console"}, more...)
}

// trainyard runs the program to its end.
func (w *world) trainyard(args ...string) (code int, output string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = w.checkout, w.env
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, ctx.Err(), "trainyard %v did not end: %s", args, out)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w.t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// once runs everything to its end.
func (w *world) once(more ...string) (int, string) {
	w.t.Helper()
	return w.trainyard(w.runArgs(append([]string{"--once"}, more...)...)...)
}

// patience is how long a test waits for what has to come, on a busy machine too.
const patience = 2 * time.Minute

// daemon is a running `trainyard run`.
type daemon struct {
	cmd  *exec.Cmd
	out  *buffer
	done chan error
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (w *world) start(more ...string) *daemon {
	w.t.Helper()
	return w.startProgram(binary, more...)
}

func (w *world) startProgram(program string, more ...string) *daemon {
	w.t.Helper()
	d := &daemon{cmd: exec.Command(program, w.runArgs(more...)...), out: &buffer{}, done: make(chan error, 1)}
	d.cmd.Dir, d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = w.checkout, w.env, d.out, d.out
	// The jobs' processes inherit nothing of ours: Wait must not wait for them.
	d.cmd.WaitDelay = time.Second
	require.NoError(w.t, d.cmd.Start())
	go func() { d.done <- d.cmd.Wait() }()
	w.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
		if w.t.Failed() {
			w.t.Logf("daemon:\n%s", d.out)
		}
		// A push that it had begun goes on without it, in a directory that is removed next.
		w.eventually("what git does for it ends", func() bool {
			return !slices.ContainsFunc(w.processes(), isGit.MatchString)
		})
	})
	return d
}

// processes are those that live, and have to do with this world.
func (w *world) processes() (found []string) {
	if runtime.GOOS != "linux" {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	require.NoError(w.t, err)
	top := filepath.Dir(w.remote)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // empty of the dead
		dir, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if len(command) > 0 && (strings.Contains(string(command)+"\x00"+string(environ), top) || strings.HasPrefix(dir, top)) {
			found = append(found, e.Name()+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

var isGit = regexp.MustCompile(`^\d+ (\S*/)?git[ -]`)

// end asks the daemon to end, waits until it has, and says with what.
func (d *daemon) end(t testing.TB, signal os.Signal) error {
	t.Helper()
	require.NoError(t, d.cmd.Process.Signal(signal))
	select {
	case err := <-d.done:
		d.done <- err
		return err
	case <-time.After(patience):
		require.Fail(t, "the daemon does not end", d.out.String())
		return nil
	}
}

// kill ends the daemon as nothing can prepare for.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	err := <-d.done
	d.done <- err
}

// record reads a job's record from the remote; ok is false if there is none.
func (w *world) record(job string) (repo.Record, bool) {
	w.t.Helper()
	return w.recordIn("default", job)
}

// recordIn reads the record of a job of an environment.
func (w *world) recordIn(environment, job string) (rec repo.Record, ok bool) {
	w.t.Helper()
	text, err := w.tryGit(w.remote, "show", repo.StatusBranch+":"+environment+"/"+job+"/"+repo.StatusFile)
	if err != nil {
		return rec, false
	}
	rec, err = status.Decode([]byte(text))
	require.NoError(w.t, err)
	return rec, true
}

// phase of a job according to its record, "" if it has none.
func (w *world) phase(job string) repo.Phase {
	w.t.Helper()
	rec, _ := w.record(job)
	return rec.Phase
}

// tip is the commit of the status branch.
func (w *world) tip() string {
	out, err := w.tryGit(w.remote, "rev-parse", "--verify", "-q", repo.StatusBranch)
	if err != nil {
		return ""
	}
	return out
}

// eventually polls until f holds.
func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, patience, 50*time.Millisecond, what)
}

// job is a TrainingJob of one task that runs a shell command.
func job(name, command string) string {
	return fmt.Sprintf(`apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: %s}
spec:
  roles:
  - name: main
    template:
      spec:
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          command: [sh, -c, %q]
`, name, command)
}
