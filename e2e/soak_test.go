package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/status"
)

// gauges are the numbers of the daemon that must not grow, as /metrics names
// them, with what is noise of each.
var gauges = []struct {
	name, metric string
	unit         float64 // what one of the printed is
	slack, share float64 // how much more the second half may have: so many, and such a part of the first
}{
	{"goroutines", "go_goroutines", 1, 3, 0.05},
	{"files", "process_open_fds", 1, 3, 0.05},
	{"heap MiB", "go_gc_heap_live_bytes", 1 << 20, 2, 0.1},
	{"RSS MiB", "process_resident_memory_bytes", 1 << 20, 4, 0.1},
}

// TestSoak lets jobs come, run, end, change and go for as long as it is told to,
// under one daemon that lives throughout, with faults from outside now and then.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("runs with -soak 1h alone")
	}
	c := &churn{yard: newYard(t, *chaosSeed), end: time.Now().Add(*soak), present: map[string]int{}}
	c.serve("--listen", "127.0.0.1:0")
	c.eventually("it listens", func() bool { return strings.Contains(c.d.out.String(), "listening on http://") })
	c.run()
	c.laws()
	c.verdict()
}

// churn is a yard in which the same few jobs come and go.
type churn struct {
	*yard
	end      time.Time
	present  map[string]int // job files, with how often each was written
	versions int
	faults   map[string]int
	samples  []map[string]float64
	minute   int
}

const churned = 24 // jobs; their records stay, so that it must not be more and more

func (c *churn) run() {
	c.faults = map[string]int{}
	table := slices.DeleteFunc(faultsFromOutside(), func(f outside) bool { return f.ends || f.prepare != nil || f.rewrites })
	nextFault := time.Now().Add(20 * time.Second)
	var heal func()
	for now := time.Now(); now.Before(c.end); now = time.Now() {
		if now.After(nextFault) {
			if heal != nil {
				heal()
				heal, nextFault = nil, now.Add(c.short(10*time.Second, 40*time.Second))
			} else {
				f := table[c.rng.IntN(len(table))]
				c.faults[f.name]++
				c.say("%s", f.name)
				heal, nextFault = f.begin(c.yard), now.Add(c.short(2*time.Second, 5*time.Second))
			}
		}
		c.change()
		c.sample()
		pause(c.t.Context(), c.short(300*time.Millisecond, 1200*time.Millisecond))
	}
	if heal != nil {
		heal()
	}
	c.git(c.checkout, "push", "-q", "origin", "HEAD:main") // what the last fault refused, if that was it
}

// change writes, edits or removes the files of some jobs, and pushes them.
func (c *churn) change() {
	for range 1 + c.rng.IntN(3) {
		name := fmt.Sprintf("churn-%02d", c.rng.IntN(churned))
		if _, there := c.present[name]; there && c.rng.IntN(3) == 0 {
			require.NoError(c.t, os.Remove(filepath.Join(c.checkout, "jobs", name+".yaml")))
			delete(c.present, name)
			continue
		}
		c.versions++
		c.present[name] = c.versions
		c.write("jobs/"+name+".yaml", c.version(name, c.versions))
	}
	if _, err := c.tryGit(c.checkout, "add", "-A"); err != nil {
		return
	}
	_, _ = c.tryGit(c.checkout, "commit", "-q", "--allow-empty", "-m", "change")
	_, _ = c.tryGit(c.checkout, "push", "-q", "origin", "HEAD:main") // it is refused at times, and comes with the next
}

// version is a job of its own: no two have the same definition.
func (c *churn) version(name string, n int) string {
	j := &yardJob{name: name, replicas: 1 + c.rng.IntN(2), lasts: c.short(100*time.Millisecond, 3*time.Second)}
	if n%4 == 0 {
		j.code, j.retries = 3, 1
	}
	onChange, keep := []string{"Finish", "Restart"}[n%2], []string{"24h", "5s", "5s", "5s", "5s"}[n%5]
	return strings.Replace(c.text(j), "  retry: {limit: 0}\n", fmt.Sprintf("  onChange: %s\n  cleanup: {pods: All, after: %s}\n  retry: {limit: 0, backoff: {initial: %dms}}\n", onChange, keep, n), 1)
}

