package cluster

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const folderPrefix = "trainyard-cluster-"

// stateFolder makes a folder for one cluster. While this process lives, it
// holds a lock in it, so that others know what they may remove.
func stateFolder() (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp("", folderPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = os.Create(filepath.Join(dir, "lock")); err != nil {
		return "", nil, err
	}
	return dir, lock, unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// sweep removes folders of tests that were killed: their processes have ended
// with them, and nobody holds their lock. It takes its time: a folder that was
// just made has no lock yet.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, dir := range left {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
