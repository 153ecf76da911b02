package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

var crashes = flag.Int("crashes", 0, "how many times TestCrashSoak kills the program; without it, for as long as -soak says")

// worldsAtOnce: most of a world's time is waiting.
const worldsAtOnce = 6

// TestCrash kills the program at every point that it has, and at every ordered
// pair of those around the effects that matter most. Whatever is killed, no task
// attempt starts twice, no outcome and no log is lost, nothing is left behind,
// and the next daemon works at once.
func TestCrash(t *testing.T) {
	plans := []plan{(*crashWorld).playCron}
	for _, points := range append(plansOfAll(rand.New(rand.NewPCG(*chaosSeed, 0))), plansOfPairs(mostImportant(), 12)...) {
		plans = append(plans, follow(points))
	}
	r := &crashRun{binary: buildArmed(t), passed: map[string]bool{}}
	r.all(t, plans)
	if t.Failed() {
		return
	}
	r.tell(t)
	require.GreaterOrEqual(t, r.kills, 300)
	known := map[string]bool{}
	for _, p := range crash.Points() {
		known[p.String()] = true
		assert.True(t, r.passed[p.String()], "%s was never passed", p)
	}
	for p := range r.passed {
		assert.True(t, known[p], "%s is passed, and not in the list", p)
	}
}

// TestCrashSoak does the same with any points one after another, as often as is asked for.
func TestCrashSoak(t *testing.T) {
	if *crashes == 0 && *soak == 0 {
		t.Skip("runs with -crashes 5000 or -soak 30m alone")
	}
	r := &crashRun{binary: buildArmed(t), passed: map[string]bool{}}
	defer r.tell(t)
	end, points := time.Now().Add(*soak), crash.Points()
	for seed := *chaosSeed; !t.Failed() && (r.kills < *crashes || time.Now().Before(end)); seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		var plans []plan
		for range worldsAtOnce {
			some := make([]crash.Point, 12+rng.IntN(12))
			for i := range some {
				some[i] = points[rng.IntN(len(points))]
			}
			plans = append(plans, follow(some))
		}
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { r.all(t, plans) })
	}
}

// plan is what is done to a world.
type plan func(*crashWorld)

func follow(points []crash.Point) plan { return func(x *crashWorld) { x.play(points) } }

// buildArmed builds the program with its crash points.
func buildArmed(t *testing.T) string {
	armed := filepath.Join(t.TempDir(), "trainyard")
	out, err := exec.Command("go", "build", "-tags", "crashpoints", "-o", armed, "../cmd/trainyard").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return armed
}

// mostImportant are the points around what the promise rests on.
func mostImportant() []crash.Point {
	d := func(e crash.Effect, m crash.Moment) crash.Point {
		return crash.Point{Kind: crash.Daemon, Effect: e, Moment: m}
	}
	return []crash.Point{
		d(crash.PodCreate, crash.Before), d(crash.PodCreate, crash.After),
		d(crash.PodDelete, crash.Before), d(crash.PodDelete, crash.After),
		{Kind: crash.Shim, Effect: crash.PodEnd, Moment: crash.Before}, {Kind: crash.Shim, Effect: crash.PodEnd, Moment: crash.After},
		d(crash.ObjectWrite, crash.Before), d(crash.ObjectWrite, crash.After),
		d("file-packed-refs", crash.Before), d("file-packed-refs", crash.After),
		d(crash.Push, crash.Before), d(crash.Push, crash.Half), d(crash.Push, crash.After),
		d(crash.PodRelease, crash.Before), d(crash.PodRelease, crash.After),
	}
}

// plansOfAll has every point once, in some order.
func plansOfAll(rng *rand.Rand) (plans [][]crash.Point) {
	points := crash.Points()
	rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	return slices.Collect(slices.Chunk(points, 12))
}

// plansOfPairs has every point after every other, and after itself: a walk over
// all pairs, cut into pieces that overlap by one.
func plansOfPairs(points []crash.Point, size int) (plans [][]crash.Point) {
	next := make([]int, len(points)) // how many of the pairs that begin with it were walked
	walk, stack := []int{}, []int{0}
	for len(stack) > 0 { // Hierholzer's way through a complete graph with loops
		at := stack[len(stack)-1]
		if next[at] == len(points) {
			walk, stack = append(walk, at), stack[:len(stack)-1]
			continue
		}
		next[at]++
		stack = append(stack, (at+next[at])%len(points))
	}
	slices.Reverse(walk)
	for len(walk) > 1 {
		n := min(size+1, len(walk))
		plan := make([]crash.Point, n)
		for i := range plan {
			plan[i] = points[walk[i]]
		}
		plans, walk = append(plans, plan), walk[n-1:]
	}
	return plans
}

// crashRun is many worlds, some at once, and what they have come to.
type crashRun struct {
	binary string

	mu      sync.Mutex
	kills   int
	worlds  int
	passed  map[string]bool
	slowest time.Duration // from a daemon's start to the first work of a new job
	longest time.Duration // from a daemon's start to its next crash
	took    time.Duration
}

// all plays the plans, each in a world of its own.
func (r *crashRun) all(t *testing.T, plans []plan) {
	began := time.Now()
	todo := make(chan int, len(plans))
	for i := range plans {
		todo <- i
	}
	close(todo)
	var workers sync.WaitGroup
	for range worldsAtOnce {
		workers.Go(func() {
			for i := range todo {
				t.Run(fmt.Sprintf("world-%d", i), func(t *testing.T) {
					x := newCrashWorld(t, r.binary, i)
					plans[i](x)
					r.add(x)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
	workers.Wait()
	r.took += time.Since(began)
}

func (r *crashRun) add(x *crashWorld) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills += len(x.killed())
	r.worlds++
	r.slowest, r.longest = max(r.slowest, x.slowest), max(r.longest, x.longest)
	passed, _ := os.ReadDir(filepath.Join(x.temp, crashDir, "passed"))
	for _, p := range passed {
		r.passed[p.Name()] = true
	}
}

func (r *crashRun) tell(t *testing.T) {
	what := "nothing was found"
	if t.Failed() {
		what = "something was found"
	}
	fmt.Printf("crash: %d kills in %d worlds in %.0fs, %d points passed; after the last of each world a new job began within %.1fs, and every daemon came to its next kill within %.1fs: %s\n",
		r.kills, r.worlds, r.took.Seconds(), len(r.passed), r.slowest.Seconds(), r.longest.Seconds(), what)
}
