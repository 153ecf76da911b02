package local

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// startOf reads when a process started, in clock ticks since boot.
func startOf(pid int) (string, bool) {
	f := statOf(pid)
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return "", false
	}
	return f[19], true
}

// statOf are the fields of /proc/PID/stat from the third (state) on: the second
// is a name that may hold anything.
func statOf(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	if i := bytes.LastIndexByte(text, ')'); i >= 0 {
		return strings.Fields(string(text[i+1:]))
	}
	return nil
}

// signal sends a signal to that very process, through a handle that cannot
// come to mean another one between the look and the signal.
func (p process) signal(sig unix.Signal) error {
	if p.PID <= 1 {
		return unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		if err == unix.ENOSYS && p.alive() {
			return unix.Kill(p.PID, sig)
		}
		return err
	}
	defer unix.Close(fd)
	if !p.alive() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// marked are the live processes whose environment holds exactly this variable.
// An error says that they cannot be looked for just now: nothing is known.
func marked(variable string) ([]int, error) {
	want := append([]byte{0}, append([]byte(variable), 0)...)
	var found []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self || pid <= 1 {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if scarce(err) {
			return nil, err
		}
		if err != nil || !bytes.Contains(append(append([]byte{0}, text...), 0), want) {
			continue
		}
		if _, live := startOf(pid); live {
			found = append(found, pid)
		}
	}
	return found, nil
}

// killMarked kills every process that carries the variable, and those that they
// start meanwhile, and says whether none was left when the time was over.
func killMarked(variable string, within time.Duration) bool {
	for end := time.Now().Add(within); ; {
		left, err := marked(variable)
		if err == nil && len(left) == 0 {
			return true
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// killChildren kills what is a child of this process by now: what was left
// behind by its children, whatever became of its session and environment, and
// what that leaves behind. It says whether none was left.
func killChildren() bool {
	end, self := time.Now().Add(time.Second), strconv.Itoa(os.Getpid())
	for {
		left := processes(func(f []string) bool { return f[1] == self })
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
				break
			}
		}
		if len(left) == 0 {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// adoptOrphans makes this process the parent of what its children leave behind.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// oomKills counts the processes that the kernel has killed for want of memory.
func oomKills() int64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			v, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			return v
		}
	}
	return 0
}

// memory of the machine, in bytes.
func memory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// own is how a container's process is started: in a session of its own, and
// dying with the shim.
func own() *unix.SysProcAttr {
	return &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
}

// selfExecutable is this program, even when its file was replaced since.
func selfExecutable() (string, error) { return "/proc/self/exe", nil }

// session lists the processes of a session.
func session(id int) []int {
	want := strconv.Itoa(id)
	return processes(func(f []string) bool { return f[3] == want })
}

// processes are the live ones that match by the fields of statOf: state, parent, group, session.
func processes(match func([]string) bool) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if f := statOf(pid); len(f) > 3 && f[0] != "Z" && f[0] != "X" && match(f) {
				found = append(found, pid)
			}
		}
	}
	return found
}

// strays are the shims of pods below a directory whose own directory is gone:
// they were started in it, and it was deleted.
func strays(root string) []process {
	var found []process
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if err != nil || len(args) < 2 || args[0] != shimName || !strings.HasPrefix(args[len(args)-1], root+"/") {
			continue
		}
		p := thisProcess(pid)
		cwd, err := os.Readlink("/proc/" + e.Name() + "/cwd")
		if err == nil && strings.HasSuffix(cwd, " (deleted)") && p.alive() {
			found = append(found, p)
		}
	}
	return found
}
