package runner

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// naiveRetry writes FrameworkController's table of retries, and our two other
// modes, as a list of questions without order.
func naiveRetry(r repo.Retry, o *repo.Outcome, so repo.Retries) (retry, accountable bool) {
	if o.Result == repo.Stopped {
		return false, false
	}
	if o.Result == repo.Succeeded {
		return r.Limit == -2, true
	}
	transient := o.Class == "Transient" || o.Class == "TransientConflict"
	free := map[repo.RetryMode]bool{repo.ByClass: transient, repo.ByFault: o.Free, repo.ByCount: false}[r.Mode]
	hopeless := o.Class == "Permanent" && r.Mode != repo.ByCount && !free
	left := r.Limit == -1 || r.Limit == -2 || so.Accountable < r.Limit
	return free || (!hopeless && left), !free && !hopeless
}

func TestShouldRetryEverything(t *testing.T) {
	for _, mode := range []repo.RetryMode{repo.ByFault, repo.ByClass, repo.ByCount} {
		for _, class := range []repo.Class{repo.Transient, repo.TransientConflict, repo.Permanent, repo.Unknown} {
			for _, limit := range []int32{repo.Always, repo.Unlimited, 0, 1, 3} {
				for _, result := range []repo.Result{repo.Succeeded, repo.Failed, repo.Stopped} {
					for _, free := range []bool{false, true} {
						for used := range int32(5) {
							r := repo.Retry{Limit: limit, Mode: mode}
							o := repo.Outcome{Result: result, Class: class, Free: free}
							so := repo.Retries{Total: used + 7, Accountable: used}
							retry, accountable := shouldRetry(r, &o, so)
							wantRetry, wantAccountable := naiveRetry(r, &o, so)
							name := fmt.Sprint(mode, " ", class, " limit ", limit, " ", result, " free ", free, " used ", used)
							assert.Equal(t, wantRetry, retry, name)
							if retry {
								assert.Equal(t, wantAccountable, accountable, name)
							}
						}
					}
				}
			}
		}
	}
}

func TestShouldRetry(t *testing.T) {
	failed := func(c repo.Class, free bool) repo.Outcome {
		return repo.Outcome{Result: repo.Failed, Class: c, Free: free}
	}
	for _, row := range []struct {
		rule        string
		mode        repo.RetryMode
		limit       int32
		outcome     repo.Outcome
		used        int32
		retry, uses bool
	}{
		{"0: what was stopped is not retried", repo.ByClass, repo.Always, repo.Outcome{Result: repo.Stopped}, 0, false, false},
		{"1: fancy, conflict: free", repo.ByClass, 0, failed(repo.TransientConflict, false), 9, true, false},
		{"2: fancy, transient: free, without limit", repo.ByClass, 0, failed(repo.Transient, false), 9, true, false},
		{"3: fancy, permanent: never", repo.ByClass, repo.Always, failed(repo.Permanent, false), 0, false, false},
		{"4: -2 retries a success too", repo.ByClass, repo.Always, repo.Outcome{Result: repo.Succeeded}, 9, true, true},
		{"5: -1 retries a failure", repo.ByClass, repo.Unlimited, failed(repo.Unknown, false), 9, true, true},
		{"5: -1 does not retry a success", repo.ByClass, repo.Unlimited, repo.Outcome{Result: repo.Succeeded}, 0, false, false},
		{"6: the last of the budget", repo.ByClass, 3, failed(repo.Unknown, false), 2, true, true},
		{"7: the budget is used up", repo.ByClass, 3, failed(repo.Unknown, false), 3, false, false},
		{"plain: permanent counts like any", repo.ByCount, 3, failed(repo.Permanent, false), 2, true, true},
		{"plain: transient uses the budget", repo.ByCount, 3, failed(repo.Transient, true), 3, false, false},
		{"plain: a free one uses the budget", repo.ByCount, 3, failed(repo.Transient, true), 2, true, true},
		{"by fault: preemption is free", repo.ByFault, 0, failed(repo.Transient, true), 9, true, false},
		{"by fault: free wins over permanent", repo.ByFault, 0, failed(repo.Permanent, true), 0, true, false},
		{"by fault: transient alone uses the budget", repo.ByFault, 1, failed(repo.Transient, false), 0, true, true},
		{"by fault: permanent is not retried", repo.ByFault, repo.Unlimited, failed(repo.Permanent, false), 0, false, false},
	} {
		retry, uses := shouldRetry(repo.Retry{Limit: row.limit, Mode: row.mode}, &row.outcome, repo.Retries{Total: row.used, Accountable: row.used})
		assert.Equal(t, row.retry, retry, row.rule)
		if row.retry {
			assert.Equal(t, row.uses, uses, row.rule)
		}
	}
}

