// Package crash names the places around every effect that the program has on
// the world outside of its memory, so that tests can kill the program there. It
// never does anything in a normal build: At and File are empty, and gone once
// compiled. Built with the tag crashpoints they note that a place was passed,
// and end the process with SIGKILL at the one that a test has armed.
package crash

import (
	"path/filepath"
	"strings"
)

// Effect is something that outlives the process that does it.
type Effect string

// The effects that are more than the writing of one file.
const (
	StateLock      Effect = "state-lock"      // the state directory is taken
	Fetch          Effect = "fetch"           // a pack comes from the remote
	PackAdopt      Effect = "pack-adopt"      // objects get into the mirror: half is a pack without its index
	MirrorSwitch   Effect = "mirror-switch"   // the mirror has begun afresh
	MirrorRemove   Effect = "mirror-remove"   // one that is not used any more goes
	ObjectWrite    Effect = "object-write"    // the objects of a commit of records are made
	Push           Effect = "push"            // half is sent, and the answer not read
	Publish        Effect = "publish"         // all of it: building, pushing, noting that it was pushed
	Decide         Effect = "decide"          // what was decided is known, and nothing of it done
	RunPrepare     Effect = "run-prepare"     // definition and ports of a run
	RunForget      Effect = "run-forget"      // half is out of sight, and not off the disk
	PodCreate      Effect = "pod-create"      // half is all there, but under another name
	PodAdmit       Effect = "pod-admit"       // a place on the machine
	PodDelete      Effect = "pod-delete"      // half is written down, and the shim not told
	PodRelease     Effect = "pod-release"     // the finalizer
	PodRemove      Effect = "pod-remove"      // half is out of sight, and not off the disk
	PodLost        Effect = "pod-lost"        // half is killed, and its outcome not written
	Sweep          Effect = "sweep"           // what a crash left goes
	ShimStart      Effect = "shim-start"      // the process that holds a pod
	ShimBegin      Effect = "shim-begin"      // a shim says that the pod is its own: nobody starts it again
	ContainerStart Effect = "container-start" // half is started, and not noted
	ContainerEnd   Effect = "container-end"   // half is that nothing of it lives, and its log is not closed
	PodEnd         Effect = "pod-end"         // half is that nothing of it lives, and its outcome is not written
)

// Moment is where an effect stands.
type Moment string

// The moments. Half is what the effect says; of a file it is that all of its
// content is on the disk, under another name.
const (
	Before Moment = "before"
	Half   Moment = "half"
	After  Moment = "after"
)

// Kind is what a process does.
type Kind string

// The kinds of processes that can be killed.
const (
	Daemon Kind = "daemon"
	Shim   Kind = "shim" // holds one pod of the local runner
)

// Point is a place at which a process can be killed.
type Point struct {
	Kind   Kind
	Effect Effect
	Moment Moment
}

// String is a point as it is armed and noted: daemon.push.half.
func (p Point) String() string {
	return string(p.Kind) + "." + string(p.Effect) + "." + string(p.Moment)
}

// fileEffect names the writing of a file: numbers and hashes in its name are
// left out, so that all of one kind are one effect.
func fileEffect(path string) Effect {
	name := filepath.Base(path)
	if strings.HasPrefix(name, "pack-") || strings.HasPrefix(name, "attempt-") {
		kind, _, _ := strings.Cut(name, "-")
		name = kind + filepath.Ext(name)
	}
	return Effect("file-" + name)
}

// Points are all places at which the program with the local runner can be killed.
func Points() []Point {
	var all []Point
	add := func(kind Kind, moments []Moment, effects ...Effect) {
		for _, e := range effects {
			for _, m := range moments {
				all = append(all, Point{Kind: kind, Effect: e, Moment: m})
			}
		}
	}
	around, through := []Moment{Before, After}, []Moment{Before, Half, After}
	add(Daemon, around, ObjectWrite, MirrorSwitch, MirrorRemove, Publish, RunPrepare, PodAdmit, PodRelease, Sweep, ShimStart)
	add(Daemon, []Moment{After}, Decide)
	add(Daemon, through, StateLock, Fetch, PackAdopt, Push, RunForget, PodCreate, PodDelete, PodRemove, PodLost)
	add(Daemon, through, files("HEAD", "config", "shallow", "packed-refs", "current", "pack.idx",
		"run.json", "attempt.json", "pod.json", "pod.copy.json", "objects.json", "admitted.json", "delete.json", "released", "outcome.json")...)
	add(Shim, around, ShimBegin)
	add(Shim, through, ContainerStart, ContainerEnd, PodEnd)
	add(Shim, through, files("shim.json", "sessions.json", "status.json", "outcome.json")...)
	return all
}

func files(names ...string) []Effect {
	effects := make([]Effect, len(names))
	for i, name := range names {
		effects[i] = fileEffect(name)
	}
	return effects
}
