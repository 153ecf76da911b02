package simulation

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seed      = flag.Uint64("seed", 0, "plays the history of this seed, made as short as it can be if it breaks a law")
	histories = flag.Int("histories", 1000, "how many histories are played")
)

func TestHistories(t *testing.T) {
	report := PlayAll(t.Context(), 1, *histories, 10)
	for i, r := range report.Violations {
		if i == 0 {
			Shrink(r.Seed, 2000, os.Stdout)
		}
		t.Errorf("go test ./runner/simulation -run TestSeed -v -seed %d: %s", r.Seed, r.Violation)
	}
	t.Logf("%d histories, %d steps, %d violations", report.Histories, report.Steps, len(report.Violations))
}

// TestSeed is for whoever looks into a violation.
func TestSeed(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -seed was given")
	}
	if r := Play(*seed, nil); r.Violation != "" {
		Shrink(*seed, 5000, os.Stdout)
		t.Fatal(r.Violation)
	}
	Play(*seed, os.Stdout)
}

// TestSeedIsAHistory: what one seed gives does not depend on chance.
func TestSeedIsAHistory(t *testing.T) {
	for s := range uint64(40) {
		var one, two bytes.Buffer
		first, second := Play(s+1, &one), Play(s+1, &two)
		require.Equal(t, first, second)
		require.True(t, one.String() == two.String(), "seed %d tells two stories", s+1)
		again := play(choices{again: first.draws}, nil)
		assert.Equal(t, first.Steps, again.Steps, "played by its draws instead of its seed")
	}
}

// BenchmarkHistories tells how many histories a second are played on one core.
func BenchmarkHistories(b *testing.B) {
	steps := 0
	for i := range b.N {
		steps += Play(uint64(i+1), nil).Steps
	}
	b.ReportMetric(float64(steps)/float64(b.N), "steps/history")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "histories/s")
}
