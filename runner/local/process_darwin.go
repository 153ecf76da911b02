package local

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// startOf reads when a process started, to the microsecond.
func startOf(pid int) (string, bool) {
	const zombie = 5 // SZOMB
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie {
		return "", false
	}
	t := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", t.Sec, t.Usec), true
}

// signal sends a signal to that very process.
func (p process) signal(sig unix.Signal) error {
	if !p.alive() {
		return unix.ESRCH
	}
	return unix.Kill(p.PID, sig)
}

// killMarked cannot read the environment of others here: process groups have
// to do. See killSessions.
func killMarked(string, time.Duration) bool { return true }

// killChildren: orphans are not given to this process here.
func killChildren() bool { return true }

func adoptOrphans() {}

func oomKills() int64 { return 0 }

// memory of the machine, in bytes.
func memory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// own is how a container's process is started: in a session of its own.
func own() *unix.SysProcAttr { return &unix.SysProcAttr{Setsid: true} }

// selfExecutable is this program.
func selfExecutable() (string, error) { return os.Executable() }

// session is not told here: the process group of its leader has to do.
func session(int) []int { return nil }

// strays cannot be found here: shims notice within a second that their
// directory is gone.
func strays(string) []process { return nil }
