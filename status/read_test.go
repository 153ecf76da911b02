package status

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestUnreadableRecords(t *testing.T) {
	good, err := Encode(ran(record("j", repo.PhaseSucceeded), 0, repo.Succeeded))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"not YAML":          "{",
		"another kind":      "apiVersion: v1\nkind: ConfigMap\n",
		"another version":   strings.Replace(string(good), repo.APIVersion, "trainyard.dev/v9", 1),
		"another job":       strings.Replace(string(good), "name: j", "name: k", 1),
		"another namespace": strings.Replace(string(good), "namespace: nlp", "namespace: cv", 1),
		"of dev":            strings.Replace(string(good), "environment: prod", "environment: dev", 1),
		"no job":            strings.Replace(string(good), "name: j", "", 1),
		"a wrong type":      strings.Replace(string(good), "phase: Succeeded", "phase: {a: b}", 1),
		"a number below 0":  strings.Replace(string(good), "attempt: 0", "attempt: -1", 1),
		"binary":            "\x00\xff",
		"a conflict's mark": "<<<<<<< ours\n" + string(good),
		"empty":             "",
	} {
		t.Run(name, func(t *testing.T) {
			tip := fstest.MapFS{"prod/nlp/j/status.yaml": &fstest.MapFile{Data: []byte(text)}}
			records, problems := Read(tip, repo.Layout{}, "prod")
			require.Len(t, records, 1, "a job whose record cannot be read must not be taken for a new one")
			require.Len(t, problems, 1)
			assert.Equal(t, "prod/nlp/j/status.yaml", problems[0].File)
			assert.NotEmpty(t, records[0].Damaged)
			assert.Equal(t, repo.Key{Namespace: "nlp", Name: "j"}, records[0].Key())
		})
	}
}

// A field of a later version is no reason to let the job lie still.
func TestFieldsOfLaterVersions(t *testing.T) {
	b, err := Encode(record("j", repo.PhaseSucceeded))
	require.NoError(t, err)
	r, err := Decode(append(b, "novelty: {a: 1}\n"...))
	require.NoError(t, err)
	assert.Equal(t, repo.PhaseSucceeded, r.Phase)
}

// No name of a job or a namespace hides a record: one that is not found runs again.
func TestEveryNameIsFound(t *testing.T) {
	for _, layout := range []repo.Layout{{}, {Shards: 16}, {Root: repo.StatusDir}, {Root: repo.StatusDir, Shards: 256}} {
		var changes []repo.Change
		for _, namespace := range []string{"nlp", "logs", "prod", "0a"} {
			for _, name := range []string{"logs", "0a", "ff", "prod", "nlp", "readme", "a"} {
				r := ran(record(name, repo.PhaseFailed), 0, repo.Failed)
				r.Metadata.Namespace = namespace
				changes = append(changes, repo.Change{Record: r, Tails: []repo.Tail{{Path: r.Roles[0].Tasks[0].Attempts[0].Log, Text: "x\n"}}})
			}
		}
		files, _, err := Files(Input{Layout: layout, Environment: "prod", Changes: changes})
		require.NoError(t, err)
		records, problems := Read(tree(files), layout, "prod")
		require.Empty(t, problems)
		require.Len(t, records, len(changes))
		for _, r := range records {
			assert.Len(t, r.History, 1)
		}
		other, problems := Read(tree(files), layout, "dev")
		assert.Empty(t, problems)
		assert.Empty(t, other)
	}
}
