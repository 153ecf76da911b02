package hook

import (
	"sync"
	"time"
)

// bucket lets size requests through at once and one more each interval.
type bucket struct {
	mu   sync.Mutex
	now  func() time.Time
	each time.Duration
	size time.Duration // as the time that fills it
	full time.Time     // when it is full again
}

func newBucket(size int, each time.Duration, now func() time.Time) *bucket {
	return &bucket{now: now, each: each, size: time.Duration(size) * each}
}

func (b *bucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.full.Before(now) {
		b.full = now
	}
	if b.full.Sub(now) > b.size-b.each {
		return false
	}
	b.full = b.full.Add(b.each)
	return true
}

// Bell passes requests to hasten on: any number of rings before somebody
// listens are one.
type Bell chan struct{}

// NewBell makes a Bell.
func NewBell() Bell { return make(Bell, 1) }

// Ring never blocks.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
