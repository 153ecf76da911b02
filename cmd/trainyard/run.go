package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard/cmd/daemon"
	"github.com/trainyard/trainyard/cmd/hook"
	"github.com/trainyard/trainyard/cmd/policy"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// runDaemon is the body of `trainyard run`.
func runDaemon(ctx context.Context, o runOptions, s streams) error {
	log := newLogger(s.Err, s.Terminal, o.LogFormat, o.LogLevel)
	forbidden, err := loadPolicy(o.PolicyFile)
	if err != nil {
		return err
	}
	bell := hook.NewBell()
	metrics := hook.NewMetrics(version())
	options := daemon.Options{
		Remote: o.remote(), Branch: o.Branch, StatusBranch: o.StatusBranch, Environment: o.Environment, Repository: identity(&o.remoteOptions), StateDir: o.StateDir,
		Poll: o.Poll, Publish: o.PublishInterval, Once: o.Once, AuthorName: o.AuthorName, AuthorEmail: o.AuthorEmail,
		Forbidden: forbidden, Hasten: bell, Log: log, Hooks: hooks(metrics), Contended: metrics.Contended,
		Polled: func(changed bool, err error) {
			metrics.Synced(time.Now(), err)
			if changed {
				metrics.Rendered()
			}
		},
	}
	if err := chooseRunner(&o, log, bell.Ring, &options); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	d, err := daemon.Open(ctx, options)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	log.Info().Msg("trainyard runs " + o.String())
	err = serveAndRun(ctx, d, o, log, metrics, bell)
	if closed := d.Close(); err == nil {
		err = closed
	}
	if err != nil || !o.Once {
		return err
	}
	return verdict(ctx, d, s)
}

// verdict says how --once has ended.
func verdict(ctx context.Context, d *daemon.Daemon, s streams) error {
	if ctx.Err() != nil {
		return hint(errors.New("run: interrupted before everything has come to its end"), "jobs go on; the same command takes them up again")
	}
	failed, of := d.Failed()
	problems := d.Problems()
	if len(failed) > 0 {
		fmt.Fprintf(s.Err, "trainyard: %d of %d jobs failed: %s\n", len(failed), of, strings.Join(failed, "; "))
	}
	for _, p := range problems {
		fmt.Fprintf(s.Err, "trainyard: %s\n", p)
	}
	if len(failed)+len(problems) > 0 {
		return errProblems
	}
	return nil
}

// serveAndRun runs the daemon, and beside it what --listen asks for.
func serveAndRun(ctx context.Context, d *daemon.Daemon, o runOptions, log zerolog.Logger, metrics *hook.Metrics, bell hook.Bell) error {
	if o.Listen == "" {
		return d.Run(ctx)
	}
	handler, err := newHandler(d, o, metrics, bell)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return hint(fmt.Errorf("run: --listen: %w", err), "is another daemon there already?")
		}
		return hint(fmt.Errorf("run: --listen: %w", err), "give host:port or :port, as in :8080")
	}
	log.Info().Msgf("listening on http://%s", listener.Addr())
	group, inner := errgroup.WithContext(ctx)
	inner, stop := context.WithCancel(inner)
	group.Go(func() error { return hook.Serve(inner, listener, handler) })
	group.Go(func() error {
		defer stop() // the daemon is what this is about: with it the listener ends
		return d.Run(inner)
	})
	return group.Wait()
}

// loadPolicy reads the operator's policy; without a file everything is allowed.
func loadPolicy(file string) (func(*repo.Job) string, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("run: --policy: %w", err)
	}
	p, err := policy.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("run: --policy: %s: %w", file, err)
	}
	return func(job *repo.Job) string {
		var why []string
		for _, e := range p.Check(*job) {
			why = append(why, e.Error())
		}
		return strings.Join(why, "; ")
	}, nil
}

// readSecret reads a secret, without the newline that editors put behind it.
func readSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("run: --webhook-secret-file: %w", err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, errors.New("run: --webhook-secret-file: " + file + " is empty")
	}
	return b, nil
}

// hooks feeds the metrics.
func hooks(m *hook.Metrics) runner.Hooks {
	return runner.Hooks{
		Decided:   m.PassTook,
		Created:   m.AttemptStarted,
		Ended:     m.AttemptEnded,
		Published: func(_ int, err error) { m.Published(err) },
	}
}
