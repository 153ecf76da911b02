package runner

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// spoilt calls f with a JSON document once for each of its values, with that
// value taken away, emptied or made something else.
func spoilt(doc any, f func(what string)) {
	var in func(path string, value any, set func(any), drop func())
	in = func(path string, value any, set func(any), drop func()) {
		try := func(what string, v any) {
			set(v)
			f(path + " is " + what)
			set(value)
		}
		switch v := value.(type) {
		case map[string]any:
			for name, child := range v {
				in(path+"."+name, child, func(x any) { v[name] = x }, func() { delete(v, name) })
			}
			try("empty", map[string]any{})
		case []any:
			for i, child := range v {
				in(fmt.Sprintf("%s[%d]", path, i), child, func(x any) { v[i] = x }, nil)
			}
			try("empty", []any{})
			try("shorter", v[1:])
			try("double", append(slices.Clone(v), v...))
		case float64:
			for _, n := range []float64{0, -1, 1, math.MaxInt32, math.MinInt32} {
				try(fmt.Sprint(n), n)
			}
		case bool:
			try("the other", !v)
		case string:
			try("empty", "")
			try("another", "x")
			for _, t := range []string{"0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z"} {
				try(t, t)
			}
		}
		if drop != nil {
			drop()
			f(path + " is gone")
		}
		set(value)
	}
	in("", doc, func(any) {}, nil)
}

// A record is a file that people can edit. Whatever it says, the daemon goes on:
// one record must not bring down what looks after all jobs.
func TestAnyRecordCanBeDecidedOn(t *testing.T) {
	backoffs := func(j *repo.Job) {
		j.Retry.Backoff = repo.Backoff{Initial: 10 * time.Minute, Factor: 2}
		j.Roles[0].Retry.Backoff = j.Retry.Backoff
	}
	for _, row := range []struct {
		what string
		lead func() *world
	}{
		{"runs", func() *world {
			w := pushed(t, budgets(repo.ByFault, 2, 2))
			w.settle()
			w.start("main-0", "main-1")
			w.settle()
			return w
		}},
		{"a task waits for its retry", func() *world {
			w := pushed(t, budgets(repo.ByFault, 2, 2), backoffs)
			w.settle()
			w.start("main-0", "main-1")
			w.end("main-0", 1)
			w.settle()
			return w
		}},
		{"the run waits for its retry", func() *world {
			w := pushed(t, budgets(repo.ByFault, 0, 2), backoffs)
			w.settle()
			w.start("main-0", "main-1")
			w.end("main-0", 1)
			w.settle()
			require.NotNil(t, w.record.Run.RetryAt)
			return w
		}},
		{"ends", func() *world {
			w := pushed(t)
			w.settle()
			w.start("main-0", "main-1")
			w.stubborn = true
			w.edit(func(j *repo.Job) { j.Stop = true })
			w.settle()
			require.NotNil(t, w.record.Run.Ending)
			return w
		}},
		{"is suspended", func() *world {
			w := pushed(t, func(j *repo.Job) { j.Gang, j.Rescale = true, true })
			w.settle()
			w.start("main-0", "main-1")
			w.edit(func(j *repo.Job) { j.Suspend = true })
			w.settle()
			w.edit(func(j *repo.Job) { j.Suspend = false })
			return w
		}},
		{"has finished", func() *world {
			w := pushed(t)
			w.succeed()
			w.edit(digest("B"))
			return w
		}},
		{"runs by a schedule", func() *world {
			w := pushed(t, func(j *repo.Job) { j.Schedule = &repo.Schedule{Cron: "*/5 * * * *", Concurrency: repo.Forbid} })
			w.settle()
			w.sleep(5 * time.Minute)
			w.settle()
			require.NotNil(t, w.record.Run)
			return w
		}},
	} {
		t.Run(row.what, func(t *testing.T) {
			w := row.lead()
			text, err := json.Marshal(w.record)
			require.NoError(t, err)
			var doc any
			require.NoError(t, json.Unmarshal(text, &doc))
			tried := 0
			spoilt(doc, func(what string) {
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("%s: %v", what, r)
					}
				}()
				text, err := json.Marshal(doc)
				require.NoError(t, err)
				var rec repo.Record
				if json.Unmarshal(text, &rec) != nil || rec.Check() != nil {
					return // it is damaged, and nothing is decided by it
				}
				tried++
				rec.History = w.record.History
				for _, runs := range [][]repo.Run{w.runs, nil} {
					in := w.input()
					in.Record, in.Published, in.Runs = rec, &rec, runs
					for range 3 {
						in.Record = Decide(in).Record
						in.Now = in.Now.Add(time.Hour)
					}
				}
			})
			require.Greater(t, tried, 100)
		})
	}
}
