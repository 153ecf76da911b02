// Simulate plays histories of Trainyard, from one seed after another, and says
// which of them broke a law. The first that did is made as short as it can be
// and printed step by step.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/trainyard/trainyard/runner/simulation"
)

func main() {
	histories := flag.Int("histories", 20000, "how many histories are played")
	seed := flag.Uint64("seed", 1, "of the first history")
	lasting := flag.Duration("for", 0, "plays as many histories as this time allows")
	flag.Parse()
	if *seed == 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *lasting > 0 {
		*histories = math.MaxInt
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *lasting)
		defer cancel()
	}
	debug.SetGCPercent(400) // worlds are small, and short-lived
	if !run(ctx, *seed, *histories) {
		os.Exit(1)
	}
}

// most is how many violations are enough to stop at.
const most = 10

func run(ctx context.Context, seed uint64, histories int) bool {
	report := simulation.PlayAll(ctx, seed, histories, most)
	for i, r := range report.Violations {
		if i == 0 {
			simulation.Shrink(r.Seed, 3000, os.Stdout)
			fmt.Println()
		}
		fmt.Printf("seed %d: %s\n  go test ./runner/simulation -run TestSeed -v -seed %d\n", r.Seed, r.Violation, r.Seed)
	}
	fmt.Printf("%d histories, %d steps, %d violations\n", report.Histories, report.Steps, len(report.Violations))
	return len(report.Violations) == 0
}
