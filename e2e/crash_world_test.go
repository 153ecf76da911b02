package e2e

import (
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// crashDir is where points are armed, in the directory for temporary files.
const crashDir = "trainyard-crash"

// crashWorld is a world in which the program is killed at its crash points.
type crashWorld struct {
	*world
	binary string
	url    string // of the remote
	dir    string // of the marks that containers leave
	temp   string // for temporary files of the program
	jobs   []*crashJob
	trace  []string

	d                *daemon
	due              int       // how many are to have been killed by now
	born             time.Time // of the daemon
	slowest, longest time.Duration
}

// newCrashWorld is served by Git's own HTTP server, or every third by its path.
func newCrashWorld(t *testing.T, binary string, n int) *crashWorld {
	x := &crashWorld{world: newWorld(t), binary: binary}
	top := filepath.Dir(x.remote)
	x.url, x.dir, x.temp = x.remote, filepath.Join(top, "marks"), filepath.Join(top, "tmp")
	for _, dir := range []string{x.dir, filepath.Join(x.temp, crashDir, "passed"), filepath.Join(x.temp, crashDir, "armed")} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	for i, v := range x.env {
		if strings.HasPrefix(v, "TMPDIR=") {
			x.env[i] = "TMPDIR=" + x.temp
		}
	}
	x.git(x.remote, "config", "core.logAllRefUpdates", "always")
	x.git(x.remote, "config", "gc.auto", "0")
	if n%3 != 0 {
		server := httptest.NewServer(&cgi.Handler{
			Path:       filepath.Join(x.git("", "--exec-path"), "git-http-backend"),
			Env:        append([]string{"GIT_PROJECT_ROOT=" + top, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=trainyard"}, x.env...),
			InheritEnv: []string{"PATH"},
		})
		t.Cleanup(server.Close)
		x.url = server.URL + "/" + filepath.Base(x.remote)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done:\n%s", strings.Join(x.trace, "\n"))
			for _, process := range x.processes() { // pods that nobody will end any more
				pid, _, _ := strings.Cut(process, " ")
				_ = exec.Command("kill", "-9", pid).Run()
			}
		}
	})
	return x
}

func (x *crashWorld) say(format string, args ...any) {
	x.trace = append(x.trace, time.Now().Format("05.000  ")+fmt.Sprintf(format, args...))
}

// up starts a daemon if none runs.
func (x *crashWorld) up() {
	x.t.Helper()
	if x.d != nil {
		return
	}
	args := []string{"run", "--repo", x.url, "--state-dir", x.state, "--poll", "100ms", "--publish-interval", "100ms", "--log-format", "console"}
	d := &daemon{cmd: exec.Command(x.binary, args...), out: &buffer{}, done: make(chan error, 1)}
	d.cmd.Dir, d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = x.checkout, x.env, d.out, d.out
	d.cmd.WaitDelay = time.Second
	x.born = time.Now()
	require.NoError(x.t, d.cmd.Start())
	go func() { d.done <- d.cmd.Wait() }()
	x.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		err := <-d.done
		d.done <- err
		if x.t.Failed() {
			x.t.Logf("daemon %d:\n%s", d.cmd.Process.Pid, d.out)
		}
	})
	x.d = d
	x.say("daemon %d starts", d.cmd.Process.Pid)
}

// ended says whether no daemon runs, any more.
func (x *crashWorld) ended() bool {
	if x.d == nil {
		return true
	}
	select {
	case err := <-x.d.done:
		x.d.done <- err
		x.say("daemon %d has ended: %v", x.d.cmd.Process.Pid, err)
		x.d = nil
		return true
	default:
		return false
	}
}