// sample reads the daemon's numbers, and prints them once a minute.
func (c *churn) sample() {
	_, rest, _ := strings.Cut(c.d.out.String(), "listening on http://")
	client := http.Client{Timeout: 2 * time.Second}
	res, err := client.Get("http://" + strings.Fields(rest)[0] + "/metrics")
	if err != nil {
		return // it cannot answer at present
	}
	defer res.Body.Close()
	now := map[string]float64{"at": time.Since(c.began).Minutes()}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			now[name] = v
		}
	}
	if _, ok := now["go_goroutines"]; ok {
		c.samples = append(c.samples, now)
	}
	if minute := int(now["at"]); minute > c.minute {
		c.minute = minute
		fmt.Printf("soak: minute %3d: %s; %.0f attempts started, %.0f pushes, faults %d\n", minute, c.figures(float64(minute-1), float64(minute)),
			now["trainyard_task_attempts_started_total"], now[`trainyard_publishes_total{result="ok"}`], c.faulty())
	}
}

func (c *churn) faulty() (n int) {
	for _, k := range c.faults {
		n += k
	}
	return n
}

// least is the lowest value of a number in a span of minutes: peaks come and go.
func (c *churn) least(metric string, from, to float64) (least float64, ok bool) {
	for _, s := range c.samples {
		if v, there := s[metric]; there && s["at"] >= from && s["at"] < to && (!ok || v < least) {
			least, ok = v, true
		}
	}
	return least, ok
}

func (c *churn) figures(from, to float64) string {
	var out []string
	for _, g := range gauges {
		v, _ := c.least(g.metric, from, to)
		out = append(out, fmt.Sprintf("%s %.1f", g.name, v/g.unit))
	}
	return strings.Join(out, ", ")
}

// mean of the lowest values of the minutes in a span.
func (c *churn) mean(metric string, from, to float64) float64 {
	step := min(1, (to-from)/4) // minutes
	sum, n := 0.0, 0.0
	for at := from; at+step <= to+1e-9; at += step {
		if v, ok := c.least(metric, at, at+step); ok {
			sum, n = sum+v, n+1
		}
	}
	return sum / max(n, 1)
}

// laws of the churn: nothing was started twice, and no run is forgotten.
func (c *churn) laws() {
	for i := range churned {
		name := fmt.Sprintf("churn-%02d", i)
		if _, there := c.present[name]; !there {
			continue
		}
		c.eventually(name+" comes to rest", func() bool {
			rec, _ := c.record("default/" + name)
			return (rec.Phase == repo.PhaseSucceeded || rec.Phase == repo.PhaseFailed) && upToDate(&rec)
		})
	}
	c.eventually("every pod is released", func() bool { return len(c.held()) == 0 })
	c.eventually("no process is left", func() bool { return len(c.shims()) == 0 })
	branch := c.readBranch()
	for i := range churned {
		name := fmt.Sprintf("churn-%02d", i)
		seen, known := c.seen(name), map[string]bool{}
		if said := branch[name]; said != nil {
			c.historyGrows(name, said)
			runs, problems := status.DecodeHistory(repo.HistoryFile, slices.Concat(said.histories[max(0, len(said.histories)-1):]...))
			assert.Empty(c.t, problems)
			for _, run := range runs {
				known[run.ID] = true
			}
			for pod, outcomes := range said.outcomes {
				assert.Len(c.t, outcomes, 1, "outcomes of %s: %v", pod, outcomes)
			}
		}
		assert.Empty(c.t, seen["overlap"], name)
		started := map[string]int{}
		for _, id := range seen["start"] {
			started[id]++
			run, _, _ := strings.Cut(id, "/")
			assert.Equal(c.t, 1, started[id], "how often %s was started", id)
			assert.True(c.t, known[run], "run %s is not in the history", run)
		}
	}
}

// verdict compares the second half with the first, without the beginning.
func (c *churn) verdict() {
	whole := time.Since(c.began).Minutes()
	warm := min(5, whole/5)
	half := warm + (whole-warm)/2
	fmt.Printf("soak: %.0f minutes, seed %d, %d definitions, faults %v\n", whole, *chaosSeed, c.versions, c.faults)
	for _, g := range gauges {
		first, second := c.mean(g.metric, warm, half), c.mean(g.metric, half, whole)
		grown := second - first
		flat := grown <= g.slack*g.unit+g.share*first
		verdict := "flat"
		if !flat {
			verdict = "GROWS"
		}
		fmt.Printf("soak: %-10s %8.1f in the first half, %8.1f in the second: %+.1f: %s\n", g.name, first/g.unit, second/g.unit, grown/g.unit, verdict)
		assert.True(c.t, flat, "%s: %f, then %f", g.name, first, second)
		assert.Positive(c.t, second, g.name)
	}
}
