package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock of a machine cannot be moved under one process of it, and a Go
// program asks the kernel in a way that no library can come between. So the
// program is built once more from the same source, with a standard library in
// which time.Now adds what a file beside the program says. The monotonic clock
// goes on as it is, as it does on a machine whose clock is set.
const movedClock = `package time

import "syscall"

// moved is how many seconds the clock is wrong by.
func moved() (n int64) {
	var path [4096]byte
	end, err := syscall.Readlink("/proc/self/exe", path[:])
	if err != nil {
		return 0
	}
	fd, err := syscall.Open(string(path[:end])+".clock", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	var text [32]byte
	end, _ = syscall.Read(fd, text[:])
	for _, c := range text[:max(end, 0)] {
		if c >= '0' && c <= '9' {
			n = 10*n + int64(c-'0')
		}
	}
	if end > 0 && text[0] == '-' {
		n = -n
	}
	return n
}
`

// withClock builds the program whose clock can be moved.
var withClock = sync.OnceValues(func() (program string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	lib := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(lib, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed := strings.Replace(string(source), now, now+"\tsec += moved()\n", 1)
	if changed == string(source) {
		return "", os.ErrInvalid // this version of Go reads the clock in another way
	}
	dir := filepath.Dir(binary)
	files := map[string]string{filepath.Join(lib, "time.go"): filepath.Join(dir, "time.go"), filepath.Join(lib, "moved.go"): filepath.Join(dir, "moved.go")}
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	for name, text := range map[string]string{"time.go": changed, "moved.go": movedClock, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	program = filepath.Join(dir, "trainyard-clock")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../cmd/trainyard")
	if out, err := build.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return program, nil
})

// clockFaults set the clock wrong by so much, and right again.
func clockFaults() (all []outside) {
	for _, c := range []struct {
		name string
		by   time.Duration
	}{{"the clock is an hour ahead", time.Hour}, {"the clock is an hour behind", -time.Hour}, {"the clock is a week ahead", 7 * 24 * time.Hour}} {
		all = append(all, outside{
			name: c.name, ends: true, needs: clockCanBeMoved, prepare: func(y *yard) {
				program, err := withClock()
				require.NoError(y.t, err)
				y.program = filepath.Join(y.t.TempDir(), "trainyard") // whose clock is its own
				require.NoError(y.t, os.Link(program, y.program))
			}, begin: func(y *yard) func() {
				file := y.program + ".clock"
				require.NoError(y.t, os.WriteFile(file, []byte(strconv.Itoa(int(c.by.Seconds()))), 0o644))
				return func() { require.NoError(y.t, os.Remove(file)) }
			}})
	}
	return all
}

func clockCanBeMoved(testing.TB) string {
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		return "the program finds its clock in /proc"
	}
	return ""
}
