package daemon

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/rs/zerolog"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/status"
	"github.com/trainyard/trainyard/sync"
)

// ledger keeps records on the status branch.
type ledger struct {
	mirror      *gitsync.Mirror
	branch      string
	environment string
	author      gitsync.Person
	shared      *shared
	log         zerolog.Logger
	contended   func(times int)
	// backend runs the pods of the records, and repository is the identity by
	// which it marks them if the branch does not say another one. bound is what
	// they have agreed on; nil if nothing had to be.
	backend    Backend
	repository string
	bound      *repo.Binding
	// overtaken ends the loop whose records would overwrite newer ones.
	overtaken func(error)
	// seen is the branch's revision as it was last read or written here: at that
	// revision nothing on it is new.
	seen string
}

// Load implements runner.Ledger. A branch that does not exist holds no records.
func (l *ledger) Load(ctx context.Context) ([]repo.Record, error) {
	snap, err := l.fetch(ctx)
	if err != nil {
		return nil, err
	}
	settled, err := l.bind(ctx, tree(snap))
	if err != nil {
		return nil, err
	}
	if settled {
		snap, err = l.fetch(ctx)
	}
	if snap == nil {
		return nil, err
	}
	l.seen = snap.Revision()
	records, problems := status.Read(snap, l.shared.get(), l.environment)
	for _, p := range problems {
		l.log.Error().Msgf("branch %s: %s", l.branch, p)
	}
	return records, nil
}

// fetch is the tip of the branch, nil if there is no such branch.
func (l *ledger) fetch(ctx context.Context) (*gitsync.Snapshot, error) {
	snap, _, err := l.mirror.Fetch(ctx, l.branch)
	if errors.Is(err, gitsync.ErrNoBranch) {
		return nil, nil
	}
	return snap, err
}

// Publish implements runner.Ledger.
func (l *ledger) Publish(ctx context.Context, book runner.Book) (pushed bool, err error) {
	tries := 0
	revision, err := l.mirror.Publish(ctx, gitsync.PublishRequest{
		Branch: l.branch, Author: l.author, When: book.At,
		Build: func(tip *gitsync.Snapshot) (map[string][]byte, string, error) {
			tries++
			if err := l.compare(tip, book.Changes); err != nil {
				return nil, "", err
			}
			files, message, err := l.build(tip, book)
			pushed = len(files) > 0
			return files, message, err
		},
	})
	if tries > 1 && l.contended != nil {
		l.contended(tries - 1)
	}
	var newer *overtakenError
	switch {
	case err == nil:
		l.seen = revision
	case errors.As(err, &newer):
		l.overtaken(newer)
	}
	return pushed && err == nil, err
}

func (l *ledger) build(tip *gitsync.Snapshot, book runner.Book) (map[string][]byte, string, error) {
	in := status.Input{
		Layout: l.shared.get(), Environment: l.environment, Changes: masked(book.Changes), Records: book.Records,
		Notices: book.Notices, Revision: book.Revision, Binding: l.bound,
	}
	if tip != nil {
		in.Tip = tip
	}
	in.Changes = append(in.Changes, missing(in.Tip, in.Layout, l.environment, book)...)
	return status.Files(in)
}

// masked are the changes with log tails as they may be read by everybody.
func masked(changes []repo.Change) []repo.Change {
	out := make([]repo.Change, len(changes))
	for i, c := range changes {
		out[i] = repo.Change{Record: c.Record}
		for _, t := range c.Tails {
			out[i].Tails = append(out[i].Tails, repo.Tail{Path: t.Path, Text: status.Tail([]byte(t.Text))})
		}
	}
	return out
}

// missing are records that were published once and are not on the branch any
// more: somebody deleted it, or put an older state of it back.
func missing(tip fs.FS, layout repo.Layout, environment string, book runner.Book) []repo.Change {
	changing := map[repo.Key]bool{}
	for _, c := range book.Changes {
		changing[c.Record.Key()] = true
	}
	var out []repo.Change
	for _, r := range book.Records {
		if changing[r.Key()] {
			continue
		}
		if tip != nil {
			if _, err := fs.Stat(tip, path.Join(layout.RecordDir(environment, r.Key()), repo.StatusFile)); err == nil {
				continue
			}
		}
		out = append(out, repo.Change{Record: r})
	}
	return out
}
