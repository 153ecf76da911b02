package e2e

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grace is how long a daemon that is asked to end may take.
const grace = 10 * time.Second

// processFaults are those of the program's own processes.
func processFaults() []outside {
	return []outside{
		{name: "the daemon is asked to end in the middle of everything", ends: true, begin: func(y *yard) func() {
			took := y.stop()
			y.say("the daemon took %.1fs to end", took.Seconds())
			assert.Less(y.t, took, grace)
			return func() { y.serve() }
		}},
		{name: "the daemon is asked to end while the Git server is silent", ends: true, begin: func(y *yard) func() {
			over := make(chan struct{})
			end := y.server.spoiled(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
				select {
				case <-over:
				case <-r.Context().Done():
				}
			})
			y.open("meanwhile") // there is something to push
			pause(y.t.Context(), y.short(0, 500*time.Millisecond))
			took := y.stop()
			y.say("the daemon took %.1fs to end", took.Seconds())
			assert.Less(y.t, took, grace)
			return func() {
				end()
				close(over)
				y.serve()
			}
		}},
		{name: "shims are killed", harm: harm{loses: true}, begin: func(y *yard) func() {
			for _, pid := range y.shims() {
				killed(y.t, pid)
			}
			return func() {}
		}},
		{name: "the daemon and its shims are killed", ends: true, harm: harm{loses: true}, begin: func(y *yard) func() {
			y.d.kill()
			for _, pid := range y.shims() {
				killed(y.t, pid)
			}
			return func() { y.serve() }
		}},
	}
}

// stateFaults are those of the state directory.
func stateFaults() []outside {
	return []outside{
		{name: "the state directory is deleted under a running daemon", ends: true, harm: harm{loses: true}, begin: func(y *yard) func() {
			y.removeState()
			return func() {}
		}},
		{name: "the state directory is deleted while no daemon runs", ends: true, harm: harm{loses: true}, begin: func(y *yard) func() {
			y.stopRecorded()
			y.removeState()
			return func() { y.serve() }
		}},
		{name: "the state directory is deleted between two daemons", ends: true, harm: harm{loses: true}, begin: func(y *yard) func() {
			y.stopRecorded()
			y.removeState()
			y.serve()
			return func() {}
		}},
		{name: "files of the state directory are truncated under a running daemon", ends: true, harm: harm{loses: true}, begin: func(y *yard) func() {
			y.truncate()
			return func() {}
		}},
		{name: "files of the state directory are truncated while no daemon runs", ends: true, harm: harm{loses: true}, begin: func(y *yard) func() {
			y.stop()
			y.truncate()
			return func() { y.serve() }
		}},
	}
}

// killed kills a process, if it is there.
func killed(t testing.TB, pid int) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		require.ErrorIs(t, err, syscall.ESRCH)
	}
}

// stopRecorded stops the daemon when the branch knows of every attempt that there
// is: what is neither there nor in the state directory nobody can know.
func (y *yard) stopRecorded() {
	for {
		y.eventually("every attempt is recorded", y.recorded)
		if y.stop(); y.recorded() {
			return
		}
		y.serve()
	}
}

func (y *yard) recorded() bool {
	known := map[string]bool{}
	for _, j := range y.jobs {
		rec, _ := y.record("default/" + j.name)
		for _, a := range attemptsOf(&rec) {
			known[a.Pod] = a.UID != "" // before, it may not have been created
		}
	}
	pods, err := filepath.Glob(filepath.Join(y.state, "local", "pods", "*", "*"))
	require.NoError(y.t, err)
	return !slices.ContainsFunc(pods, func(dir string) bool { return !known[filepath.Base(dir)] })
}

// removeState deletes the state directory, whatever is written into it meanwhile.
func (y *yard) removeState() {
	y.eventually("the state directory is gone", func() bool { return os.RemoveAll(y.state) == nil })
	y.say("the state directory is deleted")
}

// truncate cuts a third of the program's files at random bytes. What jobs
// write themselves, their logs too, is nobody's to restore.
func (y *yard) truncate() {
	var files []string
	_ = filepath.WalkDir(y.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && (d.Name() == "logs" || d.Name() == "work") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			files = append(files, path)
		}
		return nil
	})
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Size() == 0 || y.rng.IntN(3) > 0 {
			continue
		}
		at := y.rng.Int64N(info.Size())
		if os.Truncate(file, at) == nil {
			y.say("truncated at byte %d of %d: %s", at, info.Size(), strings.TrimPrefix(file, y.state))
		}
	}
}
