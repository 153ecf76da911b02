package e2e

import (
	"encoding/json"
	"fmt"
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
// program is built once more from the same source, in which whoever asks for the
// time is told what a file beside the program adds to it. The monotonic clock
// goes on as it is, as it does on a machine whose clock is set.
const movedClock = `package %s

import (
	"os"
	"strconv"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func movedNow() time.Time {
	now := time.Now()
	self, _ := os.Readlink("/proc/self/exe")
	text, _ := os.ReadFile(self + ".clock")
	seconds, _ := strconv.ParseInt(string(text), 10, 64)
	*(*uint64)(unsafe.Pointer(&now)) += uint64(seconds) << 30 // of the wall clock alone
	return now
}

func movedSince(t time.Time) time.Duration { return movedNow().Sub(t) }
func movedUntil(t time.Time) time.Duration { return t.Sub(movedNow()) }
func movedMeta() metav1.Time               { return metav1.NewTime(movedNow()) }
`

// asks are the ways to ask for the time, and what takes their place.
var asks = strings.NewReplacer("time.Now", "movedNow", "time.Since", "movedSince", "time.Until", "movedUntil", "metav1.Now", "movedMeta")

// withClock builds the program whose clock can be moved. TestClock knows who
// asks for the time.
var withClock = sync.OnceValues(func() (program string, err error) {
	dir, replaced := filepath.Dir(binary), map[string]string{}
	put := func(path, text string) error {
		file := filepath.Join(dir, fmt.Sprintf("clock-%d.go", len(replaced)))
		replaced[path] = file
		return os.WriteFile(file, []byte(text), 0o644)
	}
	for _, folder := range []string{"../cmd/daemon", "../cmd/trainyard", "../runner", "../runner/local", "../sync"} {
		folder, _ = filepath.Abs(folder)
		files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
		name := ""
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			changed := asks.Replace(string(text))
			if changed == string(text) {
				continue
			}
			for what, use := range map[string]string{"\"time\"\n": "time.Duration", "\tmetav1 ": "metav1.Time"} {
				if strings.Contains(changed, what) {
					changed += "\nvar _ " + use + "\n" // the time may be all that was wanted of the package
				}
			}
			name = strings.Fields(changed[strings.Index(changed, "\npackage ")+1:])[1]
			if err := put(file, changed); err != nil {
				return "", err
			}
		}
		if name == "" {
			continue // nobody asks there
		}
		if err := put(filepath.Join(folder, "moved_clock.go"), fmt.Sprintf(movedClock, name)); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
	}
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "trainyard-clock")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../cmd/trainyard")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
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
