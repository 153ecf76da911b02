package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// errDone ends Run when it was to go on only until everything has come to rest.
var errDone = errors.New("everything has come to rest")

// settling is how long several changes are waited for before a push carries
// them, and settlingMost how long while jobs are being looked at: what a push of
// many jobs starts comes first, and records of jobs that have hardly begun would
// be written once more soon.
const (
	settling     = 100 * time.Millisecond
	settlingMost = 10 * time.Second
)

// systemClock is what tells the time where nobody says otherwise.
var systemClock = time.Now

// Run loads what is known and then keeps going until ctx ends, or with once
// until every job has come to rest and its record is pushed. hasten asks for a
// poll before its time. It waits for all that it started.
func (l *Loop) Run(ctx context.Context, source Source, hasten <-chan struct{}, once bool) error {
	if err := l.untilLoaded(ctx, once); err != nil {
		if ctx.Err() != nil {
			return nil // to be told to end is no failure
		}
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.pollLoop(ctx, source, hasten) })
	group.Go(func() error { return l.publishLoop(ctx, once) })
	group.Go(func() error { return l.watchLoop(ctx) })
	for range l.opts.Workers {
		group.Go(func() error { return l.work(ctx) })
	}
	if once {
		group.Go(func() error { return l.untilSettled(ctx) })
	}
	if err := group.Wait(); err != nil && !errors.Is(err, errDone) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// untilLoaded tries Load until it succeeds: nothing may run before the records are known.
func (l *Loop) untilLoaded(ctx context.Context, once bool) error {
	for failures := 1; ; failures++ {
		err := l.Load(ctx)
		if err == nil || ctx.Err() != nil || once {
			return err
		}
		l.opts.Log.Error().Err(err).Msg("records cannot be read; nothing starts until they can")
		if !sleep(ctx, Backoff(failures), nil) {
			return ctx.Err()
		}
	}
}

// sleep waits for d, or for wake, and says whether ctx is still good.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

func (l *Loop) pollLoop(ctx context.Context, source Source, hasten <-chan struct{}) error {
	for {
		if defs := source.Poll(); defs != nil {
			l.Define(time.Now(), defs)
		}
		if !sleep(ctx, l.opts.Poll, hasten) {
			return ctx.Err()
		}
	}
}

// Step looks at the job whose time came first. If no job's has come it says when
// the next one's does, zero for never.
func (l *Loop) Step(ctx context.Context, now time.Time) (worked bool, next time.Time) {
	key, ok, at := l.queue.next(now)
	if !ok {
		return false, at
	}
	l.Reconcile(ctx, now, key)
	l.queue.done(key)
	poke(l.progress)
	return true, time.Time{}
}

// Overtaken says why this loop must not go on, nil if it may: another daemon
// knows more. It is an *OvertakenError.
func (l *Loop) Overtaken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overtaken
}

// longestSleep is how long a worker sleeps at a time: a clock that was put right,
// or a machine that was suspended, makes a time come sooner than a timer knows.
const longestSleep = 5 * time.Second

// work looks at jobs whose time has come, one after another.
func (l *Loop) work(ctx context.Context) error {
	for {
		now, changed := time.Now(), l.queue.news()
		worked, at := l.Step(ctx, now)
		if worked {
			if l.opts.Hooks.Decided != nil {
				l.opts.Hooks.Decided(time.Since(now))
			}
			if err := cmp.Or(l.Overtaken(), ctx.Err()); err != nil {
				return err
			}
			continue
		}
		wait := longestSleep
		if !at.IsZero() {
			wait = min(wait, at.Sub(now))
		}
		if !sleep(ctx, wait, changed) {
			return ctx.Err()
		}
		if woken := time.Now(); wasSet(now, woken) {
			l.lookAtAll(woken)
		}
	}
}

// wasSet says whether the clock was set between two times, or the machine slept:
// what was to be done at a time may be due now, whatever a timer says.
func wasSet(from, to time.Time) bool {
	by := to.Round(0).Sub(from.Round(0)) - to.Sub(from)
	return by.Abs() > time.Second
}

// lookAtAll is called by each worker that noticed; it is logged once.
func (l *Loop) lookAtAll(now time.Time) {
	const why = "the clock was set, or the machine slept; every job is looked at"
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.jobs {
		l.queue.hasten(key)
	}
	if now.Sub(l.said[why]).Abs() > complaints {
		l.said[why] = now
		l.opts.Log.Warn().Msg(why)
	}
}

