package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard/runner/simulation"
	"github.com/trainyard/trainyard/runner/simulation/mutations"
)

// A mistake that keeps a program from ending is none that was caught.
const (
	playTime = 5 * time.Minute
	testTime = "3m"
)

// bench is where mistakes are tried.
type bench struct {
	root      string          // of the module
	simulated map[string]bool // directories of the module that the simulation is made of
	dir       string          // for what is built
	seed      uint64
	histories int
	testing   sync.Mutex // tests that time things are run one after another
}

// module finds the module, and which of its directories the simulation is made of.
func module(ctx context.Context) (root string, simulated map[string]bool, err error) {
	out, err := goTool(ctx, ".", "list", "-m", "-f", "{{.Dir}}\n{{.Path}}")
	if err != nil {
		return "", nil, err
	}
	root, name, _ := strings.Cut(strings.TrimSpace(out), "\n")
	deps, err := goTool(ctx, root, "list", "-deps", "./runner/simulation")
	if err != nil {
		return "", nil, err
	}
	simulated = map[string]bool{}
	for _, pkg := range strings.Fields(deps) {
		if rel, ok := strings.CutPrefix(pkg, name+"/"); ok {
			simulated[rel] = true
		}
	}
	return root, simulated, nil
}

// clean shows that nothing is caught when there is nothing to catch.
func (b *bench) clean(ctx context.Context, all []mutations.Mutation) error {
	start := time.Now()
	report, err := b.play(ctx, "none", "")
	if err != nil {
		return err
	}
	if len(report.Violations) > 0 {
		return fmt.Errorf("seed %d: %s", report.Violations[0].Seed, report.Violations[0].Violation)
	}
	var packages []string
	runs := map[string][]string{}
	for _, m := range all {
		for _, t := range m.Tests {
			if runs[t.Package] == nil {
				packages = append(packages, t.Package)
			}
			runs[t.Package] = append(runs[t.Package], t.Run)
		}
	}
	for _, pkg := range packages {
		slices.Sort(runs[pkg])
		failed, err := b.test(ctx, "", mutations.Test{Package: pkg, Run: strings.Join(slices.Compact(runs[pkg]), "|")})
		if err != nil {
			return err
		}
		if failed != "" {
			return fmt.Errorf("%s: %s fails", pkg, failed)
		}
	}
	fmt.Printf("%-48s %5.1fs  passes: %d histories, and the tests of %d packages\n", "(none)", time.Since(start).Seconds(), report.Histories, len(packages))
	return nil
}

// beside is how many mistakes are tried side by side: while one is linked, another plays.
const beside = 2

// tryAll plants all mistakes, each alone.
func (b *bench) tryAll(ctx context.Context, all []mutations.Mutation) ([]outcome, error) {
	outcomes := make([]outcome, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(beside)
	for i, m := range all {
		group.Go(func() error {
			o := b.try(ctx, m)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			outcomes[i] = o
			o.tell()
			return nil
		})
	}
	return outcomes, group.Wait()
}

// try plants a mistake and sees what notices.
func (b *bench) try(ctx context.Context, m mutations.Mutation) (o outcome) {
	start := time.Now()
	o.mutation = m
	defer func() { o.took = time.Since(start) }()
	var overlay string
	if overlay, o.err = b.overlay(m); o.err != nil {
		return o
	}
	if slices.ContainsFunc(m.Files, func(f mutations.File) bool { return b.simulated[path.Dir(f.Path)] }) {
		report, err := b.play(ctx, m.Name, overlay)
		if err != nil {
			o.err = err
			return o
		}
		if len(report.Violations) > 0 {
			first := report.Violations[0]
			o.by = "the simulation"
			law, _, _ := strings.Cut(first.Violation, "\n")
			o.detail = fmt.Sprintf("after %d histories: %s", first.Seed-b.seed+1, law)
			return o
		}
	}
	for _, t := range m.Tests {
		failed, err := b.test(ctx, overlay, t)
		if err != nil {
			o.err = err
			return o
		}
		if failed != "" {
			o.by = fmt.Sprintf("`%s` in %s", failed, strings.TrimPrefix(t.Package, "./"))
			return o
		}
	}
	return o
}

// overlay writes the mutated files, and the list by which the compiler takes them
// for the true ones.
func (b *bench) overlay(m mutations.Mutation) (string, error) {
	replace := map[string]string{}
	for i, f := range m.Files {
		at := filepath.Join(b.root, filepath.FromSlash(f.Path))
		text, err := os.ReadFile(at)
		if err != nil {
			return "", err
		}
		mutated, err := f.Apply(string(text))
		if err != nil {
			return "", err
		}
		replace[at] = filepath.Join(b.dir, fmt.Sprintf("%s.%d.go", m.Name, i))
		if err := os.WriteFile(replace[at], []byte(mutated), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(b.dir, m.Name+".json")
	return list, os.WriteFile(list, text, 0o600)
}

// play builds the simulation and plays histories up to the first violation.
func (b *bench) play(ctx context.Context, name, overlay string) (report simulation.Report, err error) {
	binary := filepath.Join(b.dir, name)
	defer os.Remove(binary)
	if _, err := goTool(ctx, b.root, "build", "-ldflags=-s -w", "-overlay="+overlay, "-o", binary, "./runner/simulation/mutate"); err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-play", fmt.Sprintf("-seed=%d", b.seed), fmt.Sprintf("-histories=%d", b.histories))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return report, fmt.Errorf("the simulation does not end within %s", playTime)
	}
	if err != nil {
		return report, fmt.Errorf("play: %w", err)
	}
	return report, json.Unmarshal(out, &report)
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// test runs tests and names the first that fails, "" for none.
func (b *bench) test(ctx context.Context, overlay string, t mutations.Test) (failed string, err error) {
	if _, err := goTool(ctx, b.root, "test", "-overlay="+overlay, "-vet=off", "-c", "-o", os.DevNull, t.Package); err != nil {
		return "", err
	}
	b.testing.Lock()
	defer b.testing.Unlock()
	// What a property test writes down of a failure is of the mistake, not of the tree.
	if failures := filepath.Join(b.root, t.Package, "testdata", "rapid"); !exists(failures) {
		defer os.RemoveAll(failures)
	}
	out, err := goTool(ctx, b.root, "test", "-overlay="+overlay, "-vet=off", "-count=1", "-timeout="+testTime, "-run", "^("+t.Run+")$", t.Package)
	found := failure.FindStringSubmatch(out)
	switch {
	case err == nil && strings.Contains(out, "[no tests to run]"):
		return "", fmt.Errorf("%s has no test %s", t.Package, t.Run)
	case err == nil:
		return "", nil
	case found != nil:
		return found[1], nil
	case strings.Contains(out, "panic: test timed out"):
		return t.Run, nil // these wait for what does not come
	}
	return "", err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// goTool runs the go command. Its output comes with an error too.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		return text, errors.Join(fmt.Errorf("go %s: %w", strings.Join(args, " "), err), errors.New(text))
	}
	return out.String(), nil
}
