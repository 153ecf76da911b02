package runner

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// shouldRetry decides whether an outcome is tried again, and whether that uses
// up the budget. Read from top to bottom it is the specification.
func shouldRetry(r repo.Retry, o *repo.Outcome, so repo.Retries) (retry, accountable bool) {
	transient := o.Class == repo.Transient || o.Class == repo.TransientConflict
	switch {
	case o.Result == repo.Stopped:
		return false, false
	case released(o):
		return true, false
	case o.Result == repo.Succeeded:
		return r.Limit == repo.Always, true
	case r.Mode == repo.ByClass && transient:
		return true, false
	case r.Mode == repo.ByFault && o.Free:
		return true, false
	case r.Mode != repo.ByCount && o.Class == repo.Permanent:
		return false, false
	case r.Limit < 0:
		return true, true
	}
	return so.Accountable < r.Limit, true
}

// backoff is how long to wait before retry number n (from 0). Its jitter comes
// from the identity of what is retried, so that it can be computed again.
func backoff(r repo.Retry, o *repo.Outcome, n int32, identity ...string) time.Duration {
	share := fraction(append(identity, strconv.Itoa(int(n)))...)
	if o.Class == repo.TransientConflict && r.ConflictDelay.Max > 0 {
		span := r.ConflictDelay.Max - r.ConflictDelay.Min
		return r.ConflictDelay.Min + time.Duration(share*float64(span))
	}
	b := r.Backoff
	if b.Initial <= 0 {
		return 0
	}
	wait := float64(b.Initial) * math.Pow(max(b.Factor, 1), float64(n))
	if b.Max > 0 {
		wait = min(wait, float64(b.Max))
	}
	wait = min(wait, float64(24*time.Hour))
	return time.Duration(wait * (0.8 + 0.2*share)) // never longer than Max
}

// retryAt is when the retry of something that ended is due. Ends are known to
// the second, rounded down: a wait is never shorter than it should be.
func retryAt(ended time.Time, wait time.Duration) *metav1.Time {
	if wait > 0 {
		wait = (wait + 2*time.Second - 1).Truncate(time.Second)
	}
	return stamp(ended.Add(wait))
}

// fraction maps an identity to [0, 1).
func fraction(identity ...string) float64 {
	h := fnv.New64a()
	for _, s := range identity {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	x := h.Sum64()
	x ^= x >> 33 // FNV leaves the high bits of short inputs alike
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
