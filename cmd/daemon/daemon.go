// Package daemon ties the parts together: a Git remote, the renderer, the
// runner's loop with its backend, and the records. It decides nothing itself.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/trainyard/trainyard/render"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/sync"
)

// Backend runs pods until it is closed; they outlive it.
type Backend interface {
	runner.Backend
	Close() error
}

// Options of a Daemon.
type Options struct {
	Remote       gitsync.RemoteOptions
	Branch       string
	StatusBranch string
	Environment  string
	// Repository is the identity of a repository that has none on its status
	// branch yet; see repo.RepositoryID.
	Repository  string
	StateDir    string
	Poll        time.Duration
	Publish     time.Duration
	Once        bool
	AuthorName  string
	AuthorEmail string
	// Workers look at jobs at once, and each creates Parallel pods at once; 0 is
	// what suits processes of this machine.
	Workers, Parallel int
	// Forbidden says why a job must not start, "" if it may. Nil allows all.
	Forbidden func(*repo.Job) string
	// Hasten asks for a poll before its time. It may be nil.
	Hasten <-chan struct{}
	Hooks  runner.Hooks
	// Polled is told of each look at the repository. It may be nil.
	Polled func(changed bool, err error)
	// Contended is told how often a push of records lost a race. It may be nil.
	Contended func(times int)
	// Open opens what runs the pods, once the state directory is ours and this
	// daemon leads.
	Open func(stateDir string) (Backend, error)
	// Election lets one of several daemons lead. Without one this daemon does.
	Election Election
	Log      zerolog.Logger
}

// Daemon serves one environment of one repository.
type Daemon struct {
	opts   Options
	remote *gitsync.Remote
	mirror *gitsync.Mirror
	shared *shared
	reader *reader

	mu      sync.Mutex
	backend Backend      // of the present term; nil while another daemon leads
	loop    *runner.Loop // the last one, unless another daemon leads
	records *ledger      // of loop
}

// Open takes the state directory and what an earlier daemon left in it. It
// does not connect to the remote.
func Open(ctx context.Context, opts Options) (*Daemon, error) {
	layout := repo.Layout{}
	if opts.StatusBranch == opts.Branch {
		layout.Root = repo.StatusDir
	}
	d := &Daemon{opts: opts, shared: &shared{layout: layout}}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open(ctx context.Context) (err error) {
	if d.remote, err = gitsync.NewRemote(d.opts.Remote); err != nil {
		return err
	}
	if d.mirror, err = gitsync.Open(ctx, gitsync.Options{Dir: filepath.Join(d.opts.StateDir, "git"), Read: d.remote}); err != nil {
		return err
	}
	d.reader = newReader(&d.opts, &source{
		once: d.opts.Once, own: d.shared.get().Root, mirror: d.mirror, branch: d.opts.Branch, environment: d.opts.Environment,
		renderer: render.New(d.opts.Environment), shared: d.shared, polled: d.recheck,
	})
	return nil
}

// Records are the records as they are now, those that wait for a push too. A
// daemon that does not lead knows none.
func (d *Daemon) Records() []repo.Record {
	if _, loop := d.present(); loop != nil {
		return loop.Records()
	}
	return nil
}

// Unpublished is how many records wait for the remote.
func (d *Daemon) Unpublished() int {
	if _, loop := d.present(); loop != nil {
		return loop.Unpublished()
	}
	return 0
}

// Failed names the jobs that have failed, or could not run, and says why: their
// definition or their record has errors, or the policy forbids them. of is how
// many jobs there are.
func (d *Daemon) Failed() (failed []string, of int) {
	if _, loop := d.present(); loop != nil {
		failed = loop.Damaged()
	}
	records := d.Records()
	of = len(records) + len(failed)
	for _, r := range records {
		switch {
		case r.Phase == repo.PhaseFailed, r.Phase == repo.PhaseInvalid:
			failed = append(failed, because(fmt.Sprintf("%s: %s", r.Key(), r.Phase), r.Message))
		case r.Phase == repo.PhaseWaiting && r.Reason == runner.ReasonForbidden:
			failed = append(failed, because(fmt.Sprintf("%s: %s", r.Key(), r.Reason), r.Message))
		}
	}
	return failed, of
}

// because adds the first line of a record's message to what it says, if it has
// one: with nothing in it that a terminal would obey.
func because(what, message string) string {
	if why, _, _ := strings.Cut(message, "\n"); why != "" {
		return what + ": " + (&repo.Error{Message: why}).Error()
	}
	return what
}

// Problems are errors of the repository as a whole: of its settings, of the
// environment's overlay.
func (d *Daemon) Problems() []string { return d.shared.errors() }

// Close lets go of everything. Pods run on.
func (d *Daemon) Close() error {
	errs := []error{d.end()}
	if d.mirror != nil {
		errs = append(errs, d.mirror.Close())
	}
	if d.remote != nil {
		d.remote.Close()
	}
	return errors.Join(errs...)
}
