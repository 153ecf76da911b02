package local

import (
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// strayTime is how long a shim may take to end whose directory was deleted.
const strayTime = 3 * time.Second

// vanished takes leave of pods whose directories somebody has deleted. Nobody
// can tell how they would have ended; what runs of them is ended before
// anything takes their place, and then their jobs are looked at.
func (b *Backend) vanished() {
	gone := map[string]*entry{}
	b.mu.Lock()
	for _, known := range []map[string]*entry{b.pods, b.dropped} {
		for dir, e := range known {
			if !exists(dir) {
				gone[dir] = e
			}
		}
	}
	b.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	b.endStrays()
	b.mu.Lock()
	defer b.mu.Unlock()
	for dir, e := range gone {
		if b.pods[dir] != e && b.dropped[dir] != e {
			continue // removed as it should be, meanwhile
		}
		b.options.Logger.Error().Str("pod", e.pod.Name).Msg("the directory of a pod is gone: nobody knows how it has ended")
		delete(b.pods, dir)
		delete(b.dropped, dir)
		delete(b.waiting, dir)
		b.changes.Tell(keyOf(e.pod))
	}
}

// endStrays waits until no shim is left that holds a directory which was
// deleted. They end by themselves when they look, which this hastens.
func (b *Backend) endStrays() {
	end := time.Now().Add(strayTime)
	for {
		left := strays(filepath.Join(b.dir, "pods"))
		if len(left) == 0 {
			return
		}
		how := unix.SIGUSR1
		if time.Now().After(end) {
			how = unix.SIGKILL // and with it, by the kernel, what it started
		}
		for _, p := range left {
			_ = p.signal(how)
		}
		if how == unix.SIGKILL {
			b.options.Logger.Warn().Int("shims", len(left)).Msg("shims whose pods were deleted did not end: they are killed")
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
