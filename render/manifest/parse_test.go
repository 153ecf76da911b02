package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func lines(errs []*repo.Error) string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return strings.Join(out, "\n")
}

func TestParseReportsTheLine(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"empty", "", nil},
		{"comments only", "# a\n---\n# b\n---\n", nil},
		{"object", "a: 1\n", nil},
		{"json", `{"a": [1, 2], "b": "c"}`, nil},
		{"directive", "%YAML 1.2\n---\na: b\n", nil},
		{"tag directive", "%TAG ! x\n---\na: b\n", []string{`f.yaml:1:1: directive "%TAG ! x" is not understood`}},
		{"document end", "a: 1\n...\n---\nb: 1\n", nil},
		{"duplicate key", "a: 1\nb:\n  c: 1\n  c: 2\n", []string{"f.yaml:4:3: b.c: written twice, first in line 3"}},
		{"two documents, two mistakes", "a: 1\na: 2\n---\nb: !!binary aGk=\n", []string{
			"f.yaml:2:1: a: written twice, first in line 1", "f.yaml:4:4: b: tag !!binary is not understood"}},
		{"no number of JSON", "a:\n- .inf\n- -.INF\n- .nan\n- '.inf'\n", []string{
			`f.yaml:2:3: a[0]: unquoted .inf is read as a number that no field can hold: write ".inf" in quotes`,
			`f.yaml:3:3: a[1]: unquoted -.INF is read as a number that no field can hold: write "-.INF" in quotes`,
			`f.yaml:4:3: a[2]: unquoted .nan is read as a number that no field can hold: write ".nan" in quotes`}},
		{"not what the tag says", "a: !!int x\n", []string{`f.yaml:1:4: a: "x" is not what its tag !!int says`}},
		{"long tag", "a: " + strings.Repeat("!", 1<<16) + "\n", []string{"f.yaml:1:4: a: tag " + strings.Repeat("!", 60) + "… is not understood"}},
		{"number key", "1: a\n", []string{`f.yaml:1:1: a key must be text, but unquoted 1 is read as the number 1: write "1" in quotes`}},
		{"old boolean key", "a:\n  y: 1\n", []string{`f.yaml:2:3: a: a key must be text, but unquoted y is read as the boolean true by many YAML readers: write "y" in quotes`}},
		{"quoted old boolean key", "a:\n  \"y\": 1\n", nil},
		{"list key", "? [a]\n: b\n", []string{"f.yaml:1:3: a key must be text, not a list"}},
		{"own tag", "a: !foo b\n", []string{"f.yaml:1:4: a: tag !foo is not understood"}},
		{"nul", "a: b\nc: \x00\n", []string{"f.yaml:2:4: a NUL byte (0x00): the file is binary, or UTF-16"}},
		{"control", "a: b\nc: \x07\n", []string{"f.yaml:2:4: a control character (0x07)"}},
		{"latin 1", "a: caf\xe9\n", []string{"f.yaml:1:7: a byte that is not UTF-8 (0xe9)"}},
		{"utf-16", "\xff\xfea\x00", []string{"f.yaml:1:1: the file is UTF-16; save it as UTF-8"}},
		{"byte order mark", "\ufeffa: b\n", []string{"f.yaml:1:1: the file begins with a byte order mark; save it as UTF-8 without one"}},
		{"merge conflict", "a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> other\n", []string{
			`f.yaml:2:1: "<<<<<<<" was left behind by a merge conflict: choose one side and remove the markers`,
			`f.yaml:6:1: ">>>>>>>" was left behind by a merge conflict: choose one side and remove the markers`}},
		{"helm value", "a:\n  b: {{ .Values.b }}\n", []string{"f.yaml:2:7: a.b: this looks like a Helm template"}},
		{"helm control", "a: 1\n{{- if .x }}\nb: 1\n{{- end }}\n", []string{"f.yaml:2:1: this looks like a Helm template"}},
		{"quoted template", "a: \"{{X}}\"\nb: \"it's {{Y}}\"\n", nil},
		{"template in text", "a: echo {{X}}\n", nil},
		{"tab", "a:\n\tb: 1\n", []string{"f.yaml:2:1: a tab indents this line; YAML takes blanks only"}},
		{"tab in a script", "a: |\n  x:\n  \ty\n", nil},
		{"self alias", "a: &x [*x]\n", []string{"f.yaml:1:8: alias *x refers to itself"}},
		{"self alias in a map", "a: &x\n  b: {c: *x}\n", []string{"f.yaml:2:10: alias *x refers to itself"}},
		{"self merge", "a: &x\n  <<: *x\n", []string{"f.yaml:2:7: alias *x refers to itself"}},
		{"good merge", "a: &x {b: 1}\nc: {<<: *x, d: 1}\n", nil},
		{"bad merge", "a: {<<: [1]}\n", []string{`f.yaml:1:10: a: "<<" merges maps, not the number 1`}},
		{"unknown anchor", "a: 1\nb: {<<: *nope}\n", []string{"f.yaml:2:9: alias *nope has no anchor &nope before it in this document"}},
		{"anchors end with their document", "a: &x 1\n---\nb: *x\n", []string{"f.yaml:3:4: alias *x has no anchor"}},
		{"sops", "a: ENC[x]\nsops:\n  mac: ENC[y]\n", []string{"f.yaml:3:3: sops: the file is encrypted with SOPS"}},
		{"list without items", "kind: List\nitems: {}\n", []string{"f.yaml:2:1: items: a List needs a list of items"}},
		{"text after the end", "[...]\ncontainers:\n- image: <IMAGE>\n", []string{"f.yaml:1:1: expected an object with apiVersion and kind, found a list", "f.yaml:2:1: text after the end of the document (which began in line 1)"}},
		{"too deep by indentation", strings.Repeat("- ", 101) + "a\n", []string{"nested more than 100 levels deep"}},
		{"colon", "a: b: c\n", []string{`f.yaml:1:1: ": " begins a map where none can be`}},
		{"open quote", "a: 'b\nc: d\n", []string{"f.yaml:1:1: a quote or bracket that is opened in this line is never closed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, errs := Parse("f.yaml", []byte(tt.in))
			require.Len(t, errs, len(tt.want), lines(errs))
			for i, w := range tt.want {
				assert.Contains(t, errs[i].Error(), w)
			}
		})
	}
}

