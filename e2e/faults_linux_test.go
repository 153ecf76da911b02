package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// machineFaults are those of the machine.
func machineFaults() []outside {
	return []outside{
		{name: "the daemon has no file descriptor left", begin: noDescriptors},
		{name: "10,000 connections to the daemon's own listener", flags: []string{"--listen", "127.0.0.1:0"}, begin: connections},
		{name: "the disk of the state directory is full", needs: mounts, prepare: func(y *yard) {
			require.NoError(y.t, os.Mkdir(y.state, 0o700))
			y.mount(y.state)
		}, begin: func(y *yard) func() { return y.fill(y.state) }},
		{name: "the disk of the Git server is full", needs: mounts, deaf: true, prepare: func(y *yard) {
			moved := y.remote + ".moved"
			require.NoError(y.t, os.Rename(y.remote, moved))
			require.NoError(y.t, os.Mkdir(y.remote, 0o755))
			y.mount(y.remote)
			y.git("", "clone", "-q", "--mirror", moved, y.remote)
			for _, option := range []string{"http.receivepack=true", "gc.auto=0", "receive.autogc=false"} {
				key, value, _ := strings.Cut(option, "=")
				y.git(y.remote, "config", key, value)
			}
		}, begin: func(y *yard) func() { return y.fill(y.remote) }},
		{name: "numbers of killed processes are given to others", needs: numbers, ends: true, harm: harm{loses: true}, begin: reuse},
	}
}

// noDescriptors allows a daemon no more files than it has open, but for what it
// closes and opens.
func noDescriptors(y *yard) func() {
	pid := y.d.cmd.Process.Pid
	var old unix.Rlimit
	require.NoError(y.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old))
	require.NoError(y.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3 + y.rng.Uint64N(14), Max: old.Max}, nil))
	return func() { require.NoError(y.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)) }
}

// connections opens as many as the daemon may have files, and more.
func connections(y *yard) func() {
	_, rest, ok := strings.Cut(y.d.out.String(), "listening on http://")
	require.True(y.t, ok)
	address := strings.Fields(rest)[0]
	require.NoError(y.t, unix.Prlimit(y.d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 10_000, Max: 10_000}, nil))
	var open []net.Conn
	dialer := net.Dialer{Timeout: 100 * time.Millisecond}
	for until := time.Now().Add(4 * time.Second); len(open) < 10_000 && time.Now().Before(until); {
		c, err := dialer.Dial("tcp", address)
		if err != nil {
			break // no more are taken
		}
		open = append(open, c)
	}
	y.say("%d connections are open", len(open))
	return func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
}

// mounts says why nothing can be mounted here.
func mounts(t testing.TB) string {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		return "nothing can be mounted: " + err.Error()
	}
	require.NoError(t, unix.Unmount(dir, 0))
	return ""
}

// mount puts a small disk at a directory.
func (y *yard) mount(dir string) {
	require.NoError(y.t, unix.Mount("none", dir, "tmpfs", 0, "size=24m"))
	y.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// fill leaves no byte of a disk.
func (y *yard) fill(dir string) func() {
	file := filepath.Join(dir, "filler")
	f, err := os.Create(file)
	require.NoError(y.t, err)
	defer f.Close()
	for _, size := range []int{1 << 16, 1 << 12, 1} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
	}
	require.ErrorIs(y.t, err, unix.ENOSPC)
	return func() { require.NoError(y.t, os.Remove(file)) }
}

const lastPID = "/proc/sys/kernel/ns_last_pid"

// numbers says why the number of the next process cannot be chosen here.
func numbers(testing.TB) string {
	text, err := os.ReadFile(lastPID)
	if err == nil {
		err = os.WriteFile(lastPID, text, 0o644)
	}
	if err != nil {
		return "the number of the next process cannot be chosen: " + err.Error()
	}
	return ""
}

// reuse kills the daemon and its shims, and starts strangers by their numbers.
func reuse(y *yard) func() {
	y.d.kill()
	pids := y.shims()
	for _, pid := range pids {
		killed(y.t, pid)
	}
	for _, pid := range pids { // a number is free when its last process has been waited for
		y.eventually("a shim is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
	var strangers []*exec.Cmd
	for _, pid := range pids {
		if s := stranger(pid); s != nil {
			strangers = append(strangers, s)
		}
	}
	require.NotEmpty(y.t, strangers, "no number of %v was given again", pids)
	y.say("%d of %d numbers of shims belong to others", len(strangers), len(pids))
	y.t.Cleanup(func() {
		for _, s := range strangers {
			assert.NoError(y.t, syscall.Kill(s.Process.Pid, 0))
			state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Pid))
			assert.NotContains(y.t, string(state), "zombie", "somebody else's process was killed")
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	})
	return func() { y.serve() }
}

// stranger is a process with a number of which none is; nil when others are
// faster too often.
func stranger(pid int) *exec.Cmd {
	for range 200 {
		cmd := exec.Command("sleep", "1000")
		_ = os.WriteFile(lastPID, []byte(strconv.Itoa(pid-1)), 0o644)
		if cmd.Start() != nil {
			return nil
		}
		if cmd.Process.Pid == pid {
			return cmd
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return nil
}
