// Package mutations keeps planted mistakes: small patches, each of which breaks a
// promise of the program in one place. It reads and applies them to texts, and
// never changes a file.
package mutations

import (
	"embed"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// Mutation is a planted mistake.
type Mutation struct {
	Name string // of its file, without the ending
	What string // is broken, and what that would do to a user, in a sentence or two
	// Tests are those that catch it if the simulation does not: a package and a
	// pattern of names each.
	Tests []Test
	Files []File
}

// Test are the tests of a package whose names match a pattern.
type Test struct{ Package, Run string }

// File is what a mutation does to a file of the module.
type File struct {
	Path  string
	hunks []hunk
}

// hunk is a place in a file, with its surroundings, as it is and as it will be.
type hunk struct{ old, mutated string }

// caughtBy begins a header line: "Caught-By: simulation", or a package and a pattern.
const caughtBy = "Caught-By: "

// All are the mutations by name.
func All() ([]Mutation, error) {
	names, err := fs.Glob(patches, "*.patch")
	if err != nil {
		return nil, err
	}
	var all []Mutation
	for _, name := range names {
		text, err := patches.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := Parse(strings.TrimSuffix(path.Base(name), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, m)
	}
	return all, nil
}

var (
	header = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)
	target = regexp.MustCompile(`^\+\+\+ b/(\S+)$`)
)

// Parse reads a patch: prose, then who catches it, then a unified diff.
func Parse(name, text string) (Mutation, error) {
	m := Mutation{Name: name}
	var prose []string
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, caughtBy):
			if err := m.caught(strings.TrimPrefix(line, caughtBy)); err != nil {
				return m, err
			}
		case target.MatchString(line):
			m.Files = append(m.Files, File{Path: target.FindStringSubmatch(line)[1]})
		case strings.HasPrefix(line, "--- a/"):
		case header.MatchString(line):
			n, err := m.hunk(line, lines[i+1:])
			if err != nil {
				return m, fmt.Errorf("line %d: %w", i+1, err)
			}
			i += n
		case len(m.Files) > 0:
			return m, fmt.Errorf("line %d: %q is no part of a diff", i+1, line)
		case line != "":
			prose = append(prose, line)
		}
	}
	m.What = strings.Join(prose, " ")
	if m.What == "" || len(m.Files) == 0 {
		return m, fmt.Errorf("it has no prose, or no diff")
	}
	return m, nil
}

func (m *Mutation) caught(by string) error {
	if by == "simulation" {
		return nil
	}
	pkg, run, ok := strings.Cut(by, " -run ")
	if !ok || !strings.HasPrefix(pkg, "./") {
		return fmt.Errorf("%q names neither the simulation nor a package and a pattern", by)
	}
	m.Tests = append(m.Tests, Test{Package: pkg, Run: run})
	return nil
}

// hunk reads a hunk and returns how many lines it has.
func (m *Mutation) hunk(head string, lines []string) (int, error) {
	if len(m.Files) == 0 {
		return 0, fmt.Errorf("%q is of no file", head)
	}
	var counts [2]int
	found := header.FindStringSubmatch(head)
	for i, text := range []string{found[2], found[4]} {
		counts[i] = 1
		if text != "" {
			counts[i], _ = strconv.Atoi(text) // the pattern lets nothing else through
		}
	}
	var h hunk
	n := 0
	for counts[0] > 0 || counts[1] > 0 {
		if n >= len(lines) {
			return n, fmt.Errorf("%q is cut off", head)
		}
		mark, rest := " ", ""
		if lines[n] != "" {
			mark, rest = lines[n][:1], lines[n][1:]
		}
		n++
		if mark != "+" {
			h.old += rest + "\n"
			counts[0]--
		}
		if mark != "-" {
			h.mutated += rest + "\n"
			counts[1]--
		}
	}
	f := &m.Files[len(m.Files)-1]
	f.hunks = append(f.hunks, h)
	return n, nil
}

// Apply is a file's text with the mistake in it. The place is found by what
// stands there, wherever it has moved to, and must be the only one.
func (f *File) Apply(text string) (string, error) {
	for _, h := range f.hunks {
		switch n := strings.Count(text, h.old); {
		case n == 0:
			return "", fmt.Errorf("%s has changed: nowhere stands\n%s", f.Path, h.old)
		case n > 1:
			return "", fmt.Errorf("%s: it stands in %d places:\n%s", f.Path, n, h.old)
		}
		text = strings.Replace(text, h.old, h.mutated, 1)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), f.Path, text, parser.SkipObjectResolution); err != nil {
		return "", fmt.Errorf("%s, mutated: %w", f.Path, err)
	}
	return text, nil
}
