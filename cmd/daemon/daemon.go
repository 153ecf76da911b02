// Package daemon ties the parts together: a Git remote, the renderer, the
// runner's loop with its backend, and the records. It decides nothing itself.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trainyard/trainyard/render"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/runner/local"
	"github.com/trainyard/trainyard/sync"
)

// Options of a Daemon.
type Options struct {
	Remote       gitsync.RemoteOptions
	Branch       string
	StatusBranch string
	Environment  string
	StateDir     string
	Poll         time.Duration
	Publish      time.Duration
	Once         bool
	AuthorName   string
	AuthorEmail  string
	// Forbidden says why a job must not start, "" if it may. Nil allows all.
	Forbidden func(*repo.Job) string
	// Hasten asks for a poll before its time. It may be nil.
	Hasten <-chan struct{}
	Hooks  runner.Hooks
	// Contended is told how often a push of records lost a race. It may be nil.
	Contended func(times int)
	Local     local.Options
	Log       zerolog.Logger
}

// Daemon serves one environment of one repository.
type Daemon struct {
	opts    Options
	remote  *gitsync.Remote
	mirror  *gitsync.Mirror
	backend *local.Backend
	loop    *runner.Loop
	source  *source
	shared  *shared
	polled  atomic.Bool
}

// Open takes the state directory and what an earlier daemon left in it. It
// does not connect to the remote.
func Open(ctx context.Context, opts Options) (*Daemon, error) {
	d := &Daemon{opts: opts}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	layout := repo.Layout{}
	if opts.StatusBranch == opts.Branch {
		layout.Root = repo.StatusDir
	}
	shared := &shared{layout: layout}
	d.shared = shared
	d.source = &source{
		once: opts.Once, own: layout.Root, mirror: d.mirror, branch: opts.Branch, environment: opts.Environment, renderer: render.New(opts.Environment), shared: shared,
	}
	records := &ledger{
		mirror: d.mirror, branch: opts.StatusBranch, environment: opts.Environment, author: gitsync.Person{Name: opts.AuthorName, Email: opts.AuthorEmail}, shared: shared, log: opts.Log, contended: opts.Contended,
	}
	d.loop = runner.New(d.backend, records, runner.Options{
		Environment: opts.Environment, Poll: opts.Poll, Publish: opts.Publish, Forbidden: opts.Forbidden, Log: opts.Log, Hooks: d.watch(opts.Hooks),
	})
	return d, nil
}

func (d *Daemon) open(ctx context.Context) (err error) {
	if d.remote, err = gitsync.NewRemote(d.opts.Remote); err != nil {
		return err
	}
	if d.mirror, err = gitsync.Open(ctx, gitsync.Options{Dir: filepath.Join(d.opts.StateDir, "git"), Read: d.remote}); err != nil {
		return err
	}
	d.backend, err = local.New(LocalDir(d.opts.StateDir), d.opts.Environment, d.opts.Local)
	return err
}

// LocalDir is where the local runner keeps its pods in a state directory.
func LocalDir(stateDir string) string { return filepath.Join(stateDir, "local") }

// watch notes the first poll, for Ready.
func (d *Daemon) watch(h runner.Hooks) runner.Hooks {
	polled := h.Polled
	h.Polled = func(changed bool, err error) {
		if err == nil {
			d.polled.Store(true)
		}
		if polled != nil {
			polled(changed, err)
		}
	}
	return h
}

// Ready says whether the repository has been read.
func (d *Daemon) Ready() error {
	if !d.polled.Load() {
		return errors.New("the repository has not been read yet")
	}
	return nil
}

// Records are the records as they are now, those that wait for a push too.
func (d *Daemon) Records() []repo.Record { return d.loop.Records() }

// Run serves until ctx ends, or with Once until every job has come to rest.
func (d *Daemon) Run(ctx context.Context) error {
	return d.loop.Run(ctx, d.source, d.opts.Hasten, d.opts.Once)
}

// Unpublished is how many records wait for the remote.
func (d *Daemon) Unpublished() int { return d.loop.Unpublished() }

// Failed names the jobs that have failed, or could not run: their definition
// has errors, or the policy forbids them.
func (d *Daemon) Failed() (failed []string) {
	failed = d.loop.Damaged()
	for _, r := range d.loop.Records() {
		switch {
		case r.Phase == repo.PhaseFailed, r.Phase == repo.PhaseInvalid:
			failed = append(failed, fmt.Sprintf("%s: %s", r.Key(), r.Phase))
		case r.Phase == repo.PhaseWaiting && r.Reason == runner.ReasonForbidden:
			failed = append(failed, fmt.Sprintf("%s: %s", r.Key(), r.Reason))
		}
	}
	return failed
}

// Problems are errors of the repository as a whole: of its settings, of the
// environment's overlay.
func (d *Daemon) Problems() []string { return d.shared.errors() }

// Close lets go of everything. Pods run on.
func (d *Daemon) Close() error {
	var errs []error
	if d.backend != nil {
		errs = append(errs, d.backend.Close())
	}
	if d.mirror != nil {
		errs = append(errs, d.mirror.Close())
	}
	if d.remote != nil {
		d.remote.Close()
	}
	return errors.Join(errs...)
}
