package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownNamespaces starts a process in namespaces of its own, and out of reach of
// the terminal's signals.
func ownNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
}

// listenIn listens in the network namespace of a process. The listener stays
// there; connections that its user opens do not.
func listenIn(pid int, address string) (net.Listener, error) {
	type result struct {
		net.Listener
		error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is in another namespace from here on, and ends with this goroutine
		// because it is never unlocked.
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			done <- result{error: err}
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{error: fmt.Errorf("enter network namespace: %w", err)}
			return
		}
		l, err := net.Listen("tcp", address)
		done <- result{l, err}
	}()
	r := <-done
	return r.Listener, r.error
}

// lockFile opens a file and locks it. Without wait, a file that somebody else
// holds is no error but nil. The lock ends with the file or the process.
func lockFile(name string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}

// superuser says whether the process may do all that a node needs.
func superuser() error {
	if os.Geteuid() != 0 {
		return errors.New("a node needs root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for name, c := range map[string]uint{"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN} {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			return fmt.Errorf("a node needs %s, which root does not have here", name)
		}
	}
	return nil
}
