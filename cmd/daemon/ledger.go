package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
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
	l.seen.Store(snap.Revision())
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
	tries, before := 0, l.mirror.At(l.last())
	revision, err := l.mirror.Publish(ctx, gitsync.PublishRequest{
		Branch: l.branch, Author: l.author, When: book.At,
		Build: func(tip *gitsync.Snapshot) (map[string][]byte, string, error) {
			tries++
			files, message, err := l.build(tip, before, book)
			pushed = len(files) > 0
			return files, message, err
		},
	})
	if tries > 1 && l.contended != nil {
		l.contended(tries - 1)
	}
	switch {
	case err == nil:
		l.seen.Store(revision)
	case isOvertaken(err):
		l.overtaken(err)
	}
	return pushed && err == nil, err
}

func (l *ledger) build(tip, before *gitsync.Snapshot, book runner.Book) (map[string][]byte, string, error) {
	tree := branch{layout: l.shared.get(), environment: l.environment, tip: tip}
	if tip == nil || tip.Revision() != l.last() {
		if err := l.rebound(tip); err != nil {
			return nil, "", err
		}
		tree.compare(before)
	}
	changes, err := book.Revise(&tree)
	if err != nil {
		return nil, "", fmt.Errorf("branch %s: %w", l.branch, err)
	}
	for i := range changes {
		c := &changes[i]
		if key := c.Record.Key(); tree.Touched(key) {
			c.Tails = append(lostTails(&c.Record, tree.layout.RecordDir(l.environment, key), before, tip), c.Tails...)
		}
	}
	in := status.Input{
		Layout: tree.layout, Environment: l.environment, Changes: masked(changes), Records: book.Records,
		Notices: book.Notices, Revision: book.Revision, Binding: l.bound,
	}
	if tip != nil {
		in.Tip = tip
	}
	if tree.moved && before != nil {
		in.Before = before
	}
	return status.Files(in)
}

// branch is what a commit of the status branch holds.
type branch struct {
	layout      repo.Layout
	environment string
	tip         *gitsync.Snapshot // nil for none
	// moved says that somebody else has been at it, and paths where, if that is known.
	moved bool
	paths map[string]bool
}

// compare finds out what has changed since a state of the branch, nil for none.
func (b *branch) compare(base *gitsync.Snapshot) {
	b.moved = true
	if base == nil || b.tip == nil {
		return
	}
	changes, err := gitsync.Changed(base, b.tip)
	if err != nil {
		return // then it may be anything
	}
	b.paths = make(map[string]bool, len(changes))
	for _, c := range changes {
		for dir := path.Dir(c.Path); dir != "." && !b.paths[dir]; dir = path.Dir(dir) {
			b.paths[dir] = true
		}
	}
}

// Touched implements runner.Branch.
func (b *branch) Touched(key repo.Key) bool {
	return b.moved && (b.paths == nil || b.paths[b.layout.RecordDir(b.environment, key)])
}

// Others implements runner.Branch.
func (b *branch) Others(known map[repo.Key]bool) (out []repo.Record) {
	switch {
	case !b.moved || b.tip == nil:
		return nil
	case b.paths == nil:
		out, _ = status.Read(b.tip, b.layout, b.environment)
	}
	root := b.layout.EnvironmentDir(b.environment) + "/"
	for dir := range b.paths {
		if !strings.HasPrefix(dir, root) {
			continue
		}
		if text, err := fs.ReadFile(b.tip, path.Join(dir, repo.StatusFile)); err == nil {
			if rec, err := status.Decode(text); err == nil {
				out = append(out, rec)
			}
		}
	}
	return slices.DeleteFunc(out, func(r repo.Record) bool { return known[r.Key()] })
}

// Record implements runner.Branch.
func (b *branch) Record(key repo.Key) *repo.Record {
	if b.tip == nil {
		return nil
	}
	dir := b.layout.RecordDir(b.environment, key)
	text, err := fs.ReadFile(b.tip, path.Join(dir, repo.StatusFile))
	if err != nil {
		return nil
	}
	rec, err := status.Decode(text)
	if err != nil {
		return nil // nobody can read it, so it knows nothing
	}
	if text, err := fs.ReadFile(b.tip, path.Join(dir, repo.HistoryFile)); err == nil {
		rec.History, _ = status.DecodeHistory(repo.HistoryFile, text)
	}
	return &rec
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
