package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// lookThrough gives a loop definitions, and lets it look at every job a few times.
func lookThrough(t *testing.T, l *Loop, defs *repo.Definitions) {
	l.Define(time.Now(), defs)
	for range 3 {
		for key := range l.jobs {
			l.Reconcile(t.Context(), time.Now(), key)
		}
	}
}

// A file that cannot be read any more is a mistake, and no wish: every job that
// it defined goes on, says what is wrong with it, and is the only one to say so.
func TestBrokenFileKeepsItsJobs(t *testing.T) {
	of := func(name, unit string) repo.Job {
		j := trainJob(name, "d1", 1, 0)
		j.Source.Unit = unit
		return j
	}
	key := func(name string) repo.Key { return repo.Key{Namespace: "default", Name: name} }
	for _, row := range []struct {
		what    string
		now     []repo.Job     // that can be read
		invalid []repo.Invalid // besides
		want    map[string]repo.Phase
	}{
		{"the whole file, known by no name", nil, []repo.Invalid{{Key: key("two"), Source: repo.Source{Unit: "jobs/two.yaml"}}},
			map[string]repo.Phase{"a": repo.PhaseRunning, "b": repo.PhaseRunning, "c": repo.PhaseRunning}},
		{"one of its jobs", []repo.Job{of("b", "jobs/two.yaml")}, []repo.Invalid{{Key: key("a"), Source: repo.Source{Unit: "jobs/two.yaml"}}},
			map[string]repo.Phase{"a": repo.PhaseRunning, "b": repo.PhaseRunning, "c": repo.PhaseRunning}},
		{"one of its jobs, which says no file", []repo.Job{of("b", "jobs/two.yaml")}, []repo.Invalid{{Key: key("a")}},
			map[string]repo.Phase{"a": repo.PhaseRunning, "b": repo.PhaseRunning, "c": repo.PhaseRunning}},
		{"another file, of the name of a job", []repo.Job{of("a", "jobs/two.yaml"), of("b", "jobs/two.yaml")}, []repo.Invalid{{Key: key("c"), Source: repo.Source{Unit: "jobs/new.yaml"}}},
			map[string]repo.Phase{"a": repo.PhaseRunning, "b": repo.PhaseRunning, "c": repo.PhaseRunning}},
		{"a new file", []repo.Job{of("a", "jobs/two.yaml"), of("b", "jobs/two.yaml")}, []repo.Invalid{{Key: key("new"), Source: repo.Source{Unit: "jobs/new.yaml"}}},
			map[string]repo.Phase{"a": repo.PhaseRunning, "b": repo.PhaseRunning, "c": repo.PhaseRunning, "new": repo.PhaseInvalid}},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
				l := New(m, newLedger(), Options{Environment: "default", Log: zerolog.Nop()})
				require.NoError(t, l.Load(t.Context()))
				third := of("c", "jobs/one.yaml")
				lookThrough(t, l, definitions(of("a", "jobs/two.yaml"), of("b", "jobs/two.yaml"), third))
				require.Len(t, m.pods, 3)

				defs := definitions(append(row.now, third)...)
				for _, inv := range row.invalid {
					inv.Errors = []*repo.Error{{File: inv.Source.Unit, Line: 3, Message: "no"}}
					defs.Invalid = append(defs.Invalid, inv)
				}
				lookThrough(t, l, defs)
				got := map[string]repo.Phase{}
				readable := map[string]bool{"c": true}
				for _, j := range row.now {
					readable[j.Name] = true
				}
				for _, r := range l.Records() {
					got[r.Metadata.Name] = r.Phase
					assert.Equal(t, !readable[r.Metadata.Name], len(r.Errors) > 0, "%s: %v", r.Metadata.Name, r.Errors)
				}
				assert.Equal(t, row.want, got)
				assert.Len(t, m.pods, 3)
				for name, p := range m.pods {
					assert.Nil(t, p.DeletionTimestamp, name)
				}
			})
		})
	}
}

// How many jobs may be removed by one commit before somebody has to confirm it.
func TestHowManyMayVanish(t *testing.T) {
	for _, row := range []struct {
		jobs, gone int
		share      float64
		withheld   bool
	}{
		{1, 1, 0, true},
		{2, 1, 0, false},
		{9, 8, 0, false},   // fewer than the floor
		{10, 9, 0, false},  // fewer than the floor
		{11, 10, 0, true},  // ten, and more than half
		{20, 10, 0, false}, // ten, and half
		{21, 11, 0, true},
		{40, 19, 0, false},
		{40, 12, 0.25, true},
		{40, 10, 0.25, false},
		{40, 9, 0.01, false},
		{40, 39, 1, false},
		{40, 40, 1, true}, // all of them never may
	} {
		synctest.Test(t, func(t *testing.T) {
			l := New(newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger(), Options{Environment: "default", Log: zerolog.Nop()})
			require.NoError(t, l.Load(t.Context()))
			var jobs []repo.Job
			for i := range row.jobs {
				jobs = append(jobs, trainJob(fmt.Sprintf("j%02d", i), "d1", 1, 0))
			}
			look := func(defs *repo.Definitions) (removed int) {
				lookThrough(t, l, defs)
				for _, r := range l.Records() {
					if r.Phase == repo.PhaseRemoved {
						removed++
					}
				}
				return removed
			}
			require.Zero(t, look(definitions(jobs...)))
			rest := definitions(jobs[row.gone:]...)
			rest.Settings.Removal.MaxShare = row.share
			want := row.gone
			if row.withheld {
				want = 0
			}
			assert.Equal(t, want, look(rest), "%+v", row)
			assert.Equal(t, row.withheld, len(l.notices) > 0, "%+v", row)
		})
	}
}
