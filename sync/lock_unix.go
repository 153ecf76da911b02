//go:build unix

package gitsync

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// lockDir takes the lock of a state directory. The kernel gives it back when
// the process ends, however it ends; the file stays.
func lockDir(dir, file string) (*os.File, error) {
	crash.At(crash.StateLock, crash.Before)
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		var text [32]byte
		n, _ := f.ReadAt(text[:], 0)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		return nil, errors.Join(&LockedError{Dir: dir, PID: pid}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
	}
	crash.At(crash.StateLock, crash.Half)
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	crash.At(crash.StateLock, crash.After)
	return f, nil
}
