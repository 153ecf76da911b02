package gitsync

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var memoryRounds = flag.Int("rounds", 20, "rounds of fetch and publish in TestMemoryFlat; the figure we hold is for 500")

// fill puts n files of the size of a job under jobs/, at once.
func (b *bareRepo) fill(branch string, n int) {
	b.t.Helper()
	var s strings.Builder
	fmt.Fprintf(&s, "commit refs/heads/%s\ncommitter Ann <ann@example.com> 1700000000 +0000\ndata 4\nfill\n", branch)
	for i := range n {
		text := fmt.Sprintf("apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: job-%d}\n%s", i, strings.Repeat(fmt.Sprintf("# line of job %d\n", i), 40))
		fmt.Fprintf(&s, "M 100644 inline jobs/team-%d/job-%d.yaml\ndata %d\n%s\n", i%50, i, len(text), text)
	}
	b.gitIn(s.String(), "fast-import", "--quiet")
}

// The resident memory of fetching and publishing stays where it is. A process
// of its own is measured: mirror, the mirror of somebody else who pushes, and
// the HTTP server are all in it.
func TestMemoryFlat(t *testing.T) {
	if os.Getenv("GITSYNC_TEST_MEMORY") != "" {
		measureMemory(t)
		return
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the kernel does not tell the peak of one process")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryFlat$", "-test.v", fmt.Sprintf("-rounds=%d", *memoryRounds))
	cmd.Env = append(os.Environ(), "GITSYNC_TEST_MEMORY=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}

func measureMemory(t *testing.T) {
	b := newBare(t)
	b.fill("main", 2000)
	srv := serve(t, b)
	m, other := mirrorOf(t, srv.url()), mirrorOf(t, srv.url())
	var warm int
	var fetching, publishing time.Duration
	for i := range *memoryRounds {
		_, err := other.Publish(t.Context(), put("main", map[string]string{fmt.Sprintf("jobs/team-%d/job-%d.yaml", i%50, i%2000): fmt.Sprint("changed ", i)}))
		require.NoError(t, err)
		start := time.Now()
		snap, changed, err := m.Fetch(t.Context(), "main")
		require.NoError(t, err)
		require.True(t, changed)
		fetching += time.Since(start)
		_ = read(t, snap, "jobs/team-1/job-1.yaml")
		start = time.Now()
		_, err = m.Publish(t.Context(), put("trainyard/status", map[string]string{fmt.Sprintf("default/ns-%d/job-%d/status.yaml", i%10, i%200): fmt.Sprint("state ", i)}))
		require.NoError(t, err)
		publishing += time.Since(start)
		if i == *memoryRounds/2 {
			warm = peakMemory(t)
		}
	}
	n := time.Duration(*memoryRounds)
	peak := peakMemory(t)
	t.Logf("%d rounds: fetch %v, publish %v; peak RSS %d KiB at half, %d KiB at the end", n, fetching/n, publishing/n, warm, peak)
	if raced {
		return
	}
	assert.Less(t, peak, 60<<10, "KiB")
	assert.Less(t, peak-warm, 8<<10, "KiB more in the second half")
}

// peakMemory is the most memory this process has had, in KiB.
func peakMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	require.True(t, ok)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return n
}

func BenchmarkPublishOneFileHTTP(b *testing.B) {
	bare := newBare(b)
	bare.fill("main", 1000)
	m := mirrorOf(b, serve(b, bare).url())
	fetch(b, m, "main")
	i := 0
	for b.Loop() {
		i++
		_, err := m.Publish(b.Context(), put("main", map[string]string{"jobs/team-1/job-1.yaml": fmt.Sprint(i)}))
		require.NoError(b, err)
	}
}

func BenchmarkFetchOneChangeHTTP(b *testing.B) {
	bare := newBare(b)
	bare.fill("main", 1000)
	url := serve(b, bare).url()
	m, other := mirrorOf(b, url), mirrorOf(b, url)
	fetch(b, m, "main")
	i := 0
	for b.Loop() {
		i++
		b.StopTimer()
		_, err := other.Publish(b.Context(), put("main", map[string]string{"jobs/team-1/job-1.yaml": fmt.Sprint(i)}))
		require.NoError(b, err)
		b.StartTimer()
		fetch(b, m, "main")
	}
}

func BenchmarkFirstFetch10000Files(b *testing.B) {
	bare := newBare(b)
	bare.fill("main", 10_000)
	for b.Loop() {
		fetch(b, mirrorOf(b, bare.dir), "main")
	}
}

func BenchmarkReadAll10000Files(b *testing.B) {
	bare := newBare(b)
	bare.fill("main", 10_000)
	snap := fetch(b, mirrorOf(b, bare.dir), "main")
	for b.Loop() {
		for i := range 10_000 {
			_, err := snap.ReadFile(fmt.Sprintf("jobs/team-%d/job-%d.yaml", i%50, i))
			require.NoError(b, err)
		}
	}
}

func BenchmarkChangedOneOf10000(b *testing.B) {
	bare := newBare(b)
	bare.fill("main", 10_000)
	m := mirrorOf(b, bare.dir)
	old := fetch(b, m, "main")
	_, err := m.Publish(b.Context(), put("main", map[string]string{"jobs/team-1/job-1.yaml": "x"}))
	require.NoError(b, err)
	now := fetch(b, m, "main")
	for b.Loop() {
		changes, err := Changed(old, now)
		require.NoError(b, err)
		require.Len(b, changes, 1)
	}
}
