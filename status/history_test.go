package status

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestHistoryOnlyGrows(t *testing.T) {
	a, b := repo.RunSummary{ID: "a"}, repo.RunSummary{ID: "b", Outcome: repo.Outcome{Message: "password=hunter2"}}
	there, err := MergeHistory(nil, []repo.RunSummary{a})
	require.NoError(t, err)
	damaged := append([]byte("{broken\n"), there...)
	merged, err := MergeHistory(damaged, []repo.RunSummary{a, b})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(merged), string(damaged)), "byte for byte")
	assert.Equal(t, 3, strings.Count(string(merged), "\n"))
	assert.NotContains(t, string(merged), "hunter2")
	runs, problems := DecodeHistory("h", merged)
	require.Len(t, problems, 1)
	assert.Equal(t, 1, problems[0].Line)
	assert.Equal(t, []string{"a", "b"}, []string{runs[0].ID, runs[1].ID})
	again, err := MergeHistory(append(merged, merged[len(damaged):]...), []repo.RunSummary{a, b})
	require.NoError(t, err)
	assert.Equal(t, string(merged), string(again), "a line that a merge doubled is taken once")
}

// Two who each know some of the runs, in any order and with any damage between
// them, lose none and write none twice.
func TestHistoriesMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) repo.RunSummary {
			return repo.RunSummary{ID: rapid.StringMatching("[a-h]").Draw(t, "id"), Revision: anyText().Draw(t, "revision")}
		}), 0, 6)
		damage := rapid.SampledFrom([]string{"", "\n", "<<<<<<< ours\n", "{\"id\":\"a\"", "{}\n", "null\n"}).Draw(t, "damage")
		ours, theirs := some.Draw(t, "ours"), some.Draw(t, "theirs")
		there, err := MergeHistory([]byte(damage), theirs)
		require.NoError(t, err)
		merged, err := MergeHistory(there, ours)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(merged), string(there)), "it only grows")
		require.Contains(t, string(merged), strings.TrimSpace(damage))
		runs, _ := DecodeHistory("h", merged)
		known := map[string]bool{}
		for _, s := range runs {
			require.False(t, known[s.ID], "twice")
			known[s.ID] = true
		}
		for _, s := range append(ours, theirs...) {
			require.True(t, known[s.ID])
		}
		again, err := MergeHistory(merged, append(theirs, ours...))
		require.NoError(t, err)
		require.Equal(t, string(merged), string(again))
	})
}

func TestDamagedLinesAreTold(t *testing.T) {
	runs, problems := DecodeHistory("p/history.jsonl", []byte("{\"id\":\"a\"}\n\n{\"digest\":\"x\"}\n{\"id\":\n{\"id\":\"a\"}\n{\"id\":\"b\"}\n"))
	require.Len(t, runs, 2)
	require.Len(t, problems, 2)
	assert.Equal(t, "p/history.jsonl:3: no finished run can be read from this line: it has no id", problems[0].Error())
	assert.Equal(t, 4, problems[1].Line)
}