// arm has a process killed that passes a point.
func (x *crashWorld) arm(p crash.Point, nth int) {
	x.due++
	dir := filepath.Join(x.temp, crashDir, "armed", p.String())
	require.NoError(x.t, os.MkdirAll(dir, 0o755))
	for ; nth > 0; nth-- { // the first that may be taken away comes last
		require.NoError(x.t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d", nth)), nil, 0o644))
	}
}

// lures are points that have to kill before some effect comes about at all.
func lures(e crash.Effect) []crash.Point {
	switch e {
	case crash.PodLost, "file-outcome.json":
		return []crash.Point{{Kind: crash.Shim, Effect: crash.ContainerStart, Moment: crash.After}}
	case crash.Sweep:
		return []crash.Point{{Kind: crash.Daemon, Effect: crash.PodRemove, Moment: crash.Half}}
	case crash.MirrorRemove:
		return []crash.Point{{Kind: crash.Daemon, Effect: "file-current", Moment: crash.Before}}
	}
	return nil
}

// anew are effects of a daemon that has no copy of the repository.
var anew = []crash.Effect{crash.MirrorSwitch, crash.MirrorRemove, "file-HEAD", "file-current"}

// kill brings about that a process is killed at a point, with work for it until it is.
func (x *crashWorld) kill(p crash.Point) {
	x.t.Helper()
	if p.Effect == crash.StateLock || slices.Contains(anew, p.Effect) {
		x.down()
	}
	if slices.Contains(anew, p.Effect) {
		require.NoError(x.t, os.RemoveAll(filepath.Join(x.state, "git")))
	}
	x.say("to be killed at %s", p)
	x.arm(p, 1)
	if p.Kind == crash.Daemon {
		for _, lure := range lures(p.Effect) {
			x.arm(lure, 1)
		}
	}
	kind := crashKinds[len(x.jobs)%len(crashKinds)]
	if p.Effect == "file-objects.json" {
		kind = "unit"
	}
	x.feed(kind)
	fed := time.Now()
	for deadline := fed.Add(time.Duration(40*busy()) * time.Second); ; pause(x.t.Context(), 5*time.Millisecond) {
		ended, killed := x.ended(), x.killed() // in this order: who is dead has said so
		if len(killed) >= x.due {
			break
		}
		if ended {
			x.up()
		}
		require.True(x.t, time.Now().Before(deadline), "%s was not come to, or what it takes was not: %v", p, killed)
		if time.Since(fed) > 3*time.Second {
			x.feed("plain")
			fed = time.Now()
		}
	}
	x.longest = max(x.longest, time.Since(x.born))
	if last := x.killed()[x.due-1]; x.d != nil && last.pid == x.d.cmd.Process.Pid {
		x.eventually("the daemon is dead", x.ended)
	}
}

// feed pushes another job, and what is due to change in the others.
func (x *crashWorld) feed(kind string) {
	x.change(2)
	x.add(kind)
	x.push("a job: " + kind)
}

// down kills the daemon from outside.
func (x *crashWorld) down() {
	if x.ended() {
		return
	}
	x.d.kill()
	x.d = nil
}

// play follows a plan and looks at what has come of it.
func (x *crashWorld) play(plan []crash.Point) {
	x.t.Helper()
	for _, p := range plan {
		x.kill(p)
	}
	x.down()
	x.witness()
	x.rest()
	x.crashLaws()
}

// witness starts a daemon once more and sees how soon it does new work.
func (x *crashWorld) witness() {
	x.change(0)
	x.add("plain")
	x.push("a witness")
	x.up()
	name := x.jobs[len(x.jobs)-1].name
	for !slices.ContainsFunc(x.marks(), func(m mark) bool { return m.job == name }) {
		require.False(x.t, x.ended(), "nobody kills this daemon")
		require.Less(x.t, time.Since(x.born), 10*time.Second*time.Duration(busy()), "a new job begins within 10 s of a daemon's start")
		pause(x.t.Context(), 5*time.Millisecond)
	}
	x.slowest = time.Since(x.born)
	x.say("a new job began after %v", x.slowest)
}

// busy is how many times as long things may take as on a machine that has
// little else to do: 1 with up to four processes that wait for each processor.
func busy() int {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(load, 64)
	return 1 + int(n)/(4*runtime.NumCPU()+1)
}

// killing is a process that was killed at a point.
type killing struct {
	point string
	pid   int
	dir   string // in which it worked: a shim in its pod's
}

// killed are all so far.
func (x *crashWorld) killed() (all []killing) {
	text, err := os.ReadFile(filepath.Join(x.temp, crashDir, "killed"))
	if err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		require.Len(x.t, f, 3)
		pid, err := strconv.Atoi(f[1])
		require.NoError(x.t, err)
		all = append(all, killing{point: f[0], pid: pid, dir: f[2]})
	}
	return all
}
