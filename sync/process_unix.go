//go:build unix

package gitsync

import (
	"os/exec"
	"syscall"
)

// killGroup makes the end of cmd's context end its children too: git's
// services leave the work to others.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