// maxPushes is how many pushes in a row may fail, over about two minutes,
// before Run with once gives up: when nothing but the push is waited for.
const maxPushes = 19

// publishLoop pushes at once after a quiet time, and then at most once in an interval.
func (l *Loop) publishLoop(ctx context.Context, once bool) error {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.dirty:
		}
		if !l.settle(ctx) {
			return ctx.Err()
		}
		start := time.Now()
		pushed, err := l.Publish(ctx, start)
		wait, hurry := time.Duration(0), l.hurry
		if pushed {
			wait = l.opts.Publish - time.Since(start)
		}
		if err != nil && ctx.Err() == nil {
			failures++
			if rests, _ := l.resting(start); once && rests && failures >= maxPushes {
				return fmt.Errorf("records cannot be pushed; the pods keep them for the next daemon: %w", err)
			}
			l.opts.Log.Error().Err(err).Msg("records cannot be pushed; they wait, and jobs go on")
			wait, hurry = max(wait, Backoff(failures)), nil
			poke(l.dirty)
		} else {
			failures = 0
		}
		if !sleep(ctx, wait, hurry) {
			return ctx.Err()
		}
	}
}

// settle waits before a push, and says whether ctx is still good.
func (l *Loop) settle(ctx context.Context) bool {
	for range settlingMost / settling {
		if !sleep(ctx, settling, nil) {
			return false
		}
		if !l.queue.busy(time.Now()) {
			break
		}
	}
	return true
}

// Changed has a job looked at whose pods have changed; without a name, all that
// waited for the backend.
func (l *Loop) Changed(key repo.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key == (repo.Key{}) {
		l.again(time.Now(), "")
		return
	}
	l.entry(key)
	l.queue.hasten(key)
}

func (l *Loop) watchLoop(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := l.backend.Watch(ctx, l.Changed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.opts.Log.Error().Err(err).Msg("pods cannot be watched")
		l.mu.Lock()
		for key := range l.jobs { // what changed meanwhile was told to nobody
			l.queue.add(key, time.Now().Add(Backoff(failures)+time.Second))
		}
		l.mu.Unlock()
		if !sleep(ctx, Backoff(failures), nil) {
			return ctx.Err()
		}
	}
}

// patience is how long Run with once is silent about what it waits for.
const patience = 30 * time.Second

// untilSettled returns errDone when every job has come to rest and is
// published. Now and then it logs what it waits for, if that has changed.
func (l *Loop) untilSettled(ctx context.Context) error {
	remind := time.NewTicker(patience)
	defer remind.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-remind.C:
			if text := strings.Join(l.waitsFor(), "; "); text != told && text != "" {
				told = text
				l.opts.Log.Info().Msg("waiting for " + text)
			}
		case <-l.progress:
		}
		switch rests, published := l.resting(time.Now()); {
		case rests && published:
			return errDone
		case rests:
			poke(l.hurry)
		}
	}
}

// waitsFor names what has not come to rest: some jobs, and how many more.
func (l *Loop) waitsFor() (what []string) {
	const most = 5
	l.mu.Lock()
	defer l.mu.Unlock()
	more, unpublished := 0, 0
	for _, e := range l.sorted() {
		switch {
		case e.settled && e.version == e.pushed:
		case e.settled:
			unpublished++
		case len(what) == most:
			more++
		default:
			what = append(what, fmt.Sprintf("%s (%s)", e.key, strings.TrimSuffix(string(e.record.Phase)+": "+e.record.Message, ": ")))
		}
	}
	if more > 0 {
		what = append(what, fmt.Sprintf("%d more jobs", more))
	}
	if unpublished > 0 {
		what = append(what, fmt.Sprintf("%d records to be pushed", unpublished))
	}
	return what
}

// resting says whether every job has come to rest, and whether everything is published.
func (l *Loop) resting(now time.Time) (rests, published bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rests = l.loaded && l.defined && !l.queue.busy(now)
	published = l.generation == l.published
	for _, e := range l.jobs {
		rests, published = rests && e.settled, published && e.version == e.pushed
	}
	return rests, published
}
