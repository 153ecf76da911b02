package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages of Debian that bring what Go modules do not.
const packages = "apt-get install containerd containernetworking-plugins iptables iproute2 busybox-static"

// Needs says in a sentence why this machine cannot run a node; nil if it can.
func Needs() error {
	if err := superuser(); err != nil {
		return err
	}
	for _, program := range []string{"go", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a node needs %s: %s", program, packages)
		}
	}
	if _, err := pluginDir(); err != nil {
		return err
	}
	if _, err := os.Stat(busybox); err != nil {
		return fmt.Errorf("a node needs %s: %s", busybox, packages)
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("a node needs /proc: %w", err)
	}
	if !strings.Contains(string(filesystems), "\toverlay\n") {
		return errors.New("a node needs overlayfs, which this kernel does not have")
	}
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		return errors.New("a node needs /dev/kmsg, from which the kubelet learns of memory that ran out")
	}
	return cgroupsWritable()
}

func cgroupsWritable() error {
	hierarchies, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		probe, err := os.MkdirTemp(h, cgroupPrefix+"probe-")
		if err != nil {
			return fmt.Errorf("a node needs to make cgroups: %w", err)
		}
		if err := os.Remove(probe); err != nil {
			return fmt.Errorf("a node needs to remove cgroups: %w", err)
		}
	}
	return nil
}

// pluginDir is where the CNI plugins lie: Debian's place, or everybody else's.
func pluginDir() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("a node needs the CNI plugins: %s", packages)
}
