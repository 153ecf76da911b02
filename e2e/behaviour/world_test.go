package behaviour

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/render"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// row is one rule of a format: what a job comes to when its pods end so.
type row struct {
	rule   string // names its source
	file   string // the job's file
	script string // see step
	want   string // see told
}

func check(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.rule, func(t *testing.T) {
			w := newWorld(t, r.file)
			w.play(r.script)
			assert.Equal(t, r.want, w.told(), "%s\n%s", r.script, r.file)
		})
	}
}

// world is what Decide is told of: one job, pods that run once they are
// created, a remote that takes every record, a clock that stands still.
type world struct {
	t         *testing.T
	now       time.Time
	file      string
	revision  int
	job       *repo.Job
	record    repo.Record
	published *repo.Record
	runs      []repo.Run
	pods      []*runner.Pod
	refuse    map[string]bool   // tasks whose pods the backend does not take
	refused   map[string]string // what it said
	hasty     bool              // waits between two tries are over at once
	uid       int
	out       runner.Output
}

func newWorld(t *testing.T, file string) *world {
	w := &world{
		t: t, now: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC), hasty: true,
		refuse: map[string]bool{}, refused: map[string]string{},
	}
	w.push(file)
	return w
}

// push renders a file and makes it the definition.
func (w *world) push(file string) {
	w.t.Helper()
	w.revision++
	w.file = file
	snapshot := render.Dir(fstest.MapFS{"jobs/job.yaml": &fstest.MapFile{Data: []byte(file)}}, fmt.Sprintf("r%d", w.revision))
	defs, err := render.New("default").Render(context.Background(), snapshot)
	require.NoError(w.t, err)
	require.Empty(w.t, defs.Invalid, file)
	require.Empty(w.t, defs.Problems, file)
	require.Len(w.t, defs.Jobs, 1, file)
	w.job = &defs.Jobs[0]
}

// settle decides and does what was decided until nothing more comes of it.
func (w *world) settle() {
	w.t.Helper()
	for range 500 {
		in := runner.Input{
			Now: w.now, Environment: "default", Revision: fmt.Sprintf("r%d", w.revision), Key: w.job.Key, Job: w.job,
			Record: w.record, Published: w.published, Runs: w.runs, Refused: w.refused,
		}
		for _, p := range w.pods {
			in.Pods = append(in.Pods, *p)
		}
		out := runner.Decide(in)
		for _, a := range out.Actions {
			w.perform(a, out.Run)
		}
		idle := len(out.Actions) == 0 && reflect.DeepEqual(w.record, out.Record) && w.published != nil
		w.out, w.record, w.published = out, out.Record, &out.Record
		if idle && !w.skip() {
			return
		}
	}
	require.Fail(w.t, "does not settle")
}

// skip goes to the time of the next try, if one is planned.
func (w *world) skip() bool {
	if !w.hasty || w.record.Run == nil {
		return false
	}
	var next time.Time
	if at := w.record.Run.RetryAt; at != nil {
		next = at.Time
	}
	w.each(func(t *repo.TaskRecord) {
		if t.RetryAt != nil && (next.IsZero() || t.RetryAt.Time.Before(next)) {
			next = t.RetryAt.Time
		}
	})
	if !next.After(w.now) {
		return false
	}
	w.now = next
	return true
}

func (w *world) each(f func(*repo.TaskRecord)) {
	for i := range w.record.Roles {
		for j := range w.record.Roles[i].Tasks {
			f(&w.record.Roles[i].Tasks[j])
		}
	}
}

func (w *world) perform(a runner.Action, run *repo.Run) {
	switch a.Kind {
	case runner.Create:
		w.create(a, run)
	case runner.Delete:
		if p := w.named(a.Pod); p != nil {
			w.delete(p)
		}
	case runner.Release:
		if p := w.named(a.Pod); p != nil {
			p.Held = false
			if !p.DeletedAt.IsZero() {
				w.remove(p)
			}
		}
	case runner.Forget:
		w.runs = slices.DeleteFunc(w.runs, func(r repo.Run) bool { return r.ID == a.Run })
	}
}

