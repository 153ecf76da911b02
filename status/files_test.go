package status

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestFiles(t *testing.T) {
	r := ran(record("failed", repo.PhaseFailed), 300, repo.Failed)
	tail := repo.Tail{Path: r.Roles[0].Tasks[0].Attempts[0].Log, Text: "boom\n"}
	in := Input{Environment: "prod", Revision: "4b825dc", Changes: []repo.Change{{Record: r, Tails: []repo.Tail{tail}}}, Records: []repo.Record{r}}
	files, message, err := Files(in)
	require.NoError(t, err)
	dir := "prod/nlp/failed/"
	for _, name := range []string{"README.md", ".gitattributes", dir + "status.yaml", dir + "history.jsonl", dir + "README.md", dir + tail.Path} {
		assert.NotEmpty(t, files[name], name)
	}
	assert.Len(t, files, 6)
	assert.Equal(t, "failed: Failed after 1m2s\n\n[skip ci]\n\nTrainyard-Revision: 4b825dc\nTrainyard-Environment: prod\n", message)

	// Once they are there, nothing is left to write, also not without the tail.
	in.Tip = tree(files)
	for _, tails := range [][]repo.Tail{{tail}, nil} {
		in.Changes[0].Tails = tails
		again, _, err := Files(in)
		require.NoError(t, err)
		assert.Empty(t, again)
	}

	got, problems := Read(in.Tip, repo.Layout{}, "prod")
	require.Empty(t, problems)
	require.Len(t, got, 1)
	assert.Equal(t, asText(t, r), asText(t, got[0]))
	require.Len(t, got[0].History, 1)
	assert.True(t, r.History[0].FinishedAt.Equal(&got[0].History[0].FinishedAt))
}

func tree(files map[string][]byte) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, b := range files {
		fs[name] = &fstest.MapFile{Data: b}
	}
	return fs
}

func TestOldTailsAreRemoved(t *testing.T) {
	r := ran(record("j", repo.PhaseSucceeded), 0, repo.Succeeded)
	fs := fstest.MapFS{}
	for i := range repo.KeptRuns + 3 {
		s := r.History[0]
		s.ID = fmt.Sprintf("j-%02d", i)
		r.History = append(r.History, s)
		fs["prod/nlp/j/logs/"+s.ID+"/worker-0-0-0.log"] = &fstest.MapFile{Data: []byte("x")}
	}
	files, _, err := Files(Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}, Tip: fs})
	require.NoError(t, err)
	var gone []string
	for name, b := range files {
		if b == nil {
			gone = append(gone, name)
		}
	}
	assert.ElementsMatch(t, []string{
		"prod/nlp/j/logs/j-00/worker-0-0-0.log", "prod/nlp/j/logs/j-01/worker-0-0-0.log", "prod/nlp/j/logs/j-02/worker-0-0-0.log",
	}, gone)
}

// apply is what a tree holds once files are written.
func apply(tip fstest.MapFS, files map[string][]byte) fstest.MapFS {
	out := fstest.MapFS{}
	for name, f := range tip {
		out[name] = f
	}
	for name, b := range files {
		delete(out, name)
		if b != nil {
			out[name] = &fstest.MapFile{Data: b}
		}
	}
	return out
}

// A record moves when the number of shards changes, with its log tails and what
// nobody can read of its history. A neighbour whose shard has its name stays.
func TestRecordsMoveWithTheShards(t *testing.T) {
	layouts := []repo.Layout{{}, {Shards: 16}, {Shards: 256}}
	for _, from := range layouts {
		for _, to := range layouts {
			t.Run(fmt.Sprintf("%d to %d", from.Shards, to.Shards), func(t *testing.T) {
				var changes []repo.Change
				shard := strings.Split(repo.Layout{Shards: 16}.RecordDir("prod", repo.Key{Namespace: "nlp", Name: "j"}), "/")[2]
				for _, name := range []string{"j", shard, "logs"} {
					r := ran(record(name, repo.PhaseFailed), 0, repo.Failed)
					changes = append(changes, repo.Change{Record: r, Tails: []repo.Tail{{Path: r.Roles[0].Tasks[0].Attempts[0].Log, Text: "boom " + name + "\n"}}})
				}
				files, _, err := Files(Input{Layout: from, Environment: "prod", Changes: changes})
				require.NoError(t, err)
				for name, b := range files {
					if strings.HasSuffix(name, repo.HistoryFile) {
						files[name] = append([]byte("{damaged\n"), b...)
					}
				}
				tip := tree(files)
				for i := range changes { // one at a time: the others are still where they were
					records, problems := Read(tip, to, "prod")
					require.Len(t, problems, len(changes), "a damaged line each")
					require.Len(t, records, len(changes))
					for _, r := range records {
						if r.Metadata.Name != changes[i].Record.Metadata.Name {
							continue
						}
						files, _, err := Files(Input{Layout: to, Environment: "prod", Changes: []repo.Change{{Record: r}}, Tip: tip})
						require.NoError(t, err)
						tip = apply(tip, files)
					}
				}
				want, _, err := Files(Input{Layout: to, Environment: "prod", Changes: changes})
				require.NoError(t, err)
				for name, b := range want {
					require.Contains(t, tip, name)
					if strings.HasSuffix(name, repo.HistoryFile) {
						b = append([]byte("{damaged\n"), b...)
					}
					assert.Equal(t, string(b), string(tip[name].Data), name)
				}
				assert.Len(t, tip, len(want), "nothing is left behind")
			})
		}
	}
}

