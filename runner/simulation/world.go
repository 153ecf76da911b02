package simulation

import (
	"fmt"
	"io"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// world is everything, at one moment of a history.
type world struct {
	choices
	now        time.Time
	repository repository
	remote     remote
	cluster    cluster
	api        weather // of the way to the API server
	daemons    []*daemon
	turn       *thread   // that goes on at this moment
	late       []*effect // requests that arrive after their sender has given up
	arriving   bool      // one of them does at this moment
	overtaken  []*daemon // that are to read everything again
	readings   int       // of the branch, by daemons that began
	elect      bool      // one of the daemons leads, the others stand by
	prompt     bool      // every news arrives at once
	laws       laws
	steps      int
	rounds     int       // while everything comes to rest
	out        io.Writer // of the trace; nil for none
}

// day is when every history begins.
var day = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func (w *world) tracing() bool { return w.out != nil }

// say adds a line to the trace.
func (w *world) say(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, "%4d %s  %s\n", w.steps, w.now.Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// newWorld draws how a history begins.
func newWorld(c choices, out io.Writer) *world {
	w := &world{choices: c, now: day, out: out}
	w.begin()
	w.laws.begin()
	w.cluster.coarse, w.prompt = w.chance(60), w.chance(25)
	jobs := 1 + w.below(2)
	w.repository.removed, w.repository.halted = map[repo.Key]bool{}, map[repo.Key]bool{}
	w.repository.defined = make([]*repo.Job, jobs)
	w.repository.broken = make([]bool, jobs)
	w.repository.versions = make([][]*repo.Job, jobs)
	for i := range jobs {
		w.repository.write(i, w.job(i))
	}
	w.push()
	w.daemons = append(w.daemons, &daemon{world: w, name: "A"})
	switch w.below(8) {
	case 6:
		w.daemons = append(w.daemons, &daemon{world: w, name: "B"})
		w.elect = true
	case 7: // by accident: nobody elects a leader
		w.daemons = append(w.daemons, &daemon{world: w, name: "B"})
		w.laws.loose = true
		w.daemons[1].begin()
	}
	w.daemons[0].begin()
	return w
}

// step lets one thing happen.
func (w *world) step() {
	w.steps++
	switch x := w.below(100); {
	case x < 58:
		w.work()
	case x < 78:
		w.live()
	case x < 84:
		w.news()
	case x < 90:
		w.pass()
	default:
		w.disturb()
	}
	w.restartOvertaken()
}

// work lets a daemon go on to its next effect.
func (w *world) work() {
	var ready [8]*thread
	var owners [8]*daemon
	n := 0
	for _, d := range w.daemons {
		for _, t := range d.threads {
			if d.runnable(t) && n < len(ready) {
				ready[n], owners[n] = t, d
				n++
			}
		}
	}
	if n == 0 {
		w.pass()
		return
	}
	i := w.below(n)
	owners[i].resume(ready[i])
}

// restartOvertaken gives daemons a new loop that met a record which knows more.
func (w *world) restartOvertaken() {
	for _, d := range w.overtaken {
		if w.tracing() {
			w.say("daemon %s was overtaken, and reads everything again", d.name)
		}
		d.drop()
		d.load()
	}
	w.overtaken = w.overtaken[:0]
}

// news lets a daemon hear of something.
func (w *world) news() {
	d := w.daemons[w.below(len(w.daemons))]
	if !d.alive || len(d.backend.inbox) == 0 {
		w.work()
		return
	}
	d.backend.deliver(1 + w.below(3))
}

// pass lets time pass: a little, or up to when a daemon wakes.
func (w *world) pass() {
	next := w.nextWake()
	switch x := w.below(4); {
	case x < 2 && next > 0:
		w.now = w.now.Add(next)
	case x == 2:
		w.now = w.now.Add(time.Duration(1+w.below(3000)) * time.Millisecond)
	default:
		w.now = w.now.Add(time.Duration(1+w.below(120)) * time.Second)
	}
}

// nextWake is how long all sleep, 0 if nobody will wake by himself.
func (w *world) nextWake() (least time.Duration) {
	for _, d := range w.daemons {
		for _, t := range d.threads {
			if t.asleep && !t.until.IsZero() {
				if wait := max(t.until.Sub(d.clock()), time.Nanosecond); least == 0 || wait < least {
					least = wait
				}
			}
		}
	}
	return least
}
