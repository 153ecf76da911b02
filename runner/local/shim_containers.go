package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// kind of a container within its pod.
type kind int

const (
	initContainer kind = iota
	sidecarContainer
	mainContainer
)

// step of a container's life.
type step int

const (
	idle   step = iota // to be started at nextStart
	active             // its command runs
	ending             // its command has ended, what it started may not have
	over               // for good
)

type container struct {
	spec   *corev1.Container
	kind   kind
	step   step
	status corev1.ContainerStatus
	begun  bool // was started once

	pid       int
	startedAt time.Time
	environ   []string
	exit      corev1.ContainerStateTerminated
	log       *logFile
	copied    chan struct{} // closed when the output has ended

	failures  int // restarts in a row
	nextStart time.Time

	hook      int       // process of the pre-stop hook
	hookUntil time.Time // set once the hook was begun
	told      bool      // SIGTERM was sent
}

// code is the exit code of a container that is over.
func (c *container) code() int32 { return c.exit.ExitCode }

func (s *shim) addContainers() {
	add := func(list []corev1.Container, k kind) {
		for i := range list {
			spec := &list[i]
			c := &container{spec: spec, kind: k, log: &logFile{path: logPath(".", spec.Name), limit: s.order.LogLimit}}
			if k == initContainer && sidecar(spec) {
				c.kind = sidecarContainer
			}
			c.status = corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
			s.containers = append(s.containers, c)
		}
	}
	add(s.pod.Spec.InitContainers, initContainer)
	add(s.pod.Spec.Containers, mainContainer)
}

// start starts a container's command, or ends the container as one that cannot run.
func (s *shim) start(c *container, now time.Time) {
	spec, err := s.prepare(c)
	if scarce(err) {
		c.postpone(now, err)
		return
	}
	if err != nil {
		s.refuse("CreateContainerConfigError", err)
		return
	}
	crash.At(crash.ContainerStart, crash.Before)
	from, to, err := os.Pipe()
	var note string
	if err == nil {
		c.pid, note, err = s.launch(c, spec, c.environ, to)
		to.Close()
	}
	if note != "" {
		condition(&s.status, "VolumesNotMounted", true, "NoPrivateMounts", note)
	}
	if err != nil {
		from.Close()
	}
	if scarce(err) {
		c.postpone(now, err)
		return
	}
	c.begun, c.startedAt, c.told, c.hook, c.hookUntil = true, now, false, 0, time.Time{}
	c.exit = corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(now)}
	if err != nil {
		c.exit.ExitCode, c.exit.Reason, c.exit.Message = 128, "ContainerCannotRun", err.Error()
		var failure *startFailure
		if errors.As(err, &failure) {
			c.exit.ExitCode = failure.code
		}
		c.exit.FinishedAt = metav1.NewTime(now)
		s.ended(c, now)
		return
	}
	crash.At(crash.ContainerStart, crash.Half)
	c.copied = make(chan struct{})
	go func() { // ends with the last process that holds the pipe, all of which are killed
		defer close(c.copied)
		defer from.Close()
		_, _ = io.Copy(c.log, from)
	}()
	c.step = active
	c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	s.sessions = append(slices.DeleteFunc(s.sessions, process.over), thisProcess(c.pid))
	_ = write(sessionsFile, s.sessions, false)
	crash.At(crash.ContainerStart, crash.After)
}

// postpone puts a start off that the machine has nothing left for: a full disk
// is no fault of the job.
func (c *container) postpone(now time.Time, err error) {
	c.nextStart = now.Add(shimLook)
	c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: err.Error()}}
}

// prepare works out what to run, where, and with what around it.
func (s *shim) prepare(c *container) (stageSpec, error) {
	var err error
	if c.environ, err = s.environment(c.spec); err != nil {
		return stageSpec{}, err
	}
	if err := os.WriteFile(filepath.Join(messagesDir, c.spec.Name), nil, 0o600); err != nil {
		return stageSpec{}, err
	}
	mounts, err := s.mounts(c.spec, c.environ)
	if err != nil {
		return stageSpec{}, err
	}
	spec := stageSpec{Mounts: mounts, Dir: c.spec.WorkingDir}
	if spec.Dir == "" {
		spec.Dir = filepath.Join(s.dir, workDir)
	}
	for _, arg := range append(append([]string{}, c.spec.Command...), c.spec.Args...) {
		spec.Argv = append(spec.Argv, expand(arg, func(n string) (string, bool) { return lookup(c.environ, n) }))
	}
	return spec, nil
}

