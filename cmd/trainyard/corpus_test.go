package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exits are the exit codes of validate by verdict.
var exits = map[string]int{"accept": exitFine, "warn": exitFine, "reject": exitProblems}

// eachVerdict visits what render says of job files of other systems.
func eachVerdict(t *testing.T, visit func(verdict, golden, file string)) {
	t.Helper()
	text, err := os.ReadFile("../../render/testdata/verdicts.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] != "#" {
			visit(words[0], words[1], words[2])
		}
	}
}

// hold checks that validate says of a file what render does.
func hold(t *testing.T, b *bench, verdict, file string) {
	t.Helper()
	code, out, errs := b.run("validate", file)
	assert.Equal(t, exits[verdict], code, "%s: %s%s", file, out, errs)
	assert.Equal(t, verdict == "accept", out == "", "%s: %s", file, out)
	assert.Equal(t, verdict == "warn", out != "" && !strings.Contains(errs, " 0 warnings") && strings.Contains(errs, ", 0 errors"), "%s: %s", file, errs)
}

func TestValidateVerdicts(t *testing.T) {
	seen := map[string]bool{}
	eachVerdict(t, func(verdict, golden, _ string) {
		if seen[golden] {
			return
		}
		seen[golden] = true
		b := newBench(t)
		b.parts = connected()
		a, err := txtar.ParseFile("../../render/testdata/corpus/" + golden + ".txtar")
		require.NoError(t, err)
		b.write(t, a.Files[0].Name, string(a.Files[0].Data))
		hold(t, b, verdict, a.Files[0].Name)
	})
	require.NotEmpty(t, seen)
}

// TestValidateCorpus does the same with the files themselves.
func TestValidateCorpus(t *testing.T) {
	dir := os.Getenv("TRAINYARD_CORPUS")
	if dir == "" {
		t.Skip("TRAINYARD_CORPUS names no directory of job files")
	}
	b := newBench(t)
	b.parts = connected()
	eachVerdict(t, func(verdict, _, file string) { hold(t, b, verdict, filepath.Join(dir, file)) })
}
