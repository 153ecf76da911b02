package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// shimLook is how often a shim looks for requests that no signal told it of.
const shimLook = time.Second

// shim holds one pod. One goroutine does everything but copy output: starts,
// reaps, decides; its thread lives as long as the process, which the kernel
// needs to know when the parent of a container dies.
type shim struct {
	source
	identity os.FileInfo // of the directory, which is the working directory too
	held     *os.File    // the pod's lock

	containers []*container
	sessions   []process
	status     corev1.PodStatus
	published  []byte
	signals    chan os.Signal
	expires    time.Time // activeDeadlineSeconds
	oomKills   int64

	stop     *stop
	asked    request // what of delete.json was seen
	shutdown bool
}

// stop is why a pod has to end before its time, and how long it has for it.
type stop struct {
	reason, message string
	killAt          time.Time
	disruption      bool // the machine's fault
	failed          bool // whatever the exit codes say
	vanished        bool // there is nowhere left to write
}

// ShimMain is the whole work of the hidden command "shim PATH": PATH is a pod's
// directory, or a file that says which container to become.
func ShimMain(path string) int {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return runStage(path)
	}
	runtime.LockOSThread()
	s, err := openShim(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "trainyard: shim:", err)
		return 2
	}
	if s == nil {
		return 0
	}
	defer s.held.Close()
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "trainyard: shim:", err)
		return 1
	}
	return 0
}

// openShim takes a pod that nobody has held before; nil when there is nothing to do.
func openShim(dir string) (*shim, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Files are written from within: never into another directory of that name.
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	s := &shim{source: source{dir: dir, pod: &corev1.Pod{}, order: &order{}, base: baseEnvironment(os.Environ())}}
	if s.identity, err = os.Stat("."); err != nil {
		return nil, err
	}
	if s.held, err = waitLock(lockFile, 5*time.Second); err != nil || s.held == nil {
		return nil, err
	}
	for _, file := range []string{outcomeFile, shimFile, deleteFile} {
		if _, err := os.Lstat(file); err == nil {
			return nil, s.held.Close()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err // whether the pod was started before is not known
		}
	}
	if !exists(admittedFile) {
		return nil, s.held.Close()
	}
	err = read(podFile, s.pod)
	if errors.Is(err, errDamaged) {
		err = read(podCopy, s.pod)
	}
	if err == nil {
		err = read(admittedFile, s.order)
	}
	if err != nil {
		return nil, err
	}
	if err := readOptional(objectsFile, &s.maps); err != nil {
		return nil, err
	}
	s.addContainers()
	return s, nil
}

// waitLock waits for somebody who looks for a moment only; another shim holds it for good.
func waitLock(path string, within time.Duration) (*os.File, error) {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		held, err := lock(path, false)
		if err != nil || held != nil || time.Now().After(end) || exists(shimFile) {
			return held, err
		}
	}
}

// run holds the pod to its end.
func (s *shim) run() error {
	adoptOrphans()
	s.signals = make(chan os.Signal, 16)
	signal.Notify(s.signals, unix.SIGCHLD, unix.SIGUSR1, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(s.signals)
	// From here on nobody else will ever start this pod.
	crash.At(crash.ShimBegin, crash.Before)
	state := shimState{process: thisProcess(os.Getpid()), UID: string(s.pod.UID), At: time.Now()}
	if err := writeDurable(shimFile, state); err != nil {
		return err
	}
	s.begin()
	crash.At(crash.ShimBegin, crash.After)
	for {
		now := time.Now()
		s.reap(now)
		s.look(now)
		done := s.ready() && s.step(now)
		s.publish()
		if done {
			break
		}
		s.wait()
	}
	return s.finish()
}

// begin fills in what holds for the whole pod.
func (s *shim) begin() {
	now := metav1.Now()
	s.oomKills = oomKills()
	s.status = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &now, HostIP: loopback, PodIP: loopback,
		HostIPs: []corev1.HostIP{{IP: loopback}}, PodIPs: []corev1.PodIP{{IP: loopback}}}
	condition(&s.status, corev1.PodScheduled, true, "", "")
	if d := s.pod.Spec.ActiveDeadlineSeconds; d != nil {
		s.expires = time.Now().Add(seconds(*d))
	}
}

// ready says whether the pod's volumes are there: a full disk may delay them.
func (s *shim) ready() bool {
	if s.volumes != nil || s.stop != nil {
		return true
	}
	volumes, err := s.materialize()
	if scarce(err) {
		_ = discardMemory(s.pod.UID)
		_ = scrub(volumesDir)
		_ = os.Mkdir(volumesDir, 0o700)
		for _, c := range s.containers {
			c.postpone(time.Now(), err)
		}
		return false
	}
	if s.volumes = volumes; err != nil {
		s.refuse("FailedMount", err)
	}
	return true
}

// refuse ends a pod that cannot be set up; trying again would change nothing.
func (s *shim) refuse(reason string, err error) {
	if s.stop == nil {
		s.stop = &stop{reason: reason, message: err.Error(), killAt: time.Now(), failed: true}
	}
	for _, c := range s.containers {
		if c.step == idle {
			c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}}
		}
	}
}

// wait until something may have changed: a signal, a time that was set, or
// the next look.
func (s *shim) wait() {
	d := shimLook
	for _, at := range s.times() {
		if !at.IsZero() {
			d = min(d, time.Until(at))
		}
	}
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case sig := <-s.signals:
		s.shutdown = s.shutdown || sig == unix.SIGTERM || sig == unix.SIGINT
	case <-t.C:
	}
}

// times are when something is due.
func (s *shim) times() []time.Time {
	var at []time.Time
	if s.stop != nil {
		if now := time.Now(); s.stop.killAt.After(now) {
			at = append(at, s.stop.killAt)
		}
	} else {
		at = append(at, s.expires)
	}
	for _, c := range s.containers {
		switch {
		case c.step == ending:
			at = append(at, time.Now().Add(20*time.Millisecond))
		case c.step == idle:
			at = append(at, c.nextStart)
		case !c.hookUntil.IsZero() && !c.told:
			at = append(at, c.hookUntil)
		}
	}
	return at
}

// look for reasons to stop.
func (s *shim) look(now time.Time) {
	if info, err := os.Stat(s.dir); (err == nil && !os.SameFile(info, s.identity)) || errors.Is(err, fs.ErrNotExist) {
		s.stop = &stop{killAt: now, failed: true, vanished: true}
		return
	}
	if r, err := readDeletion(&entry{dir: ".", pod: s.pod}); err == nil && r != nil && *r != s.asked {
		s.asked = *r
		// Of the wall clock only the time that is left counts, and never more than was granted.
		left := min(max(0, r.deadline().Sub(now)), seconds(r.Grace))
		s.end(stop{killAt: now.Add(left)})
	}
	own := now.Add(seconds(grace(s.pod, nil)))
	if s.stop == nil && !s.expires.IsZero() && !now.Before(s.expires) {
		s.end(stop{killAt: own, failed: true, reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"})
	}
	if s.stop == nil && s.shutdown {
		s.end(stop{killAt: own, failed: true, disruption: true, reason: "Terminated", message: "the machine, or somebody on it, ended the pod's shim"})
	}
}

// end stops the pod, or shortens the time that it has left.
func (s *shim) end(why stop) {
	if s.stop == nil {
		s.stop = &why
	} else if why.killAt.Before(s.stop.killAt) {
		s.stop.killAt = why.killAt
	}
}
