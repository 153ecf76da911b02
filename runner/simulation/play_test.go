package simulation

import (
	"flag"
	"os"
	"testing"
	"time"
)

var (
	seed      = flag.Uint64("seed", 0, "plays the history of this seed alone, and prints it")
	histories = flag.Int("histories", 2000, "how many histories are played")
)

func TestHistories(t *testing.T) {
	if *seed != 0 {
		r := Play(*seed, os.Stdout)
		if r.Violation != "" {
			t.Fatal(r.Violation)
		}
		return
	}
	began, steps := time.Now(), 0
	bad := 0
	for s := range *histories {
		r := Play(uint64(s+1), nil)
		steps += r.Steps
		if r.Violation != "" {
			t.Errorf("seed %d: %.300s", s+1, r.Violation)
			if bad++; bad > 10 {
				break
			}
		}
	}
	t.Logf("%d histories, %d steps, %s", *histories, steps, time.Since(began))
}
