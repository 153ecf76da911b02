package repo

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of the pods of a gang.
const (
	AnnotationGang     = "trainyard.dev/gang"      // its name
	AnnotationGangSize = "trainyard.dev/gang-size" // how many pods start together
	AnnotationGangLate = "trainyard.dev/gang-late" // "true": a retry, whose gang has started before
	// AnnotationGangBy is set by a backend: what sees to it that the gang starts
	// all at once, in a sentence.
	AnnotationGangBy = "trainyard.dev/gang-by"
)

// Gang is a set of pods that start together or not at all: those of a run's
// attempt that are to go on at a time. A run that was suspended has another
// gang when it goes on.
type Gang struct {
	Name string
	Size int32
	// Late: the gang has started without this pod, which takes the place of
	// one that failed.
	Late bool
}

// maxGangName is how long a label's value may be: some schedulers find the
// pods of a gang by a label.
const maxGangName = 63

// GangName names a gang of a run's attempt; number tells it from those before
// it. It is a DNS label.
func (r *Run) GangName(attempt, number int32) string {
	suffix := fmt.Sprintf("-%d-%d", attempt, number)
	name, hash := r.ID, ""
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		name, hash = name[:i], name[i:]
	}
	if most := max(0, maxGangName-len(hash)-len(suffix)); len(name) > most {
		name = strings.TrimRight(name[:most], "-")
	}
	return name + hash + suffix
}

// Mark writes on a pod which gang it belongs to.
func (g *Gang) Mark(pod *corev1.Pod) {
	pod.Annotations = merge(pod.Annotations, map[string]string{AnnotationGang: g.Name, AnnotationGangSize: itoa(g.Size)})
	if g.Late {
		pod.Annotations[AnnotationGangLate] = "true"
	}
}

// GangOf reads what Mark wrote; nil for a pod that starts by itself.
func GangOf(pod *corev1.Pod) *Gang {
	n, err := strconv.ParseInt(pod.Annotations[AnnotationGangSize], 10, 32)
	if err != nil || n < 1 || pod.Annotations[AnnotationGang] == "" {
		return nil
	}
	return &Gang{Name: pod.Annotations[AnnotationGang], Size: int32(n), Late: pod.Annotations[AnnotationGangLate] == "true"}
}

// InGang says whether the pods of a role start together with those of the
// others: all do but those that are left over from one run to the next.
func (r *Role) InGang() bool { return !r.Outlives }
