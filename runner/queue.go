package runner

import (
	"container/heap"
	"sync"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// queue holds the jobs that are to be looked at, each with the time of it. A
// job is handed out to one worker at a time; what comes in meanwhile waits.
type queue struct {
	mu      sync.Mutex
	items   map[repo.Key]*item
	waiting itemHeap
	changed chan struct{} // closed, and replaced, when something came in
}

type item struct {
	key   repo.Key
	at    time.Time
	index int       // in the heap; -1 while it is handed out
	again time.Time // asked for while handed out
}

func newQueue() *queue {
	return &queue{items: map[repo.Key]*item{}, changed: make(chan struct{})}
}

// add asks for a job to be looked at, at a time or earlier.
func (q *queue) add(key repo.Key, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	switch {
	case it == nil:
		it = &item{key: key, at: at}
		q.items[key] = it
		heap.Push(&q.waiting, it)
	case it.index < 0:
		if it.again.IsZero() || at.Before(it.again) {
			it.again = at
		}
		return
	case at.Before(it.at):
		it.at = at
		heap.Fix(&q.waiting, it.index)
	default:
		return
	}
	close(q.changed)
	q.changed = make(chan struct{})
}

// hasten asks for a job to be looked at before all that only wait for their
// turn: pods that ended come before new ones.
func (q *queue) hasten(key repo.Key) { q.add(key, time.Unix(0, 0)) }

// next hands out a job whose time has come. If there is none it returns when
// the next one's is, zero for never.
func (q *queue) next(now time.Time) (key repo.Key, ok bool, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return repo.Key{}, false, time.Time{}
	}
	it := q.waiting[0]
	if it.at.After(now) {
		return repo.Key{}, false, it.at
	}
	heap.Pop(&q.waiting)
	return it.key, true, time.Time{}
}

// news is closed when the next job comes in.
func (q *queue) news() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// done takes a job back that was handed out.
func (q *queue) done(key repo.Key) {
	q.mu.Lock()
	again := time.Time{}
	if it := q.items[key]; it != nil {
		again = it.again
		delete(q.items, key)
	}
	q.mu.Unlock()
	if !again.IsZero() {
		q.add(key, again)
	}
}

// busy says whether a job is handed out or its time has come.
func (q *queue) busy(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 && !q.waiting[0].at.After(now) {
		return true
	}
	return len(q.items) > len(q.waiting)
}

type itemHeap []*item

func (h itemHeap) Len() int      { return len(h) }
func (h itemHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *itemHeap) Push(x any)   { it := x.(*item); it.index = len(*h); *h = append(*h, it) }

// Less is by time, and at the same time by key: the order never depends on chance.
func (h itemHeap) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].key.Compare(h[j].key) < 0
}

func (h *itemHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	it.index = -1
	*h = old[:len(old)-1]
	return it
}
