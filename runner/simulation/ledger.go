package simulation

import (
	"context"
	"errors"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// ledger is the status branch as one daemon knows it.
type ledger struct {
	*daemon
	tip    *commit // as it was last heard of
	seen   *commit // as it was last read or written here
	listed *commit // as the last listing of the remote had it
	term   int     // which of all readings of the branch it goes by
}

// moved says whether somebody else has been at the branch.
func (l *ledger) moved() bool { return l.listed != l.seen }

// Load implements runner.Ledger.
func (l *ledger) Load(context.Context) (out []repo.Record, err error) {
	err = l.backend.call("read records", false, l.remote.weather, func() error {
		l.tip, l.seen, l.listed, out = l.remote.head, l.remote.head, l.remote.head, nil
		l.readings++
		l.term = l.readings
		if l.tip == nil {
			return nil
		}
		for _, rec := range l.tip.records {
			out = append(out, *rec)
		}
		slices.SortFunc(out, func(a, b repo.Record) int { return a.Key().Compare(b.Key()) })
		return nil
	})
	return out, err
}

// branch is a state of the branch as runner.Book wants to see it.
type branch struct {
	*commit
	moved bool
}

func (b branch) Touched(repo.Key) bool            { return b.moved }
func (b branch) Record(key repo.Key) *repo.Record { return b.commit.record(key) }

func (b branch) Others(known map[repo.Key]bool) (out []repo.Record) {
	if !b.moved || b.commit == nil {
		return nil
	}
	for key, rec := range b.records {
		if !known[key] {
			out = append(out, *rec)
		}
	}
	return out
}

var errRefused = errors.New("pre-receive hook declined")

// Publish implements runner.Ledger, as a Mirror does it: a push that failed is
// looked into by asking where the branch stands.
func (l *ledger) Publish(_ context.Context, book runner.Book) (pushed bool, err error) {
	for range 4 {
		if l.tracing() {
			l.say("%s: writes on commit %d, of which it has seen %d: %d changes", l.name, l.tip.id(), l.seen.id(), len(book.Changes))
		}
		changes, err := book.Revise(branch{l.tip, l.tip == nil || l.tip != l.seen})
		if err != nil {
			return false, err
		}
		next := l.tip.with(l.name, changes, &book)
		at, err := l.ask()
		if err != nil {
			return false, err
		}
		if at != l.tip {
			l.tip = at
			continue
		}
		if next == nil {
			l.seen = l.tip
			return false, nil
		}
		landed, err := l.push(next)
		if err != nil {
			return false, err
		}
		if landed {
			l.tip, l.seen, l.listed = next, next, next
			return true, nil
		}
	}
	return false, errors.New("others always came first")
}

// ask is where the branch stands.
func (l *ledger) ask() (at *commit, err error) {
	err = l.backend.call("list refs", false, l.remote.weather, func() error {
		at = l.remote.head
		return nil
	})
	return at, err
}

func (l *ledger) push(next *commit) (landed bool, err error) {
	failed := l.backend.call("push", true, l.remote.weather, func() error { return l.receive(next) })
	if failed == nil {
		return true, nil
	}
	at, err := l.ask()
	switch {
	case err != nil:
		return false, err
	case at == next:
		return true, nil
	case at != next.parent:
		l.tip = at
		return false, nil
	}
	return false, failed
}

// receive is the server taking a push, if the branch still stands where it should.
func (l *ledger) receive(next *commit) error {
	r := &l.remote
	switch {
	case r.refuses:
		return errRefused
	case r.head != next.parent:
		return errors.New("fetch first")
	}
	r.head, r.lost = next, nil
	l.laws.overlap(l.world, l.term)
	l.laws.pushed(l.world, next)
	return nil
}
