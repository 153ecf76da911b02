package behaviour

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/render"
	repo "github.com/trainyard/trainyard/repo-layout"
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
		on(t, r.rule, r.file, func(w *world) {
			w.play(r.script)
			assert.Equal(w.t, r.want, w.told(), "%s\n%s", r.script, r.file)
		})
	}
}

// world is one job, whose pods run once they are created, on a scene: in memory
// or on an API server. Its clock stands still but for what the script says.
type world struct {
	t        *testing.T
	scene    scene
	now      time.Time
	file     string
	revision int
	job      *repo.Job
	record   repo.Record
	refuse   map[string]bool // tasks whose pods the backend does not take
	hasty    bool            // waits between two tries are over at once
}

// scene is where a job's pods are.
type scene interface {
	// define says that the file is another.
	define(w *world)
	// pass decides once, does what was decided, and publishes the record. It says
	// whether nothing came of it.
	pass(w *world) (idle bool)
	// end brings a fate to the pod of a task that runs, and says whether there is one.
	end(w *world, task string, f fate) bool
	// left are the tasks of the pods that there are, and " running" behind those that run.
	left(w *world) []string
}

// on both scenes, f is done with a job.
func on(t *testing.T, rule, file string, f func(w *world)) {
	t.Run(rule, func(t *testing.T) {
		f(newWorld(t, newMemory(), file))
	})
	if !testing.Short() {
		t.Run("API server: "+rule, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			w := newWorld(t, s, file)
			f(w)
			s.remove(w)
		})
	}
}

// newWorld begins within a second: a server's times are in whole ones.
func newWorld(t *testing.T, s scene, file string) *world {
	now := time.Date(2026, 3, 2, 9, 0, 0, int(400*time.Millisecond), time.UTC)
	w := &world{t: t, scene: s, now: now, hasty: true, refuse: map[string]bool{}}
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
	w.scene.define(w)
}

// settle decides and does what was decided until nothing more comes of it.
func (w *world) settle() {
	w.t.Helper()
	for range 500 {
		if w.scene.pass(w) && !w.skip() {
			return
		}
	}
	require.Fail(w.t, "does not settle")
}

// later goes on by d.
func (w *world) later(d time.Duration) { w.now = w.now.Add(d) }

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

// leftRow is a rule of what is left of a job's pods.
type leftRow struct {
	rule, file, script string
	want               []string // see left
}

func checkLeft(t *testing.T, rows []leftRow) {
	for _, r := range rows {
		on(t, r.rule, r.file, func(w *world) {
			w.play(r.script)
			assert.ElementsMatch(w.t, r.want, w.scene.left(w), "%s: %s\n%s", w.told(), r.script, r.file)
		})
	}
}
