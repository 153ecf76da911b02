package behaviour

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// memory is what Decide is told of when there is nothing but it: pods that end
// as a script says, a remote that takes every record.
type memory struct {
	published *repo.Record
	runs      []repo.Run
	pods      []*runner.Pod
	refused   map[string]string // what the backend said
	uid       int
}

func newMemory() *memory { return &memory{refused: map[string]string{}} }

func (m *memory) define(*world) {}

func (m *memory) pass(w *world) (idle bool) {
	in := runner.Input{
		Now: w.now, Environment: "default", Revision: fmt.Sprintf("r%d", w.revision), Key: w.job.Key, Job: w.job,
		Record: w.record, Published: m.published, Runs: m.runs, Refused: m.refused,
	}
	for _, p := range m.pods {
		in.Pods = append(in.Pods, *p)
	}
	out := runner.Decide(in)
	for _, a := range out.Actions {
		m.perform(w, a, out.Run)
	}
	idle = len(out.Actions) == 0 && reflect.DeepEqual(w.record, out.Record) && m.published != nil
	w.record, m.published = out.Record, &out.Record
	return idle
}

func (m *memory) perform(w *world, a runner.Action, run *repo.Run) {
	switch a.Kind {
	case runner.Create:
		m.create(w, a, run)
	case runner.Delete:
		if p := m.named(a.Pod); p != nil {
			m.delete(w, p)
		}
	case runner.Release:
		if p := m.named(a.Pod); p != nil {
			p.Held = false
			if !p.DeletedAt.IsZero() {
				m.remove(p)
			}
		}
	case runner.Forget:
		m.runs = slices.DeleteFunc(m.runs, func(r repo.Run) bool { return r.ID == a.Run })
	}
}

func (m *memory) create(w *world, a runner.Action, run *repo.Run) {
	made := *run // it may lie in m.runs
	m.runs = append(slices.DeleteFunc(m.runs, func(r repo.Run) bool { return r.ID == made.ID }), made)
	if w.refuse[a.Attempt.Task.String()] {
		m.refused[a.Pod] = "Pod is invalid"
		return
	}
	if m.named(a.Pod) != nil {
		return
	}
	m.uid++
	m.pods = append(m.pods, &runner.Pod{
		Name: a.Pod, UID: fmt.Sprint("u", m.uid), Run: a.Run, Attempt: a.Attempt, Held: true, Node: "node-1",
		CreatedAt: w.now, StartedAt: w.now, State: runner.PodRunning,
	})
}

func (m *memory) delete(w *world, p *runner.Pod) {
	if p.DeletedAt.IsZero() {
		p.DeletedAt = w.now
	}
	if !p.Ended() {
		m.stop(w, p, runner.End{ExitCode: 143})
	}
	if !p.Held {
		m.remove(p)
	}
}

func (m *memory) remove(p *runner.Pod) {
	m.pods = slices.DeleteFunc(m.pods, func(q *runner.Pod) bool { return q == p })
}

func (m *memory) stop(w *world, p *runner.Pod, ends ...runner.End) {
	p.EndedAt, p.State = w.now, runner.PodSucceeded
	for _, e := range ends {
		e.At = w.now
		e.Container = cmp.Or(e.Container, w.job.Role(p.Attempt.Task.Role).MainContainer, w.job.Role(p.Attempt.Task.Role).Template.Spec.Containers[0].Name)
		if e.ExitCode != 0 {
			p.State = runner.PodFailed
		}
		p.Failure.Ends = append(p.Failure.Ends, e)
	}
}

func (m *memory) named(name string) *runner.Pod {
	for _, p := range m.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// running is the pod of a task (worker-0) that runs.
func (m *memory) running(task string) *runner.Pod {
	for _, p := range m.pods {
		if p.Attempt.Task.String() == task && !p.Ended() {
			return p
		}
	}
	return nil
}

func (m *memory) end(w *world, task string, f fate) bool {
	p := m.running(task)
	if p == nil {
		return false
	}
	killed := runner.End{Container: f.container, ExitCode: 137, Reason: "Error"}
	switch f.how {
	case exits:
		m.stop(w, p, runner.End{Container: f.container, ExitCode: f.code, Reason: f.reason, Message: f.said})
	case evicted:
		m.taken(w, p, killed, "Evicted")
		p.Failure.Message = "The node was low on resource: memory."
	case preempted:
		p.DeletedAt = w.now
		m.taken(w, p, killed, "DisruptionTarget", "PreemptionByScheduler")
	case losesNode:
		p.DeletedAt = w.now
		m.taken(w, p, runner.End{ExitCode: 137, Reason: "ContainerStatusUnknown"}, "NodeLost")
	case fails:
		m.stop(w, p)
		p.State = runner.PodFailed
	case isDeleted:
		p.DeletedAt = w.now
		killed.ExitCode = 143
		m.stop(w, p, killed)
	case vanishes:
		m.remove(p)
	}
	return true
}

// taken ends a pod that the cluster took away.
func (m *memory) taken(w *world, p *runner.Pod, e runner.End, reasons ...string) {
	m.stop(w, p, e)
	p.Failure.Reasons = reasons
}

func (m *memory) left(*world) []string {
	out := []string{}
	for _, p := range m.pods {
		name := p.Attempt.Task.String()
		if !p.Ended() {
			name += " running"
		}
		out = append(out, name)
	}
	return out
}
