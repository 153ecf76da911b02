// Mutate plants one mistake after another into the program and says what catches
// it: the simulation, or else the tests that the mistake's patch names. It fails
// when one survives. The sources stay as they are: the compiler is shown the
// mutated files in the place of theirs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/trainyard/trainyard/runner/simulation"
	"github.com/trainyard/trainyard/runner/simulation/mutations"
)

func main() {
	histories := flag.Int("histories", 10000, "how many histories the simulation has to catch a mistake in")
	seed := flag.Uint64("seed", 1, "of the first history")
	only := flag.String("only", "", "mistakes whose names match this pattern")
	list := flag.String("list", "", "writes what was caught by what to this file, as a table in Markdown")
	play := flag.Bool("play", false, "plays histories up to the first violation: what this program does with a mistake in it")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil || *seed == 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *play {
		report := simulation.PlayAll(ctx, *seed, *histories, 1)
		err = json.NewEncoder(os.Stdout).Encode(report)
	} else {
		err = mutate(ctx, *seed, *histories, pattern, *list)
	}
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// outcome is what became of a mutation.
type outcome struct {
	mutation mutations.Mutation
	by       string // "" if it survived
	detail   string
	took     time.Duration
	err      error // it does not apply, or does not compile
}

func mutate(ctx context.Context, seed uint64, histories int, only *regexp.Regexp, list string) error {
	all, err := mutations.All()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, seed: seed, histories: histories}
	if b.root, b.simulated, err = module(ctx); err != nil {
		return err
	}
	var chosen []mutations.Mutation
	for _, m := range all {
		if only.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if err := b.clean(ctx, chosen); err != nil {
		return fmt.Errorf("without any mistake: %w", err)
	}
	outcomes, err := b.tryAll(ctx, chosen)
	if err != nil {
		return err
	}
	if list != "" {
		if err := write(list, outcomes); err != nil {
			return err
		}
	}
	caught, survived := 0, 0
	for _, o := range outcomes {
		switch {
		case o.err != nil: // neither: it proves nothing
		case o.by != "":
			caught++
		default:
			survived++
		}
	}
	fmt.Printf("%d mutations, %d caught, %d survived\n", len(chosen), caught, survived)
	switch {
	case survived > 0:
		return errors.New("a mistake that nothing catches is a missing check")
	case caught < len(chosen):
		return errors.New("a mistake that cannot be planted proves nothing")
	}
	return nil
}

// tell prints what became of a mutation.
func (o *outcome) tell() {
	what := "SURVIVED"
	switch {
	case o.err != nil:
		what = "CANNOT BE PLANTED: " + o.err.Error()
	case o.by != "":
		what = strings.TrimSpace("caught by " + o.by + " " + o.detail)
	}
	fmt.Printf("%-48s %5.1fs  %s\n", o.mutation.Name, o.took.Seconds(), what)
}

// write writes the table of all mutations.
func write(path string, outcomes []outcome) error {
	var b strings.Builder
	b.WriteString("# Planted mistakes\n\nEach of these was planted into the program, alone, and something noticed: `make mutations` does it again and\nwrites this list. The patches are in `runner/simulation/mutations`.\n\n")
	b.WriteString("| mistake | what it breaks | caught by |\n|---|---|---|\n")
	for _, o := range outcomes {
		by := o.by
		if by == "" {
			by = "nothing"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", o.mutation.Name, o.mutation.What, by)
	}
	fmt.Fprintf(&b, "\n%d mistakes.\n", len(outcomes))
	return os.WriteFile(filepath.Clean(path), []byte(b.String()), 0o644)
}
