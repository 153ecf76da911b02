// Package changes carries word from a backend that a job's pods have changed to
// whoever watches them.
package changes

import (
	"context"
	"maps"
	"sync"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Feed collects the jobs of which there is news until each watch has looked. What
// is told while nobody watches is kept for the first who does: a daemon acts as
// soon as it knows its jobs, and its own acts are news too. The zero value is ready.
type Feed struct {
	mu      sync.Mutex
	watches map[*watch]struct{}
	untold  map[repo.Key]struct{}
}

type watch struct {
	keys   map[repo.Key]struct{}
	signal chan struct{} // has room for one
}

// Tell lets every watch know of a job. It never waits.
func (f *Feed) Tell(key repo.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) == 0 {
		if f.untold == nil {
			f.untold = map[repo.Key]struct{}{}
		}
		f.untold[key] = struct{}{}
	}
	for w := range f.watches {
		w.keys[key] = struct{}{}
		w.wake()
	}
}

func (w *watch) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Watch calls changed with each key that it is told, once for many times in a row,
// until ctx ends. It returns the error of ctx.
func (f *Feed) Watch(ctx context.Context, changed func(repo.Key)) error {
	w := f.open()
	defer f.close(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.signal:
		}
		for key := range f.take(w) {
			changed(key)
		}
	}
}

func (f *Feed) open() *watch {
	w := &watch{keys: map[repo.Key]struct{}{}, signal: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches == nil {
		f.watches = map[*watch]struct{}{}
	}
	f.watches[w] = struct{}{}
	maps.Copy(w.keys, f.untold)
	f.untold = nil
	w.wake()
	return w
}

func (f *Feed) close(w *watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, w)
}

func (f *Feed) take(w *watch) map[repo.Key]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := w.keys
	w.keys = map[repo.Key]struct{}{}
	return keys
}
