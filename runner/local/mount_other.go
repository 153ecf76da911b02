//go:build !linux

package local

import (
	"errors"

	"golang.org/x/sys/unix"
)

// namespaces: this system has no private mounts.
func namespaces() []*unix.SysProcAttr { return nil }

func becomeContainer(stageSpec, []string) error {
	return errors.New("this system has no private mounts")
}
