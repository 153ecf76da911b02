package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// reader reads the watched branch for as long as the daemon lives, whoever
// leads. What was pushed while nobody could lead, as the API server was away, is
// known when somebody can.
type reader struct {
	opts   *Options
	source *source
	news   chan struct{} // has room for one: newest is another

	mu     sync.Mutex
	newest *repo.Definitions
}

func newReader(opts *Options, source *source) *reader {
	return &reader{opts: opts, source: source, news: make(chan struct{}, 1)}
}

// read polls until ctx ends. With Once nothing is waited for: a first look that
// fails is an error.
func (d *Daemon) read(ctx context.Context) error {
	for failures := 0; ; {
		defs, err := d.reader.source.Poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if d.opts.Polled != nil {
			d.opts.Polled(defs != nil, err)
		}
		wait := d.opts.Poll
		switch {
		case err != nil && d.opts.Once && d.reader.state() == "":
			return err
		case err != nil:
			failures++
			wait = max(wait, runner.Backoff(failures))
			d.opts.Log.Error().Err(err).Msg("the repository cannot be read; jobs go on")
		case defs != nil:
			failures = 0
			d.reader.take(defs)
			d.passOn(ctx)
		default:
			failures = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-d.opts.Hasten:
			timer.Stop()
		}
	}
}

// passOn tells whoever leads that something is new, as a webhook reaches one of
// several daemons. The leader would find it by itself, but later: so it does not
// matter if nobody can be told.
func (d *Daemon) passOn(ctx context.Context) {
	if d.opts.Election == nil || d.Leads() || d.opts.Election.Healthy() != nil {
		return
	}
	if err := d.opts.Election.Hasten(ctx); err != nil {
		d.opts.Log.Debug().Err(err).Msg("whoever leads cannot be told of a push")
	}
}

// take makes definitions those that a loop is told of.
func (r *reader) take(defs *repo.Definitions) {
	r.mu.Lock()
	r.newest = defs
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
	r.opts.Log.Info().Msg(told(defs))
}

// state says what was read, "" if nothing was.
func (r *reader) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newest == nil {
		return ""
	}
	return told(r.newest)
}

// told is what definitions are in short.
func told(defs *repo.Definitions) string {
	if defs.Revision == "" {
		return "there is no branch to read"
	}
	errs, _ := repo.Split(defs.Problems)
	return fmt.Sprintf("revision %.12s is read: jobs %d, invalid %d, other errors %d", defs.Revision, len(defs.Jobs), len(defs.Invalid), len(errs))
}

// follower tells one loop of all that is read, from what is known already on.
type follower struct {
	*reader
	last *repo.Definitions
}

// Poll implements runner.Source.
func (f *follower) Poll() *repo.Definitions {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.newest == f.last {
		return nil
	}
	f.last = f.newest
	return f.newest
}