func TestBackoffGrows(t *testing.T) {
	s := time.Second
	for _, row := range []struct {
		rule    string
		backoff repo.Backoff
		n       int32
		most    time.Duration // without jitter; the least is 0.8 of it
	}{
		{"zero value: at once", repo.Backoff{}, 5, 0},
		{"no initial: at once, whatever the rest", repo.Backoff{Factor: 2, Max: s}, 5, 0},
		{"first", repo.Backoff{Initial: 10 * s, Factor: 2, Max: 600 * s}, 0, 10 * s},
		{"second", repo.Backoff{Initial: 10 * s, Factor: 2, Max: 600 * s}, 1, 20 * s},
		{"sixth", repo.Backoff{Initial: 10 * s, Factor: 2, Max: 600 * s}, 5, 320 * s},
		{"capped", repo.Backoff{Initial: 10 * s, Factor: 2, Max: 600 * s}, 6, 600 * s},
		{"capped far out, without overflow", repo.Backoff{Initial: 10 * s, Factor: 2, Max: 600 * s}, 1 << 30, 600 * s},
		{"cap below initial", repo.Backoff{Initial: 10 * s, Factor: 2, Max: 5 * s}, 0, 5 * s},
		{"no factor: always the same", repo.Backoff{Initial: 10 * s}, 9, 10 * s},
		{"a factor below 1 does not shrink", repo.Backoff{Initial: 10 * s, Factor: 0.1}, 9, 10 * s},
		{"no cap: a day at most", repo.Backoff{Initial: 10 * s, Factor: 10}, 400, 24 * time.Hour},
	} {
		seen := map[time.Duration]bool{}
		for i := range 200 {
			id := fmt.Sprint("run-", i)
			wait := backoff(repo.Retry{Backoff: row.backoff}, &repo.Outcome{}, row.n, id, "worker-0")
			assert.LessOrEqual(t, wait, row.most, row.rule)
			assert.GreaterOrEqual(t, wait, row.most*8/10, row.rule)
			assert.Equal(t, wait, backoff(repo.Retry{Backoff: row.backoff}, &repo.Outcome{}, row.n, id, "worker-0"), "the same each time")
			seen[wait] = true
		}
		if row.most > 0 {
			assert.Greater(t, len(seen), 190, "%s: jitter differs by identity", row.rule)
		}
	}
}

// The values themselves must not change between versions and machines: a
// record that is computed again has to come out the same.
func TestBackoffIsFixed(t *testing.T) {
	r := repo.Retry{Backoff: repo.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 10 * time.Minute}}
	var got []time.Duration
	for n := range int32(3) {
		got = append(got, backoff(r, &repo.Outcome{}, n, "mnist-abcdefghij", "worker-0").Truncate(time.Millisecond))
	}
	assert.Equal(t, []time.Duration{9336 * time.Millisecond, 17734 * time.Millisecond, 39289 * time.Millisecond}, got)
	assert.NotEqual(t, backoff(r, &repo.Outcome{}, 0, "a", "bc"), backoff(r, &repo.Outcome{}, 0, "ab", "c"), "parts of an identity are kept apart")
}

func TestConflictDelay(t *testing.T) {
	span := repo.Span{Min: 60 * time.Second, Max: 900 * time.Second}
	r := repo.Retry{ConflictDelay: span, Backoff: repo.Backoff{Initial: time.Hour}}
	low, high := time.Hour, time.Duration(0)
	for i := range 2000 {
		wait := backoff(r, &repo.Outcome{Class: repo.TransientConflict}, 0, fmt.Sprint(i))
		low, high = min(low, wait), max(high, wait)
	}
	assert.GreaterOrEqual(t, low, span.Min)
	assert.LessOrEqual(t, high, span.Max)
	assert.Less(t, low, 70*time.Second, "the span is used from one end")
	assert.Greater(t, high, 890*time.Second, "to the other")
	assert.Greater(t, backoff(r, &repo.Outcome{Class: repo.Transient}, 0, "x"), 45*time.Minute, "other classes use the back-off")
	fixed := repo.Retry{ConflictDelay: repo.Span{Min: 5 * time.Second, Max: 5 * time.Second}}
	assert.Equal(t, 5*time.Second, backoff(fixed, &repo.Outcome{Class: repo.TransientConflict}, 0, "x"))
}

// A retry that was planned while the clock was ahead waits no longer than it
// would have waited.
func TestClockThatWasAhead(t *testing.T) {
	for _, limits := range [][2]int32{{1, 0}, {0, 1}} { // of the task, of the run
		w := pushed(t, single, budgets(repo.ByFault, limits[0], limits[1]), func(j *repo.Job) {
			j.Retry.Backoff = repo.Backoff{Initial: 10 * time.Second}
			j.Roles[0].Retry.Backoff = j.Retry.Backoff
		})
		w.settle()
		w.sleep(time.Hour) // by which the clock is ahead
		w.end("main-0", 1)
		w.settle()
		require.Len(t, w.starts, 1)
		w.sleep(-time.Hour)
		w.settle()
		w.sleep(13 * time.Second)
		w.settle()
		require.Len(t, w.starts, 2, "limits %v", limits)
	}
}
