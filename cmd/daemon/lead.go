package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/sync"
)

// Election lets one of several daemons lead.
type Election interface {
	// Hold calls lead whenever this daemon has come to lead, with a context that
	// ends when it does not lead any more, until lead returns by itself. When ctx
	// ends, lead is to return soon; only then is the lead given up.
	Hold(ctx context.Context, lead func(term context.Context) error) error
	// Leader names who is known to lead: "" is nobody yet.
	Leader() string
	// Healthy says why it cannot be asked who leads, nil when it can.
	Healthy() error
	// Hasten asks whoever leads to look at the repository soon.
	Hasten(ctx context.Context) error
}

// Run serves until ctx ends, or with Once until every job has come to rest.
// While it does not lead it reads the repository, and starts nothing.
func (d *Daemon) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	group.Go(func() error { return d.read(ctx) })
	group.Go(func() error {
		defer stop()
		if d.opts.Election == nil {
			return d.lead(ctx, context.WithoutCancel(ctx))
		}
		return d.opts.Election.Hold(ctx, func(term context.Context) error { return d.lead(ctx, term) })
	})
	return group.Wait()
}

var errLost = errors.New("another daemon may lead")

// lead runs a loop until ctx or the term ends. Each term has a loop and a
// backend of its own, which read everything again: what earlier ones knew is
// old. So has a daemon that met a record on the branch that knows more than its own.
func (d *Daemon) lead(ctx, term context.Context) error {
	if err := d.begin(); err != nil {
		return err
	}
	for {
		loop, err := d.serve(ctx, term)
		switch {
		case term.Err() != nil:
			return d.forget() // no push after that: the next leader's records are newer
		case isOvertaken(err):
			d.opts.Log.Error().Msg(err.Error() + "; all records are read again")
			if wait(ctx, term) {
				continue
			}
			return d.forget()
		case ctx.Err() != nil:
			d.finish(term, loop)
		}
		return err
	}
}

// begin opens the backend, and end closes it.
func (d *Daemon) begin() error {
	backend, err := d.opts.Open(d.opts.StateDir)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.backend = backend
	return nil
}

func (d *Daemon) end() error {
	d.mu.Lock()
	backend := d.backend
	d.backend = nil
	d.mu.Unlock()
	if backend == nil {
		return nil
	}
	return backend.Close()
}

// recheck has the loop look at the status branch if somebody else has been there.
func (d *Daemon) recheck() {
	d.mu.Lock()
	loop, records := d.loop, d.records
	d.mu.Unlock()
	if loop == nil {
		return
	}
	if tip, known := d.mirror.Listed(d.opts.StatusBranch); known && records.strange(tip) {
		loop.Recheck()
	}
}

// forget drops what was known, besides: another daemon knows better.
func (d *Daemon) forget() error {
	d.mu.Lock()
	d.loop = nil
	d.mu.Unlock()
	return d.end()
}

// present is what runs now, or ran last; both are nil while another daemon leads.
func (d *Daemon) present() (Backend, *runner.Loop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.backend, d.loop
}

// serve runs one loop to its end.
func (d *Daemon) serve(ctx, term context.Context) (*runner.Loop, error) {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(term, func() { stop(errLost) })()
	o := &d.opts
	records := &ledger{
		mirror: d.mirror, branch: o.StatusBranch, environment: o.Environment, author: gitsync.Person{Name: o.AuthorName, Email: o.AuthorEmail},
		shared: d.shared, log: o.Log, contended: o.Contended, overtaken: stop, repository: o.Repository,
	}
	d.mu.Lock()
	records.backend = d.backend
	loop := runner.New(d.backend, records, runner.Options{
		Environment: o.Environment, Workers: o.Workers, Parallel: o.Parallel, Poll: o.Poll, Publish: o.Publish, Forbidden: o.Forbidden, Log: o.Log, Hooks: o.Hooks,
	})
	d.loop, d.records = loop, records
	d.mu.Unlock()
	err := loop.Run(work, &follower{reader: d.reader}, d.reader.news, o.Once)
	if cause := context.Cause(work); isOvertaken(cause) && ctx.Err() == nil {
		return loop, cause
	}
	return loop, err
}

// lastPush is how long a daemon that was asked to end takes to push what it knows.
const lastPush = 5 * time.Second

// finish pushes what was not pushed yet. What does not get there is lost to
// nobody: the pods keep it for the next daemon.
func (d *Daemon) finish(term context.Context, loop *runner.Loop) {
	if loop.Unpublished() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(term, lastPush)
	defer cancel()
	if _, err := loop.Publish(ctx, time.Now()); err != nil {
		d.opts.Log.Warn().Err(err).Msg("the last records cannot be pushed; the pods keep them for the next daemon")
	}
}

// wait lets some time pass, differently long for each of two daemons that
// stand in each other's way, and says whether there is anything to go on with.
func wait(ctx, term context.Context) bool {
	t := time.NewTimer(time.Second + rand.N(time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-term.Done():
	}
	return false
}

// Leads says whether this daemon leads.
func (d *Daemon) Leads() bool {
	backend, _ := d.present()
	return backend != nil
}

// Ready says whether the daemon does what it is there for: it has read the
// repository, and leads, or stands by for the one that does, which it names.
func (d *Daemon) Ready() (state string, err error) {
	read := d.reader.state()
	switch {
	case read == "":
		return "", errors.New("the repository has not been read yet")
	case d.Leads():
		return "ok", nil
	case d.opts.Election == nil:
		return "", errors.New("not started yet")
	}
	leader, trouble := d.opts.Election.Leader(), d.opts.Election.Healthy()
	switch {
	case leader != "" && trouble == nil:
		return fmt.Sprintf("ok: stands by, %s leads; %s", leader, read), nil
	case leader != "":
		return fmt.Sprintf("ok: stands by; %s; who leads is not known at present: %v", read, trouble), nil
	case trouble != nil:
		return "", fmt.Errorf("who leads is not known yet: %w", trouble)
	}
	return "", errors.New("who leads is not known yet")
}

// Healthy says why it is not known what runs, or for a daemon that does not
// lead, who leads; nil when it is.
func (d *Daemon) Healthy() error {
	backend, _ := d.present()
	if backend == nil && d.opts.Election != nil {
		return d.opts.Election.Healthy()
	}
	if b, ok := backend.(interface{ Healthy() error }); ok {
		return b.Healthy()
	}
	return nil
}
