package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// gangSettles is how long a gang that was stopped and starts again waits for
// its tasks' new pods. Which of its tasks get one is the runner's to decide.
const gangSettles = 5 * time.Second

// party is what is given room together: one pod, or all pods of a gang of
// which none has any yet.
type party struct {
	pods []*entry
	gang bool
	// begun: others of the run's attempt have their place already, and may be
	// waiting for these. They go first, or two runs would wait for each other.
	begun bool
	waits string // what it waits for, whatever room there is
}

func (p *party) need() demand {
	total := demand{}
	for _, e := range p.pods {
		for name, n := range need(e.pod) {
			total[name] += n
		}
	}
	return total
}

// refusal says what the party has to wait for, "" for nothing.
func (p *party) refusal(r *room) string {
	if p.waits != "" {
		return p.waits
	}
	who := ""
	if p.gang {
		who = fmt.Sprintf("gang of %d ", len(p.pods))
	}
	return r.refusal(who, p.need())
}

// parties are the waiting pods in the order in which they are given room:
// those of runs that have begun, then the oldest.
func (b *Backend) parties(all, waiting []*entry) []*party {
	attempts := map[string][]*entry{}
	for _, e := range all {
		attempts[attemptKey(e)] = append(attempts[attemptKey(e)], e)
	}
	var out []*party
	gangs := map[string]*party{}
	slices.SortFunc(waiting, byAge)
	for _, e := range waiting {
		key := attemptKey(e)
		if p := gangs[key]; p != nil {
			p.pods = append(p.pods, e)
			continue
		}
		p := &party{pods: []*entry{e}, begun: slices.ContainsFunc(attempts[key], (*entry).placed)}
		out = append(out, p)
		if p.begun {
			continue
		}
		run, err := b.runOf(e.pod)
		if err != nil {
			p.waits = "whether its run is a gang cannot be read: " + err.Error()
		} else if run != nil && run.Job.Gang {
			p.gang, p.waits = true, lacks(run, attempts[key])
			gangs[key] = p
		}
	}
	slices.SortStableFunc(out, func(a, b *party) int {
		switch {
		case a.begun == b.begun:
			return 0 // by age, as they are
		case a.begun:
			return -1
		}
		return 1
	})
	return out
}

func byAge(a, b *entry) int {
	if c := a.file.ModTime().Compare(b.file.ModTime()); c != 0 {
		return c
	}
	return compareText(a.dir, b.dir)
}

// attemptKey names the attempt of a run that a pod belongs to.
func attemptKey(e *entry) string {
	if id := e.pod.Labels[repo.LabelRun]; id != "" {
		return e.pod.Namespace + "/" + id + "/" + e.pod.Labels[repo.LabelRunAttempt]
	}
	return e.dir
}

// placed says whether a pod holds a place on the machine.
func (e *entry) placed() bool {
	return e.outcome == nil && (exists(filepath.Join(e.dir, admittedFile)) || exists(filepath.Join(e.dir, shimFile)))
}

// runOf is the run that a pod belongs to, as Prepare was given it; nil when
// there is none.
func (b *Backend) runOf(pod *corev1.Pod) (*repo.Run, error) {
	id := pod.Labels[repo.LabelRun]
	if id == "" || len(validation.IsDNS1123Label(id)) > 0 {
		return nil, nil
	}
	var run repo.Run
	err := read(filepath.Join(b.runDir(id), runFile), &run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &run, err
}

// lacks says which pods of a gang are still to come, "" for none: each of its
// tasks has to have had one, and those that were told to end (the run was
// suspended) are given time to come back.
func lacks(run *repo.Run, pods []*entry) string {
	latest := map[repo.Task]*entry{}
	var youngest time.Time
	for _, e := range pods {
		index, _ := strconv.Atoi(e.pod.Labels[repo.LabelIndex])
		task := repo.Task{Role: e.pod.Labels[repo.LabelRole], Index: int32(index)}
		if old := latest[task]; old == nil || byAge(old, e) < 0 {
			latest[task] = e
		}
		if at := e.file.ModTime(); at.After(youngest) {
			youngest = at
		}
	}
	there, stopped := map[string]int32{}, 0
	for task, e := range latest {
		if r := run.Job.Role(task.Role); r == nil || task.Index >= r.Replicas {
			continue // of before the run was scaled down
		}
		there[task.Role]++
		if e.deletion != nil && e.outcome != nil && e.outcome.Phase != corev1.PodSucceeded {
			stopped++
		}
	}
	want, come := int32(0), int32(0)
	for i := range run.Job.Roles {
		r := &run.Job.Roles[i]
		n := r.Replicas
		if r.Parallelism > 0 {
			n = min(n, r.Parallelism)
		}
		want, come = want+n, come+min(n, there[r.Name])
	}
	if come < want {
		return fmt.Sprintf("gang of %d waits for %d of its pods to be created", want, want-come)
	}
	if stopped > 0 && time.Since(youngest) < gangSettles {
		return fmt.Sprintf("gang of %d waits for %d of its pods to be created again", want, stopped)
	}
	return ""
}