func (w *world) create(a runner.Action, run *repo.Run) {
	made := *run // it may lie in w.runs
	w.runs = append(slices.DeleteFunc(w.runs, func(r repo.Run) bool { return r.ID == made.ID }), made)
	if w.refuse[a.Attempt.Task.String()] {
		w.refused[a.Pod] = "Pod is invalid"
		return
	}
	if w.named(a.Pod) != nil {
		return
	}
	w.uid++
	w.pods = append(w.pods, &runner.Pod{
		Name: a.Pod, UID: fmt.Sprint("u", w.uid), Run: a.Run, Attempt: a.Attempt, Held: true, Node: "node-1",
		CreatedAt: w.now, StartedAt: w.now, State: runner.PodRunning,
	})
}

func (w *world) delete(p *runner.Pod) {
	if p.DeletedAt.IsZero() {
		p.DeletedAt = w.now
	}
	if !p.Ended() {
		w.end(p, runner.End{ExitCode: 143})
	}
	if !p.Held {
		w.remove(p)
	}
}

func (w *world) remove(p *runner.Pod) {
	w.pods = slices.DeleteFunc(w.pods, func(q *runner.Pod) bool { return q == p })
}

func (w *world) end(p *runner.Pod, ends ...runner.End) {
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

func (w *world) named(name string) *runner.Pod {
	for _, p := range w.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// running is the pod of a task (worker-0) that runs.
func (w *world) running(task string) *runner.Pod {
	w.t.Helper()
	for _, p := range w.pods {
		if p.Attempt.Task.String() == task && !p.Ended() {
			return p
		}
	}
	require.Fail(w.t, task+" does not run", "%s", w.told())
	return nil
}

// told is where the job stands: its phase, the reason of its end, which tries
// there were ("retry" uses up a budget, "free retry" does not), and every task
// that does not run while the job does.
func (w *world) told() string {
	parts := []string{string(w.record.Phase)}
	run := w.record.Run
	if run == nil {
		return parts[0]
	}
	if run.Outcome != nil {
		parts[0] += " " + run.Outcome.Reason
	}
	if s := tries(run.Retries); s != "" {
		parts = append(parts, "run "+s)
	}
	w.each(func(t *repo.TaskRecord) {
		var said []string
		if s := tries(t.Retries); s != "" {
			said = append(said, s)
		}
		if run.Outcome == nil && t.Phase != repo.TaskRunning {
			said = append(said, string(t.Phase))
		}
		if len(said) > 0 {
			parts = append(parts, t.Name+" "+strings.Join(said, " "))
		}
	})
	return strings.Join(parts, "; ")
}

func tries(r repo.Retries) string {
	counted, free := "", ""
	switch {
	case r.Accountable == 1:
		counted = "retry"
	case r.Accountable > 1:
		counted = fmt.Sprintf("%d retries", r.Accountable)
	}
	switch n := r.Total - r.Accountable; {
	case n == 1:
		free = "free retry"
	case n > 1:
		free = fmt.Sprintf("%d free retries", n)
	}
	return strings.Trim(counted+" "+free, " ")
}

// left are the pods that are still there, and "running" behind those that run.
func (w *world) left() []string {
	out := []string{}
	for _, p := range w.pods {
		name := p.Attempt.Task.String()
		if !p.Ended() {
			name += " running"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// leftRow is a rule of what is left of a job's pods.
type leftRow struct {
	rule, file, script string
	want               []string // see left
}

func checkLeft(t *testing.T, rows []leftRow) {
	for _, r := range rows {
		t.Run(r.rule, func(t *testing.T) {
			w := newWorld(t, r.file)
			w.play(r.script)
			assert.ElementsMatch(t, r.want, w.left(), "%s: %s\n%s", w.told(), r.script, r.file)
		})
	}
}