// A record that could not be read is not written over, whatever is asked.
func TestDamagedRecordsAreLeftAlone(t *testing.T) {
	tip := fstest.MapFS{"prod/nlp/j/status.yaml": &fstest.MapFile{Data: []byte("{")}}
	records, _ := Read(tip, repo.Layout{}, "prod")
	files, _, err := Files(Input{Environment: "prod", Changes: []repo.Change{{Record: records[0]}}, Records: records, Tip: tip})
	require.NoError(t, err)
	assert.NotContains(t, files, "prod/nlp/j/status.yaml")
	assert.Contains(t, string(files["README.md"]), "nlp/j", "but the dashboard shows it")
}

func TestMessages(t *testing.T) {
	retrying := ran(record("again", repo.PhaseRetrying), 0, "")
	retrying.Run.Attempt = 1
	odd := ran(record("odd", repo.PhaseFailed), 0, repo.Failed)
	odd.Run.Outcome = nil
	var many []repo.Record
	for i := range 60 {
		many = append(many, record(fmt.Sprintf("job-%02d", i), repo.PhasePending))
	}
	for name, c := range map[string]struct {
		records []repo.Record
		want    string
	}{
		"none":     {nil, "dashboard of prod\n\n[skip ci]\n"},
		"new":      {many[:1], "job-00: Pending\n\n[skip ci]\n"},
		"retrying": {[]repo.Record{retrying}, "again: Retrying, attempt 2\n\n[skip ci]\n"},
		"odd":      {[]repo.Record{odd}, "odd: Failed\n\n[skip ci]\n"},
		"two":      {many[:2], "2 jobs: job-00: Pending, job-01: Pending\n\n- job-00: Pending\n- job-01: Pending\n\n[skip ci]\n"},
		"many":     {many, "60 jobs: job-00: Pending, job-01: Pending, job-02: Pending, job-03: P...\n\n- job-00: Pending\n"},
	} {
		in := Input{Environment: "prod", Revision: "4b825dc"}
		for _, r := range c.records {
			in.Changes = append(in.Changes, repo.Change{Record: r})
		}
		got := Message(in)
		assert.True(t, strings.HasPrefix(got, c.want), "%s: %s", name, got)
		assert.True(t, strings.HasSuffix(got, "\n\nTrainyard-Revision: 4b825dc\nTrainyard-Environment: prod\n"), got)
		assert.Less(t, len(got), 2000)
	}
}

// A record that is read keeps the latest of many runs whole, counts all of them,
// and writes the file again as it was.
func TestManyRuns(t *testing.T) {
	r := ran(record("j", repo.PhaseSucceeded), 0, repo.Succeeded)
	runs := 3 * repo.KeptRuns
	r.History[0].GPUSeconds = 3600
	for i := range runs - 1 {
		s := r.History[0]
		s.ID = fmt.Sprintf("j-%02d", i)
		r.History = append(r.History, s)
	}
	in := Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}}
	files, _, err := Files(in)
	require.NoError(t, err)

	got, problems := Read(tree(files), repo.Layout{}, "prod")
	require.Empty(t, problems)
	require.Len(t, got, 1)
	require.Less(t, len(got[0].History), runs)
	assert.Contains(t, string(Page(&got[0], nil)), fmt.Sprintf("and %d before them", runs-repo.KeptRuns))
	assert.Contains(t, string(Dashboard(nil, repo.Layout{}, "prod", got, nil)), "60 finished runs · 60.00 GPU hours")

	in.Changes, in.Records, in.Tip = []repo.Change{{Record: got[0]}}, got, tree(files)
	again, _, err := Files(in)
	require.NoError(t, err)
	assert.Empty(t, again, "nothing has changed")
}
