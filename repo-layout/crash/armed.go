//go:build crashpoints

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Dir is where tests arm points, in a directory for temporary files of the
// program's own: it reaches the shims too, which get nothing else from the
// daemon's environment.
//
//	passed/POINT      there once the point was passed
//	armed/POINT/N…1   the process that takes the last of them away is killed
//	killed            a line for each process that was killed
const Dir = "trainyard-crash"

// armed is what main has said of this process, before it does anything else.
var armed struct {
	kind Kind
	dir  string
}

// Arm says which kind of process this is. Nothing is ever killed without a
// directory in which points can be armed.
func Arm(kind Kind) {
	dir := filepath.Join(os.TempDir(), Dir)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		armed.kind, armed.dir = kind, dir
	}
}

// File is At of an effect that writes one file.
func File(path string, m Moment) { At(fileEffect(path), m) }

// At notes that this point was passed, and kills the process if it was armed
// for as many times as it has been passed by now.
func At(e Effect, m Moment) {
	if armed.dir == "" {
		return
	}
	point := Point{Kind: armed.kind, Effect: e, Moment: m}.String()
	note(filepath.Join(armed.dir, "passed", point), "")
	left, _ := os.ReadDir(filepath.Join(armed.dir, "armed", point))
	for _, f := range slices.Backward(left) { // of two that pass at once, each takes another one away
		if os.Remove(filepath.Join(armed.dir, "armed", point, f.Name())) != nil {
			continue
		}
		if strings.TrimLeft(f.Name(), "0") == "1" {
			where, _ := os.Getwd()
			note(filepath.Join(armed.dir, "killed"), fmt.Sprintf("%s %d %s\n", point, os.Getpid(), where))
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // it is on its way
		}
		return
	}
}

func note(path, line string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line)
	_ = f.Close()
}
