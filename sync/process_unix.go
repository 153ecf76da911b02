//go:build unix

package gitsync

import (
	"os/exec"
	"syscall"
)

// endGroup makes the end of cmd's context end its children too: git's services
// leave the work to others. They are asked, so that git takes its locks away:
// one that is left in a repository keeps everybody from pushing.
func endGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
