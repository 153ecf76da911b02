package mutations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the module's, from here.
const root = "../../.."

// TestEveryMutationApplies: what does not apply any more proves nothing.
func TestEveryMutationApplies(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(all), 30)
	for _, m := range all {
		for _, f := range m.Files {
			text, err := os.ReadFile(filepath.Join(root, f.Path))
			if !assert.NoError(t, err, m.Name) {
				continue
			}
			mutated, err := f.Apply(string(text))
			if assert.NoError(t, err, m.Name) {
				assert.NotEqual(t, string(text), mutated, m.Name)
			}
		}
		for _, by := range m.Tests {
			assertTests(t, m.Name, by)
		}
	}
}

// assertTests checks that the tests that are to catch a mutation are there.
func assertTests(t *testing.T, name string, by Test) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, by.Package, "*_test.go"))
	require.NoError(t, err)
	var sources strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		sources.Write(text)
	}
	for test := range strings.SplitSeq(strings.Trim(by.Run, "^$()"), "|") {
		assert.Contains(t, sources.String(), "func "+test+"(", "%s: package %s has no such test", name, by.Package)
	}
}

// TestTheListIsComplete: docs/mutations.md tells of every mutation, and of no other.
func TestTheListIsComplete(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/mutations.md"))
	require.NoError(t, err)
	for _, m := range all {
		assert.Contains(t, string(text), "| "+m.Name+" | "+m.What+" |", "make mutations writes it anew")
	}
	assert.Equal(t, len(all), strings.Count(string(text), "\n| ")-1, "rows in docs/mutations.md")
}

func TestParse(t *testing.T) {
	const patch = "A budget is one too large.\n\nCaught-By: simulation\nCaught-By: ./runner -run TestBudget\n\n" +
		"--- a/x.go\n+++ b/x.go\n@@ -1,3 +1,3 @@\n package x\n \n-const A = 1\n+const A = 2\n"
	m, err := Parse("x", patch)
	require.NoError(t, err)
	assert.Equal(t, "A budget is one too large.", m.What)
	assert.Equal(t, []Test{{"./runner", "TestBudget"}}, m.Tests)
	require.Len(t, m.Files, 1)
	moved, err := m.Files[0].Apply("// moved\npackage x\n\nconst A = 1\n")
	require.NoError(t, err)
	assert.Equal(t, "// moved\npackage x\n\nconst A = 2\n", moved)
	for what, text := range map[string]string{"changed": "package x\n\nconst A = 3\n", "twice": "package x\n\nconst A = 1\npackage x\n\nconst A = 1\n"} {
		_, err = m.Files[0].Apply(text)
		assert.Error(t, err, what)
	}
	for _, bad := range []string{"", "no diff\n", strings.Replace(patch, "+const A = 2\n", "", 1), strings.Replace(patch, "simulation", "somebody", 1)} {
		_, err = Parse("x", bad)
		assert.Error(t, err, bad)
	}
}
