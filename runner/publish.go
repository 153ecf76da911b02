package runner

import (
	"context"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Publish pushes every record that changed since the last push, in one
// commit, and then looks again at the jobs whose pods it held up. pushed is
// false when there was nothing new.
func (l *Loop) Publish(ctx context.Context, now time.Time) (pushed bool, err error) {
	l.mu.Lock()
	if !l.loaded || !l.defined || l.generation == l.published {
		l.mu.Unlock()
		return false, nil
	}
	generation := l.generation
	book := Book{At: now, Revision: l.revision, Notices: l.notices}
	versions := map[*entry]int64{}
	for _, e := range l.sorted() {
		if e.record.Phase == "" {
			continue
		}
		book.Records = append(book.Records, e.record)
		if e.version != e.pushed {
			versions[e] = e.version
			book.Changes = append(book.Changes, repo.Change{Record: e.record, Tails: tails(e)})
		}
	}
	l.mu.Unlock()

	pushed, err = l.ledger.Publish(ctx, book)
	if l.opts.Hooks.Published != nil {
		l.opts.Hooks.Published(len(book.Changes), err)
	}
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published = generation
	for i := range book.Changes {
		e := l.jobs[book.Changes[i].Record.Key()]
		e.pushed, e.published = versions[e], &book.Changes[i].Record
		forgetTails(e, book.Changes[i].Tails)
		l.queue.add(e.key, now)
	}
	poke(l.progress)
	return pushed, nil
}

// Republish asks for a push although nothing has changed here: somebody else
// was where the records lie.
func (l *Loop) Republish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed()
}

// tails are the log tails that a record refers to and that were not pushed yet.
func tails(e *entry) (out []repo.Tail) {
	e.attempts(func(a *repo.TaskAttemptRecord) {
		if text := e.tails[a.Pod]; a.Log != "" && text != "" {
			out = append(out, repo.Tail{Path: a.Log, Text: text})
		}
	})
	return out
}

// forgetTails drops tails that have reached the remote.
func forgetTails(e *entry, pushed []repo.Tail) {
	paths := map[string]bool{}
	for _, t := range pushed {
		paths[t.Path] = true
	}
	e.attempts(func(a *repo.TaskAttemptRecord) {
		if paths[a.Log] {
			delete(e.tails, a.Pod)
		}
	})
}

// Unpublished is how many records wait for the remote.
func (l *Loop) Unpublished() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.jobs {
		if e.version != e.pushed {
			n++
		}
	}
	return n
}
