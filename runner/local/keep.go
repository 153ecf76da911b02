package local

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// shimChild is a shim that this daemon started and has to reap.
type shimChild struct{ dir string }

// pass brings every pod one step further, and may be cut off anywhere: lost
// shims get their outcome, room on the machine is given, shims are started,
// what is done with is removed. A deep pass also looks for what no message
// tells of: shims that were killed, and damaged files.
func (b *Backend) pass(deep bool) {
	b.passing.Lock()
	defer b.passing.Unlock()
	ended := b.reap()
	if deep {
		b.setAside()
	}
	all, err := b.list("")
	if err != nil {
		b.options.Logger.Warn().Err(err).Msg("read pods; tried again")
		return
	}
	b.vanished()
	for _, e := range all {
		if e.outcome == nil && (deep || ended[e.dir] || e.deletion != nil) {
			b.settle(e)
		}
	}
	b.admit(all)
	for _, e := range all {
		if e.outcome == nil && b.ours(e.pod) && (deep || !ended[e.dir]) {
			b.start(e)
		}
		if err := b.removeDone(e); err != nil {
			b.options.Logger.Warn().Err(err).Str("pod", e.pod.Name).Msg("remove pod")
		}
		b.tell(e)
	}
}

// reap takes leave of shims that have ended.
func (b *Backend) reap() map[string]bool {
	ended := map[string]bool{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for pid, child := range b.shims {
		var ws unix.WaitStatus
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
		if got == 0 && err == nil {
			continue
		}
		delete(b.shims, pid)
		ended[child.dir] = true
		if !exists(filepath.Join(child.dir, shimFile)) && exists(child.dir) {
			b.waiting[child.dir] = fmt.Sprintf("its shim ended before it began (%s): %s", describe(ws), lastLine(filepath.Join(child.dir, shimLog)))
		}
	}
	return ended
}

func describe(ws unix.WaitStatus) string {
	if ws.Signaled() {
		return ws.Signal().String()
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

func lastLine(path string) string {
	text, _ := os.ReadFile(path)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}

// settle gives a pod its outcome that has nobody else to write it: one whose
// shim is gone, or that was asked to end before it had one.
func (b *Backend) settle(e *entry) {
	s, err := e.shim()
	started := !errors.Is(err, fs.ErrNotExist)
	if err != nil && started && !errors.Is(err, errDamaged) {
		return // too many open files, say: nothing is known
	}
	if err == nil && s.alive() || !started && e.deletion == nil {
		return
	}
	held, err := lock(filepath.Join(e.dir, lockFile), false)
	if err != nil || held == nil {
		return // a shim holds it, or is about to begin
	}
	defer held.Close()
	s2, err := e.shim()
	now, _ := b.entry(e.dir)
	if errors.Is(err, fs.ErrNotExist) == started || s2.alive() || now == nil || now.outcome != nil {
		return // it changed before we had the lock; the next pass sees what it is now
	}
	outcome := b.pending(e)
	crash.At(crash.PodLost, crash.Before)
	if started {
		if !killLeftovers(e) {
			b.options.Logger.Warn().Str("pod", e.pod.Name).Msg("processes of a lost pod do not die: it is not given up before they do")
			return
		}
		outcome = lost(e, s)
		b.options.Logger.Warn().Str("pod", e.pod.Name).Str("reason", outcome.Reason).Msg("pod lost")
	} else {
		outcome.Phase, outcome.Reason, outcome.Message = corev1.PodFailed, ReasonDeleted, "asked to end before it was started"
		condition(&outcome, corev1.PodReady, false, "PodFailed", "") // which says when: not before it was asked to
	}
	crash.At(crash.PodLost, crash.Half)
	if err := writeDurable(filepath.Join(e.dir, outcomeFile), outcome); err != nil {
		b.options.Logger.Error().Err(err).Str("pod", e.pod.Name).Msg("write outcome")
		return
	}
	crash.At(crash.PodLost, crash.After)
	e.outcome = &outcome
}

// lost is the outcome of a pod whose shim is gone without leaving one.
func lost(e *entry, s shimState) corev1.PodStatus {
	var status corev1.PodStatus
	if read(filepath.Join(e.dir, statusFile), &status) != nil || status.Phase == "" {
		status = corev1.PodStatus{}
		blank(&status, e.pod, "ContainerStatusUnknown", "")
	}
	seen := s.At
	for _, name := range []string{statusFile, shimFile} {
		if info, err := os.Lstat(filepath.Join(e.dir, name)); err == nil && info.ModTime().After(seen) {
			seen = info.ModTime()
		}
	}
	if t := lastOutput(e.dir); t.After(seen) {
		seen = t
	}
	status.Phase, status.Reason = corev1.PodFailed, ReasonShimLost
	what := "the shim that held the pod is gone and left no outcome"
	if now := bootID(); s.Boot != "" && now != "" && s.Boot != now {
		status.Reason, what = ReasonMachineRestarted, "the machine was restarted while the pod ran"
	}
	status.Message = fmt.Sprintf("%s; last sign of life at %s", what, seen.UTC().Format(time.RFC3339))
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			if list[i].State.Running == nil {
				continue
			}
			list[i].Ready = false
			list[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: status.Message,
				StartedAt: list[i].State.Running.StartedAt, FinishedAt: metav1.NewTime(seen),
			}}
		}
	}
	condition(&status, corev1.PodReady, false, "PodFailed", "")
	condition(&status, corev1.DisruptionTarget, true, status.Reason, status.Message)
	return status
}

