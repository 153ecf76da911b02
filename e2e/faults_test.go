package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

var faultRounds = flag.Int("fault-rounds", 1, "how often TestFaults goes through its table, each time with another seed")

// outside is something that goes wrong around a daemon.
type outside struct {
	name string
	// needs says why it cannot be brought about here, "" if it can. It may be nil.
	needs func(t testing.TB) string
	// prepare comes before the daemon starts. It may be nil.
	prepare func(y *yard)
	flags   []string
	// begin brings it about, and end puts an end to it.
	begin func(y *yard) (end func())
	deaf  bool // nobody can push while it lasts
	ends  bool // the daemon, or what it needs to go on
	harm
}

// again is how soon everything has to work again after a fault has ended.
const again = 10 * time.Second

// sideBySide is how many worlds live at a time: mostly they wait.
const sideBySide = 6

// outcomeOf is a line of the table: what a fault did.
type outcomeOf struct {
	fault          string
	lasted         time.Duration
	starts         time.Duration // from its end to the start of a job pushed then
	recorded       time.Duration // and to the record of a job that had ended meanwhile
	attempts, lost int
	failed         bool
}

// TestFaults: whatever goes wrong around the daemon costs time only, and when
// it is over all goes on by itself within ten seconds.
func TestFaults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var done []outcomeOf
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for round := range *faultRounds {
		for _, f := range faultsFromOutside() {
			group.Go(func() error {
				t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(f.name, " ", "-"), *chaosSeed+uint64(round)), func(t *testing.T) {
					why := ""
					if f.needs != nil {
						why = f.needs(t)
					}
					if why != "" {
						t.Skip(why)
					}
					out := &outcomeOf{fault: f.name}
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						out.failed = t.Failed()
						done = append(done, *out)
					}()
					suffer(t, f, *chaosSeed+uint64(round), out)
				})
				return nil
			})
		}
	}
	require.NoError(t, group.Wait())
	t.Log("\n" + tableOf(done))
}

func faultsFromOutside() []outside {
	return slices.Concat(serverFaults(), recordFaults(), processFaults(), stateFaults(), machineFaults(), clockFaults())
}

// suffer is the one scheme of all faults.
func suffer(t *testing.T, f outside, seed uint64, out *outcomeOf) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.name))
	y := newYard(t, seed^h.Sum64())
	defer func() {
		if t.Failed() {
			t.Logf("again with -seed %d; what was done:\n%s", seed, y.failed())
		}
	}()
	if f.prepare != nil {
		f.prepare(y)
	}
	y.add(
		&yardJob{name: "before", lasts: 100 * time.Millisecond}, &yardJob{name: "meanwhile", gated: true, replicas: 2}, &yardJob{name: "through", gated: true},
		&yardJob{name: "fails", code: 3, retries: 2, lasts: y.short(200*time.Millisecond, 2*time.Second)},
		&yardJob{name: "any", lasts: y.short(500*time.Millisecond, 6*time.Second)}, &yardJob{name: "breaks", code: 4, gated: true},
	)
	y.serve(f.flags...)
	began := time.Now()
	y.eventually("jobs run", func() bool { return y.starts("meanwhile") == 2 && y.starts("through") == 1 && y.starts("breaks") == 1 })
	usual := time.Since(began)
	pause(t.Context(), y.short(0, time.Second))

	y.say("%s begins", f.name)
	from := time.Now()
	end := f.begin(y)
	y.open("meanwhile")
	if !f.deaf {
		pause(t.Context(), y.short(100*time.Millisecond, time.Second))
		y.add(&yardJob{name: "new", lasts: time.Second}, &yardJob{name: "new-fails", code: 5, retries: 1, lasts: 300 * time.Millisecond})
	}
	y.open("breaks")
	pause(t.Context(), time.Until(from.Add(y.short(2*time.Second, 5*time.Second))))
	end()
	over := time.Now()
	out.lasted = over.Sub(from)
	y.say("%s is over", f.name)

	y.add(&yardJob{name: "after", lasts: 100 * time.Millisecond})
	y.eventually("a job that is pushed now starts", func() bool { return y.starts("after") > 0 })
	out.starts = time.Since(over)
	y.eventually("what ended meanwhile is recorded", func() bool { return y.phase("default/meanwhile") == "Succeeded" })
	out.recorded = time.Since(over)
	y.say("works again: jobs start after %.1fs, records are there after %.1fs", out.starts.Seconds(), out.recorded.Seconds())
	// On a machine that is busy with other tests all takes its time, without a fault too.
	assert.Less(t, out.starts, again+2*usual, "until a job starts again")
	if !f.loses {
		assert.Less(t, out.recorded, again+2*usual, "until records arrive again")
	}
	y.open("through")
	y.settle()
	y.laws(f.harm)
	out.attempts, out.lost = y.counts()
	y.stop()
}

// tableOf is what the faults did, the worst of each.
func tableOf(done []outcomeOf) string {
	worst := map[string]outcomeOf{}
	times := map[string]int{}
	var order []string
	for _, o := range done {
		w, ok := worst[o.fault]
		if !ok {
			order = append(order, o.fault)
		}
		times[o.fault]++
		w.fault, w.lasted, w.starts, w.recorded = o.fault, max(w.lasted, o.lasted), max(w.starts, o.starts), max(w.recorded, o.recorded)
		w.attempts, w.lost, w.failed = w.attempts+o.attempts, w.lost+o.lost, w.failed || o.failed
		worst[o.fault] = w
	}
	slices.SortFunc(order, cmp.Compare)
	b := &strings.Builder{}
	b.WriteString("| fault | runs | lasted at most | a job starts after at most | records arrive after at most | task attempts | of these lost | laws |\n|---|---|---|---|---|---|---|---|\n")
	for _, name := range order {
		o, laws := worst[name], "hold"
		if o.failed {
			laws = "BROKEN"
		}
		fmt.Fprintf(b, "| %s | %d | %.1f s | %.1f s | %.1f s | %d | %d | %s |\n", name, times[name], o.lasted.Seconds(), o.starts.Seconds(), o.recorded.Seconds(), o.attempts, o.lost, laws)
	}
	return b.String()
}
