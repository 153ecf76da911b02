package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// Files of a pod's directory.
const (
	podFile      = "pod.json"
	podCopy      = "pod.copy.json"
	objectsFile  = "objects.json"
	admittedFile = "admitted.json"
	lockFile     = "lock"
	shimFile     = "shim.json"
	shimLog      = "shim.log"
	statusFile   = "status.json"
	deleteFile   = "delete.json"
	releasedFile = "released"
	outcomeFile  = "outcome.json"
	logsDir      = "logs"
	workDir      = "work"
	volumesDir   = "volumes"
	messagesDir  = "messages"
	execDir      = "exec"
)

// errDamaged marks a file that is there but cannot be understood.
var errDamaged = errors.New("damaged")

// errScarce marks a start that is to be tried again.
var errScarce = errors.New("the machine has nothing left for it just now")

// scarce says whether an error is one of a machine that has nothing left just
// now (room on the disk, files, processes, memory): trying again later helps.
func scarce(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// writeDurable publishes v at path and returns once it would survive a loss of power.
func writeDurable(path string, v any) error {
	if err := write(path, v, true); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// write publishes v at path by rename: a reader sees the old content or the new.
func write(path string, v any, sync bool) error {
	crash.File(path, crash.Before)
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil && sync {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	crash.File(path, crash.Half)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	crash.File(path, crash.After)
	return nil
}

// read fills v from a file: fs.ErrNotExist when it is not there, errDamaged
// when it is no JSON of that shape.
func read(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("read %s: %w: %w", path, errDamaged, err)
	}
	return nil
}

// readOptional is read, but a file that is not there leaves v as it is.
func readOptional(path string, v any) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return read(path, v)
}

// syncDir makes renames within a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// discard removes a directory: at once from sight, then from the disk. A crash
// between the two leaves a hidden directory that New sweeps up.
func discard(path string, effect crash.Effect) error {
	crash.At(effect, crash.Before)
	gone, err := os.MkdirTemp(filepath.Dir(path), ".gone-*")
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := os.Rename(path, filepath.Join(gone, "d")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	crash.At(effect, crash.Half)
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	err = scrub(gone)
	crash.At(effect, crash.After)
	return err
}

// scrub deletes a tree, also one in which a program took away its own permissions.
func scrub(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}

// lock takes the lock of a file, or says that somebody else holds it (nil
// without an error). Closing the file gives it back; so does the end of the process.
func lock(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}