// killLeftovers ends what still runs of a pod whose shim is gone, and says
// whether nothing of it is left.
func killLeftovers(e *entry) bool {
	var leaders []process
	if err := read(filepath.Join(e.dir, sessionsFile), &leaders); scarce(err) || len(leaders) > 0 && leaders[0].Boot != "" && bootID() == "" {
		return false // nothing can be looked at just now
	}
	return killSessions(leaders, 2*time.Second) && killMarked(markPod+"="+string(e.pod.UID), 2*time.Second)
}

// start starts the shim of a pod that has its place and no shim yet. To start
// one too many is harmless: the pod's lock and shim.json let one of them work.
func (b *Backend) start(e *entry) {
	if !exists(filepath.Join(e.dir, admittedFile)) || exists(filepath.Join(e.dir, shimFile)) || e.deletion != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, child := range b.shims {
		if child.dir == e.dir {
			return
		}
	}
	crash.At(crash.ShimStart, crash.Before)
	pid, err := startShim(b.options, b.base, e.dir)
	crash.At(crash.ShimStart, crash.After)
	if err != nil {
		b.waiting[e.dir] = "its shim cannot be started: " + err.Error()
		return
	}
	b.shims[pid] = &shimChild{dir: e.dir}
}

// shimName is what shims are called in lists of processes.
const shimName = "trainyard"

func startShim(o Options, base []string, dir string) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	log, err := os.OpenFile(filepath.Join(dir, shimLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	argv := append([]string{shimName}, append(append([]string{}, o.ShimArgs...), dir)...)
	p, err := os.StartProcess(o.Executable, argv, &os.ProcAttr{
		Dir: "/", Env: append([]string{"GOMAXPROCS=2"}, base...), Files: []*os.File{null, log, log}, Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	pid := p.Pid
	return pid, p.Release()
}

// tell lets the watches know of a pod that changed since they were last told.
func (b *Backend) tell(e *entry) {
	now := e.signature()
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.pods[e.dir]
	if kept == nil || kept.seen == now {
		return
	}
	kept.seen = now
	if kept.outcome == nil {
		kept.outcome = e.outcome
	}
	b.changes.Tell(keyOf(e.pod))
}

// setAside moves directories out of the way whose pod cannot be read any more,
// so that the others can be. What their shims hold is killed first.
func (b *Backend) setAside() {
	dirs, _ := b.podDirs("")
	for _, dir := range dirs {
		_, err := b.entry(dir)
		if !errors.Is(err, errDamaged) || !exists(dir) {
			continue
		}
		e := &entry{dir: dir, pod: &corev1.Pod{}}
		if s, err := e.shim(); err == nil {
			_ = s.signal(unix.SIGKILL)
			e.pod.UID = types.UID(s.UID)
			killLeftovers(e)
			_ = discardMemory(e.pod.UID)
		}
		aside := filepath.Join(b.dir, "damaged")
		moved := os.MkdirAll(aside, 0o700)
		if moved == nil {
			moved = os.Rename(dir, filepath.Join(aside, filepath.Base(dir)+"."+string(newUID())))
		}
		b.options.Logger.Error().Err(err).AnErr("set aside", moved).Msg("a pod is unreadable and lost")
	}
}
