package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// yard is a world in which jobs come, run and end while something is wrong.
// Each attempt of each task writes to a witness file when it starts and when it
// ends: what happened is known without asking the program.
type yard struct {
	*world
	rng     *rand.Rand
	server  *gitServer // the daemon reaches the remote through it alone
	program string     // what is run, binary if ""
	witness string     // directory of the witness files
	jobs    []*yardJob
	d       *daemon
	trace   []string
	began   time.Time
}

// yardJob is a job and what has to become of it.
type yardJob struct {
	name     string
	replicas int
	code     int  // its tasks exit with it
	retries  int  // of each task, that it answers for
	gated    bool // it ends when its gate is opened
	lasts    time.Duration
}

func newYard(t testing.TB, seed uint64) *yard {
	y := &yard{world: newWorld(t), rng: rand.New(rand.NewPCG(seed, 0)), witness: t.TempDir(), began: time.Now()}
	y.git(y.remote, "config", "http.receivepack", "true")
	y.git(y.remote, "config", "gc.auto", "0")
	y.git(y.remote, "config", "receive.autogc", "false")
	y.server = newGitServer(t, y.world)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pods that are held:\n%s", strings.Join(y.held(), "\n"))
		}
		y.endAll()
	})
	return y
}

func (y *yard) say(format string, args ...any) {
	y.trace = append(y.trace, fmt.Sprintf("%7.2fs  %s", time.Since(y.began).Seconds(), fmt.Sprintf(format, args...)))
}

// serve starts a daemon.
func (y *yard) serve(more ...string) {
	y.say("a daemon starts")
	y.d = y.world.startProgram(cmp.Or(y.program, binary), append([]string{"--repo", y.server.url()}, more...)...)
}

// stop asks the daemon to end, and says how long it took.
func (y *yard) stop() time.Duration {
	y.t.Helper()
	from := time.Now()
	require.NoError(y.t, y.d.end(y.t, os.Interrupt), "a daemon that is asked to end has not failed:\n%s", y.d.out)
	y.say("the daemon has ended")
	return time.Since(from)
}

// endAll lets every job end, so that nothing outlives the test.
func (y *yard) endAll() {
	_ = os.WriteFile(filepath.Join(y.witness, "enough"), nil, 0o644)
	deadline := time.Now().Add(10 * time.Second)
	for len(y.shims()) > 0 && time.Now().Before(deadline) {
		pause(y.t.Context(), 50*time.Millisecond)
	}
	for _, pid := range y.shims() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// yardScript is what a job's tasks do. A number alone names no process: a stranger
// may have it by now; and one without memory runs no more. $$$$ is a shell's $$: pods expand $$ to $.
const yardScript = `id=$TRAINYARD_RUN_ID/$TRAINYARD_RUN_ATTEMPT/$TRAINYARD_ROLE-$TRAINYARD_INDEX/$TRAINYARD_TASK_ATTEMPT
cd %[1]s; pid=%[2]s.pid-$TRAINYARD_INDEX
born() { cut -d ' ' -f 22 /proc/$1/stat; }
if [ -s $pid ] && read p at < $pid && kill -0 $p && [ "$(born $p)" = "$at" ] && grep -q VmSize /proc/$p/status; then echo overlap $id >> %[2]s; fi 2>/dev/null
echo $$$$ $(born $$$$) > $pid; echo start $id >> %[2]s
%[3]s
echo last words of $id; echo end $id >> %[2]s; exit %[4]d`

func (y *yard) text(j *yardJob) string {
	wait := fmt.Sprintf("sleep %.1f", j.lasts.Seconds())
	if j.gated {
		wait = fmt.Sprintf("until [ -e %s.open ] || [ -e enough ]; do sleep 0.1; done", j.name)
	}
	return fmt.Sprintf(`apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: %s}
spec:
  retry: {limit: 0}
  roles:
  - name: main
    replicas: %d
    retry: {limit: %d, backoff: {initial: 300ms}}
    template:
      spec:
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          command: [sh, -c, %q]
`, j.name, j.replicas, j.retries, fmt.Sprintf(yardScript, y.witness, j.name, wait, j.code))
}

// add pushes jobs.
func (y *yard) add(jobs ...*yardJob) {
	y.t.Helper()
	var names []string
	for _, j := range jobs {
		j.replicas = max(1, j.replicas)
		y.write("jobs/"+j.name+".yaml", y.text(j))
		names = append(names, j.name)
	}
	y.jobs = append(y.jobs, jobs...)
	y.push("add " + strings.Join(names, " "))
	y.say("pushed: %s", strings.Join(names, " "))
}

func (y *yard) open(job string) {
	require.NoError(y.t, os.WriteFile(filepath.Join(y.witness, job+".open"), nil, 0o644))
	y.say("%s may end", job)
}

// short is a time of a few seconds.
func (y *yard) short(least, most time.Duration) time.Duration {
	return least + time.Duration(y.rng.Int64N(int64(most-least)))
}

// seen says what a job's witness file holds, by the first word of its lines.
func (y *yard) seen(job string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(contents(y.t, filepath.Join(y.witness, job))) {
		word, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[word] = append(out[word], id)
	}
	return out
}

func (y *yard) starts(job string) int { return len(y.seen(job)["start"]) }

// settle waits until every job is what it has to become, every pod is released
// and no process is left.
func (y *yard) settle() {
	y.t.Helper()
	for _, j := range y.jobs {
		y.eventually(j.name+" comes to its end", func() bool {
			rec, _ := y.record("default/" + j.name)
			return rec.Phase == j.phase() && upToDate(&rec)
		})
	}
	y.eventually("every pod is released", func() bool { return len(y.held()) == 0 })
	y.eventually("no process is left", func() bool { return len(y.shims()) == 0 })
}

func (j *yardJob) phase() repo.Phase {
	if j.code != 0 {
		return repo.PhaseFailed
	}
	return repo.PhaseSucceeded
}

// held are the pods whose end has not reached the remote.
func (y *yard) held() (names []string) {
	pods, err := filepath.Glob(filepath.Join(y.state, "local", "pods", "*", "*"))
	require.NoError(y.t, err)
	for _, dir := range pods {
		if _, err := os.Stat(filepath.Join(dir, "released")); err != nil && !strings.HasPrefix(filepath.Base(dir), ".") {
			files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			for i := range files {
				files[i] = filepath.Base(files[i])
			}
			names = append(names, filepath.Base(dir)+" "+strings.Join(files, " "))
		}
	}
	return names
}

// shims are the processes that hold pods of this world.
func (y *yard) shims() []int {
	var out []int
	for _, pid := range processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if args := strings.Split(string(line), "\x00"); len(args) > 2 && args[1] == "shim" && strings.HasPrefix(args[2], y.state+"/") {
			out = append(out, pid)
		}
	}
	return out
}

// processes of this machine.
func processes() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid := 0
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
