package simulation

import (
	"fmt"
	"io"
	"runtime/debug"
)

// Length of a history in steps, before everything comes to rest.
const length = 150

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
		w.end_()
	}()
	for range length {
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

// end_ unwinds what is left of the daemons.
func (w *world) end_() {
	for _, d := range w.daemons {
		for _, t := range d.threads {
			t.effect = nil
			t.stop()
		}
	}
}