func TestBadIndentationIsFoundWhereItIs(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"deeper than its siblings", "a:\n  b:\n   containers:\n      - image: x\n        name: y\n    volumes:\n      - name: z\n  c: d\n",
			`f.yaml:6:5: "volumes" is indented by 4, but its siblings ("containers", line 3) by 3`},
		{"after a value", "a:\n  b: 1\n   c: 2\n", `f.yaml:3:4: "c" is indented by 3, but its siblings ("b", line 2) by 2`},
		{"less than its siblings", "a:\n    b: 1\n    c: 2\n   d: 3\n", `f.yaml:4:4: "d" is indented by 3, but its siblings ("b", line 2) by 4`},
		{"list", "a:\n   - b\n   - c\n  - d\n", `f.yaml:4:3: - d is indented by 2, but the list's other items (line 2) by 3`},
		{"in the second document", "x: 1\n---\na:\n  b: 1\n   c: 2\n", `f.yaml:5:4: "c" is indented by 3`},
		{"behind a script", "a:\n  s: |\n     if x:\n       y\n  b: 1\n   c: 2\n", `f.yaml:6:4: "c" is indented by 3, but its siblings ("s", line 2) by 2`},
		{"behind brackets", "a:\n  s: [1,\n 2,\n   3]\n  b: \"x\n  y: z\"\n   c: 2\n", `f.yaml:7:4: "c" is indented by 3, but its siblings ("s", line 2) by 2`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, errs := Parse("f.yaml", []byte(tt.in))
			require.Len(t, errs, 1)
			assert.Contains(t, errs[0].Error(), tt.want)
		})
	}
}

