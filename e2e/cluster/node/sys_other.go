//go:build !linux

package node

import (
	"errors"
	"net"
	"os"
	"syscall"
)

var errLinux = errors.New("a node needs Linux")

func ownNamespaces() *syscall.SysProcAttr { return nil }

func listenIn(int, string) (net.Listener, error) { return nil, errLinux }

func lockFile(string, bool) (*os.File, error) { return nil, errLinux }

func superuser() error { return errLinux }