// reap takes note of processes that have ended.
func (s *shim) reap(now time.Time) {
	oom := oomKills()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			break
		}
		for _, c := range s.containers {
			if pid == c.hook {
				c.hook = 0
			}
			if pid != c.pid || c.step != active {
				continue
			}
			c.step = ending
			c.exit.FinishedAt = metav1.NewTime(now)
			c.exit.ExitCode, c.exit.Reason = int32(ws.ExitStatus()), "Completed"
			if ws.Signaled() {
				c.exit.Signal = int32(ws.Signal())
				c.exit.ExitCode = 128 + c.exit.Signal
			}
			if c.exit.ExitCode != 0 {
				c.exit.Reason = "Error"
			}
			if ws.Signaled() && ws.Signal() == unix.SIGKILL && s.stop == nil && oom > s.oomKills {
				c.exit.Reason = "OOMKilled"
			}
			s.collect(c, now)
		}
	}
	s.oomKills = oom
}

// collect ends a container whose command has ended: what it started and left
// behind goes with it. While the pod is being stopped these have the grace
// period too, as a shell that was told to end dies before its children.
func (s *shim) collect(c *container, now time.Time) {
	crash.At(crash.ContainerEnd, crash.Before)
	if s.stop != nil && now.Before(s.stop.killAt) && unix.Kill(-c.pid, 0) == nil {
		return
	}
	_ = unix.Kill(-c.pid, unix.SIGKILL)
	if !killMarked(markContainer+"="+string(s.pod.UID)+"/"+c.spec.Name, 200*time.Millisecond) {
		return // looked at again with the next step
	}
	crash.At(crash.ContainerEnd, crash.Half)
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	select {
	case <-c.copied:
	case <-wait.C: // a process that hid its environment holds the pipe: finish kills it
	}
	_ = c.log.Close()
	crash.At(crash.ContainerEnd, crash.After)
	c.exit.Message = s.message(c)
	s.ended(c, now)
}

// message is what the container left to say about its end.
func (s *shim) message(c *container) string {
	text := tailOf(filepath.Join(messagesDir, c.spec.Name), 1<<20)
	if len(text) > 4096 {
		text = text[:4096]
	}
	if len(text) == 0 && c.exit.ExitCode != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		text = tailOf(logPath(".", c.spec.Name), 2048)
		lines := strings.SplitAfter(string(text), "\n")
		text = []byte(strings.Join(lines[max(0, len(lines)-81):], ""))
	}
	return strings.ToValidUTF8(string(text), "�")
}

// ended decides whether the container is started again.
func (s *shim) ended(c *container, now time.Time) {
	exit := c.exit
	if !s.again(c) {
		c.step = over
		c.status.State = corev1.ContainerState{Terminated: &exit}
		return
	}
	c.step, c.nextStart = idle, now
	if now.Sub(c.startedAt) > 2*s.order.BackoffMax {
		c.failures = 0
	}
	if c.failures > 0 {
		c.nextStart = now.Add(s.backoff(c.failures))
	}
	c.failures++
	c.status.RestartCount++
	c.status.LastTerminationState = corev1.ContainerState{Terminated: &exit}
	c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "restarted at " + c.nextStart.UTC().Format(time.RFC3339)}}
}

// backoff is the wait before the restart after so many in a row.
func (s *shim) backoff(restarts int) time.Duration {
	wait := s.order.Backoff
	for range restarts - 1 {
		if wait >= s.order.BackoffMax {
			break
		}
		wait *= 2
	}
	return min(wait, s.order.BackoffMax)
}

func (s *shim) again(c *container) bool {
	if s.stop != nil {
		return false
	}
	policy := s.pod.Spec.RestartPolicy
	if c.spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.spec.RestartPolicy)
	}
	switch {
	case c.kind == sidecarContainer:
		return true
	case policy == corev1.RestartPolicyNever:
		return false
	case policy == corev1.RestartPolicyAlways && c.kind == mainContainer:
		return true
	}
	return c.exit.ExitCode != 0
}

// terminate asks a container to end, its pre-stop hook first, and kills it when time is up.
func (s *shim) terminate(c *container, now time.Time, kill bool) {
	if kill {
		_ = unix.Kill(-c.pid, unix.SIGKILL)
		return
	}
	if c.hookUntil.IsZero() {
		c.hookUntil = s.preStop(c, now)
	}
	if c.told || c.hook != 0 && now.Before(c.hookUntil) || c.hook == 0 && now.Before(c.hookUntil) && s.sleeps(c) {
		return
	}
	c.told = true
	_ = unix.Kill(-c.pid, unix.SIGTERM)
}

// preStop begins the hook and says until when it may take.
func (s *shim) preStop(c *container, now time.Time) time.Time {
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		return now
	}
	switch h := c.spec.Lifecycle.PreStop; {
	case h.Sleep != nil:
		return now.Add(seconds(h.Sleep.Seconds))
	case h.Exec != nil && len(h.Exec.Command) > 0:
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return now
		}
		defer null.Close()
		if pid, err := direct(stageSpec{Argv: h.Exec.Command, Dir: filepath.Join(s.dir, workDir)}, c.environ, null); err == nil {
			c.hook = pid
		}
		return s.stop.killAt
	}
	return now
}

func (s *shim) sleeps(c *container) bool {
	return c.spec.Lifecycle != nil && c.spec.Lifecycle.PreStop != nil && c.spec.Lifecycle.PreStop.Sleep != nil
}
