package simulation

import (
	"context"
	"errors"
	"iter"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// daemon is a process, or the place of one.
type daemon struct {
	*world
	name    string
	life    int // how often it was started
	alive   bool
	skew    time.Duration // how far its clock is off
	loop    *runner.Loop
	ledger  *ledger
	backend *backend
	threads []*thread
	loaded  bool
	dirty   bool // something may be to be published
	defined int  // revision that the loop has
	// asked is what the loop was told last, decided the same while it looks at a
	// job, if it was told nothing else meanwhile.
	asked, decided *repo.Definitions
}

// thread is one of a daemon's goroutines, as a coroutine: it stops at each of
// its effects until it is resumed, or its daemon is killed there.
type thread struct {
	name   string
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	until  time.Time // asleep until then, as its daemon's clock shows it; zero for good
	asleep bool
	effect *effect // that comes next
}

// killed unwinds a coroutine whose daemon is no more.
type killed struct{}

func (d *daemon) spawn(name string, body func(t *thread)) {
	t := &thread{name: name}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if r := recover(); r != nil && r != any(killed{}) {
				d.laws.breaks("panic: %v\n%s", r, debug.Stack())
			}
		}()
		body(t)
	})
	d.threads = append(d.threads, t)
}

// pause gives the turn back until the thread is resumed.
func (t *thread) pause() {
	if !t.yield(struct{}{}) {
		panic(killed{})
	}
}

// sleep pauses until a time, or until the daemon has news if that is zero.
func (t *thread) sleep(until time.Time) {
	t.asleep, t.until = true, until
	t.pause()
}

// clock is the time as the daemon sees it.
func (d *daemon) clock() time.Time { return d.now.Add(d.skew) }

func (d *daemon) runnable(t *thread) bool {
	return !t.asleep || !t.until.IsZero() && !t.until.After(d.clock())
}

// wake lets all threads look whether there is anything to do.
func (d *daemon) wake() {
	for _, t := range d.threads {
		t.asleep = t.asleep && t.name == "poll"
	}
}

// resume lets a thread go on to its next effect.
func (d *daemon) resume(t *thread) {
	t.asleep = false
	d.turn = t
	t.next()
	d.turn = nil
}

// begin starts the process.
func (d *daemon) begin() {
	d.life++
	d.alive = true
	d.backend = &backend{daemon: d}
	if d.tracing() {
		d.say("daemon %s starts", d.name)
	}
	d.load()
}

// load makes a loop that knows nothing yet.
func (d *daemon) load() {
	d.loaded, d.dirty, d.defined, d.threads = false, false, 0, d.threads[:0]
	d.asked, d.decided = nil, nil
	d.ledger = &ledger{daemon: d}
	d.loop = runner.New(d.backend, d.ledger, runner.Options{Environment: environment, Workers: 1, Parallel: 1, Clock: d.clock, Log: zerolog.Nop()})
	d.spawn("poll", d.poll)
}

// kill ends the process at once. Requests that are on their way may still arrive.
func (d *daemon) kill() {
	d.drop()
	d.alive = false
	d.backend.inbox = nil
	if d.remote.lost != nil {
		d.laws.forgiven = true // the branch is the only store, and somebody took its end away
	}
}

// drop ends all threads where they are.
func (d *daemon) drop() {
	for _, t := range d.threads {
		if e := t.effect; e != nil && e.write {
			switch d.below(3) {
			case 1:
				d.deliverLate(e)
			case 2:
				d.late = append(d.late, e)
			}
		}
		t.stop()
	}
	d.threads = d.threads[:0]
}

var ctx = context.Background()

// poll loads what is known, and then follows the repository.
func (d *daemon) poll(t *thread) {
	for d.loop.Load(ctx) != nil {
		t.sleep(d.clock().Add(time.Second))
	}
	d.loaded = true
	d.spawn("work", d.work)
	d.spawn("publish", d.publish)
	for {
		var defs *repo.Definitions
		revision := 0
		err := d.backend.call("fetch", false, d.remote.weather, func() error {
			revision, defs = d.repository.revision, d.repository.defs
			d.ledger.listed = d.remote.head
			return nil
		})
		if err == nil && revision != d.defined {
			d.defined, d.asked, d.decided = revision, defs, nil
			d.loop.Define(d.clock(), defs)
			d.wake()
			d.dirty = true
		}
		if err == nil && d.ledger.moved() {
			d.loop.Recheck()
			d.wakePublisher()
		}
		t.sleep(d.clock().Add(10 * time.Second))
	}
}

// work looks at jobs whose time has come.
func (d *daemon) work(t *thread) {
	for {
		d.decided = d.asked
		worked, next := d.loop.Step(ctx, d.clock())
		if d.loop.Overtaken() != nil {
			d.overtaken = append(d.overtaken, d)
			t.sleep(time.Time{})
		}
		if worked {
			d.wakePublisher()
			t.pause()
			continue
		}
		t.sleep(next)
	}
}

// wakePublisher has the publisher look for what is new.
func (d *daemon) wakePublisher() {
	d.dirty = true
	for _, t := range d.threads {
		if t.name == "publish" && t.until.IsZero() {
			t.asleep = false
		}
	}
}

// publish pushes what is new.
func (d *daemon) publish(t *thread) {
	for {
		for !d.dirty {
			t.sleep(time.Time{})
		}
		d.dirty = false
		_, err := d.loop.Publish(ctx, d.clock())
		var overtaken *runner.OvertakenError
		switch {
		case errors.As(err, &overtaken):
			d.overtaken = append(d.overtaken, d)
			t.sleep(time.Time{})
		case err != nil:
			d.dirty = true
			t.sleep(d.clock().Add(time.Second))
		default:
			d.wake()
			t.pause()
		}
	}
}
