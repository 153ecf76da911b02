//go:build linux

// Command init is the first process of a test node, in PID, mount, network, UTS
// and IPC namespaces of its own. It prepares the node's file system, and then
// starts, signals and reaps the node's programs as it is told on its standard
// input. When that input ends, because whoever started the node is done or
// dead, it exits, and the kernel ends everything else that runs on the node.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// setup is what the node's file system and name shall be.
type setup struct {
	Hostname string      `json:"hostname"`
	Empty    []string    `json:"empty"` // directories that start empty, in memory
	Binds    [][2]string `json:"binds"` // source and target; a missing target is made
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
}

func serve() error {
	in := json.NewDecoder(os.Stdin)
	var s setup
	if err := in.Decode(&s); err != nil {
		return fmt.Errorf("read setup: %w", err)
	}
	if err := s.apply(); err != nil {
		return err
	}
	c := newChildren(json.NewEncoder(os.Stdout))
	go c.reap()
	c.send(reply{}) // ready
	for {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		c.handle(r)
	}
}

// apply mounts. What the host mounts later is seen here, what is mounted here
// never reaches the host; on the node itself mounts propagate, as the kubelet
// expects.
func (s setup) apply() error {
	if err := syscall.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	for _, flag := range []uintptr{syscall.MS_SLAVE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", flag|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("change propagation of mounts: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range s.Empty {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	for _, b := range s.Binds {
		if err := bind(b[0], b[1]); err != nil {
			return err
		}
	}
	return nil
}

func bind(source, target string) error {
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Clean(target), 0o755); err != nil {
			return fmt.Errorf("bind %s: %w", source, err)
		}
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}
