package local

import (
	"time"

	"golang.org/x/sys/unix"
)

// sessionsFile lists the first process of each container that was started:
// each leads a session of its own.
const sessionsFile = "sessions.json"

// over says whether nothing is left of the session that a process leads, or led.
func (p process) over() bool {
	return !p.alive() && unix.Kill(-p.PID, 0) != nil && len(session(p.PID)) == 0
}

// killSessions kills the sessions of containers whose shim is gone. A leader's
// number cannot be given to another process while its session lives, so a
// process of that number which is not the leader means that the session is over.
// It says whether none was left when the time was over.
func killSessions(leaders []process, within time.Duration) bool {
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		for _, p := range leaders {
			if p.PID <= 1 || p.Boot != bootID() {
				continue
			}
			if start, there := startOf(p.PID); there && start != p.Start {
				continue
			}
			_ = unix.Kill(-p.PID, unix.SIGKILL)
			for _, pid := range session(p.PID) {
				left++
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if left == 0 || time.Now().After(end) {
			return left == 0
		}
	}
}
