package simulation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// length of a history in steps, before everything comes to rest.
const length = 120

// Result is what a history came to.
type Result struct {
	Seed      uint64
	Steps     int
	Violation string // "" for none
	draws     [][]uint16
}

// Play plays the history of a seed. trace may be nil.
func Play(seed uint64, trace io.Writer) Result {
	r := play(newChoices(seed), trace)
	r.Seed = seed
	return r
}

func play(c choices, trace io.Writer) (r Result) {
	w := newWorld(c, trace)
	defer func() {
		if p := recover(); p != nil {
			w.laws.broken = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
		if w.laws.broken != "" {
			w.say("VIOLATION: %s", w.laws.broken)
		}
		r = Result{Steps: w.steps, Violation: w.laws.broken, draws: w.choices.steps()}
		w.unwind()
	}()
	for range w.length() {
		w.begin()
		w.step()
		if w.laws.broken != "" {
			return r
		}
	}
	w.begin()
	w.rest()
	if w.laws.broken == "" {
		w.laws.atRest(w)
	}
	return r
}

// length is how many steps are taken before everything comes to rest.
func (w *world) length() int {
	if w.again != nil {
		return len(w.again) - 2
	}
	return length
}

// Report is what many histories came to.
type Report struct {
	Histories, Steps int
	Violations       []Result // the first of them, by seed
}

// PlayAll plays histories from the seed first on, on all cores, until n were played,
// ctx ends or most of them broke a law.
func PlayAll(ctx context.Context, first uint64, n, most int) Report {
	var mu sync.Mutex
	var report Report
	var next atomic.Uint64
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= uint64(n) {
					return
				}
				r := Play(first+i, nil)
				mu.Lock()
				report.Histories++
				report.Steps += r.Steps
				if r.Violation != "" {
					report.Violations = append(report.Violations, r)
				}
				enough := len(report.Violations) >= most
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	players.Wait()
	slices.SortFunc(report.Violations, func(a, b Result) int { return cmp.Compare(a.Seed, b.Seed) })
	return report
}

// unwind ends what is left of the daemons.
func (w *world) unwind() {
	for _, d := range w.daemons {
		for _, t := range d.threads {
			t.effect = nil
			t.stop()
		}
	}
}
