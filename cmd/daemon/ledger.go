package daemon

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync/atomic"

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
	// overtaken ends the loop whose records would overwrite newer ones.
	overtaken func(error)
	// seen is the branch's revision as it was last read or written here: at that
	// revision nothing on it is new.
	seen atomic.Value
}

// last is seen, "" before anything was.
func (l *ledger) last() string {
	seen, _ := l.seen.Load().(string)
	return seen
}

// strange says whether a revision of the branch is not ours.
func (l *ledger) strange(revision string) bool { return revision != l.last() }

// Load implements runner.Ledger. A branch that does not exist holds no records.
func (l *ledger) Load(ctx context.Context) ([]repo.Record, error) {
	snap, _, err := l.mirror.Fetch(ctx, l.branch)
	if errors.Is(err, gitsync.ErrNoBranch) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.seen.Store(snap.Revision())
	records, problems := status.Read(snap, l.shared.get(), l.environment)
	for _, p := range problems {
		l.log.Error().Msgf("branch %s: %s", l.branch, p)
	}
	return records, nil
}

// Publish implements runner.Ledger.
func (l *ledger) Publish(ctx context.Context, book runner.Book) (pushed bool, err error) {
	tries, before := 0, l.mirror.At(l.last())
	revision, err := l.mirror.Publish(ctx, gitsync.PublishRequest{
		Branch: l.branch, Author: l.author, When: book.At,
		Build: func(tip *gitsync.Snapshot) (map[string][]byte, string, error) {
			tries++
			touched := l.touched(before, tip)
			if err := l.compare(tip, book.Records, touched); err != nil {
				return nil, "", err
			}
			files, message, err := l.build(tip, book, touched, before)
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
		l.seen.Store(revision)
	case errors.As(err, &newer):
		l.overtaken(newer)
	}
	return pushed && err == nil, err
}

func (l *ledger) build(tip *gitsync.Snapshot, book runner.Book, touched func(dir string) bool, before *gitsync.Snapshot) (map[string][]byte, string, error) {
	in := status.Input{
		Layout: l.shared.get(), Environment: l.environment, Changes: masked(book.Changes), Records: book.Records,
		Notices: book.Notices, Revision: book.Revision,
	}
	if tip != nil {
		in.Tip = tip
	}
	in.Changes = append(in.Changes, others(book)...)
	in.Changes = slices.DeleteFunc(in.Changes, func(c repo.Change) bool {
		return !changes(book, c.Record.Key()) && !touched(in.Layout.RecordDir(l.environment, c.Record.Key()))
	})
	for i := range in.Changes {
		c := &in.Changes[i]
		if dir := in.Layout.RecordDir(l.environment, c.Record.Key()); touched(dir) {
			c.Tails = append(lostTails(&c.Record, dir, before, tip), c.Tails...)
		}
	}
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

// touched says in which records' directories somebody else has been since the
// branch was last read or written here: records there are written again. It is
// all of them if what was there before is not known.
func (l *ledger) touched(before, tip *gitsync.Snapshot) func(dir string) bool {
	switch {
	case tip != nil && tip.Revision() == l.last():
		return func(string) bool { return false }
	case tip == nil || before == nil:
		return func(string) bool { return true }
	}
	list, err := gitsync.Changed(before, tip)
	if err != nil {
		return func(string) bool { return true }
	}
	dirs := map[string]bool{}
	for _, c := range list {
		for dir := c.Path; dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return func(dir string) bool { return dirs[dir] }
}

func changes(book runner.Book, key repo.Key) bool {
	return slices.ContainsFunc(book.Changes, func(c repo.Change) bool { return c.Record.Key() == key })
}

// others are the records that do not change.
func others(book runner.Book) (out []repo.Change) {
	changing := map[repo.Key]bool{}
	for _, c := range book.Changes {
		changing[c.Record.Key()] = true
	}
	for _, r := range book.Records {
		if !changing[r.Key()] {
			out = append(out, repo.Change{Record: r})
		}
	}
	return out
}

// lostTails are the log tails of a record that were on the branch before, and
// somebody has taken away.
func lostTails(r *repo.Record, dir string, before, tip *gitsync.Snapshot) (out []repo.Tail) {
	if before == nil {
		return nil
	}
	each := func(a *repo.TaskAttemptRecord) {
		if a.Log == "" {
			return
		}
		file := path.Join(dir, a.Log)
		if tip != nil && tip.Hash(file) != "" {
			return
		}
		if text, err := before.ReadFile(file); err == nil {
			out = append(out, repo.Tail{Path: a.Log, Text: string(text)})
		}
	}
	of := func(tasks []repo.TaskRecord) {
		for _, t := range tasks {
			for i := range t.Attempts {
				each(&t.Attempts[i])
			}
		}
	}
	for _, role := range r.Roles {
		of(role.Tasks)
	}
	for _, a := range r.Attempts {
		of(a.Tasks)
	}
	return out
}