func TestParseIsBounded(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	long := "a: &x " + strings.Repeat("x", 10000) + "\nb: [" + strings.Repeat("*x,", 1000) + "]\n"
	chain := "a0: &a0 [x]\n"
	for i := 1; i < 120; i++ {
		chain += fmt.Sprintf("a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	for name, in := range map[string]string{
		"file": "a: " + strings.Repeat("x", MaxBytes), "documents": strings.Repeat("---\na: 1\n", MaxDocuments+1),
		"empty documents": strings.Repeat("---\n", 100000), "brackets": strings.Repeat("[", 20000), "braces": strings.Repeat("{a: ", 20000),
		"dashes": strings.Repeat("- ", 20000), "question marks": strings.Repeat("? ", 20000), "closed": strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"bomb": bomb, "text by alias": long, "depth by alias": chain,
		"keys": "{" + strings.Repeat("a: b, ", MaxKeys+1) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			docs, errs := Parse("f.yaml", []byte(in))
			require.NotEmpty(t, errs)
			require.LessOrEqual(t, len(docs), 1)
			require.Less(t, len(errs), 5)
		})
	}
}

func TestPositions(t *testing.T) {
	docs, errs := Parse("f.yaml", []byte("kind: A\n---\n# c\nmetadata:\n  annotations:\n    a.b/c: d\nspec:\n  roles:\n  - name: x\n  - name: y\n    m: 1\n"))
	require.Empty(t, errs)
	require.Len(t, docs, 2)
	d := docs[1]
	assert.Equal(t, 4, d.Line)
	for field, want := range map[string][2]int{
		`metadata.annotations["a.b/c"]`: {6, 5}, "spec.roles[1].m": {11, 5}, "spec.roles[1].missing": {10, 5},
		"spec.roles[7]": {8, 3}, "nothing": {4, 1}, "": {4, 1},
	} {
		line, column := d.Position(field)
		assert.Equal(t, want, [2]int{line, column}, field)
	}
	assert.Equal(t, "f.yaml:11:5: spec.roles[1].m: bad 1", d.Errorf("spec.roles[1].m", "bad %d", 1).Error())
	line, column := (*Document)(nil).Position("a")
	assert.Equal(t, [2]int{0, 0}, [2]int{line, column})
}

func TestCheckObject(t *testing.T) {
	for in, want := range map[string]string{
		"[a]":                     "f.yaml:1:1: expected an object with apiVersion and kind, found a list",
		"apiVersion: v1\nkind: A": "f.yaml:1:1: metadata.name: required",
		"apiVersion: v1\nkind: A\nmetadata: {name: n}":   "f.yaml:3:12: metadata.name: want text: unquoted n is read as the boolean false",
		"apiVersion: v1\nkind: A\nmetadata: {name: 010}": "f.yaml:3:12: metadata.name: want text, not the number 8: unquoted 010 is read as the number 8",
		"apiVersion: v1\nkind: A\nmetadata: {name: x}":   "",
	} {
		docs, errs := Parse("f.yaml", []byte(in))
		require.Empty(t, errs)
		assert.Contains(t, lines(docs[0].CheckObject()), want, in)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: &x [*x]", "a: {b: [1, 'c']}\n---\nd: |\n  e\n", "{{ x }}", "a:\n b: 1\n  c: 2", "- - - a", "%YAML 1.1\n---\na"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, errs := Parse("f.yaml", data)
		total := 1 + bytes.Count(data, []byte("\n"))
		for _, e := range errs {
			if e.Line > total {
				t.Fatalf("line %d of %d: %s", e.Line, total, e)
			}
		}
		for _, d := range docs {
			_ = d.CheckObject()
			_ = d.Name()
			d.Position("spec.roles[0].x")
		}
	})
}

// TestCorpus reads files of the systems whose formats are taken.
func TestCorpus(t *testing.T) {
	dir := os.Getenv("TRAINYARD_CORPUS")
	if dir == "" {
		t.Skip("TRAINYARD_CORPUS names no directory of job files")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		_, errs := Parse(filepath.Base(f), data)
		t.Log(filepath.Base(f), lines(errs))
	}
}
