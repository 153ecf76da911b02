package render

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// verdict is what testdata/verdicts.txt says of a file.
type verdict struct {
	verdict string // accept, warn, reject
	golden  string // of testdata/corpus, its case in our own words
	file    string // below the corpus
}

func verdicts(t testing.TB) (all []verdict) {
	t.Helper()
	text, err := os.ReadFile("testdata/verdicts.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		require.Len(t, words, 3, line)
		require.Contains(t, []string{"accept", "warn", "reject"}, words[0], line)
		all = append(all, verdict{words[0], words[1], words[2]})
	}
	return all
}

// passed is the verdict on what was rendered, and all that is said of it.
func passed(defs repo.Definitions) (string, []*repo.Error) {
	problems := slices.Clone(defs.Problems)
	for _, j := range defs.Jobs {
		problems = append(problems, j.Warnings...)
	}
	for _, i := range defs.Invalid {
		problems = append(problems, i.Errors...)
	}
	errs, warnings := repo.Split(problems)
	switch {
	case len(errs) > 0:
		return "reject", problems
	case len(warnings) > 0:
		return "warn", problems
	}
	return "accept", nil
}

// corpus is the tree of other systems' job files that TRAINYARD_CORPUS names.
func corpus(t testing.TB) fs.FS {
	t.Helper()
	dir := os.Getenv("TRAINYARD_CORPUS")
	if dir == "" {
		t.Skip("TRAINYARD_CORPUS names no directory of job files")
	}
	return os.DirFS(dir)
}

func TestCorpus(t *testing.T) {
	tree := corpus(t)
	var listed []string
	for _, v := range verdicts(t) {
		listed = append(listed, v.file)
		defs, err := New(environmentOf).RenderPaths(context.Background(), Dir(tree, "1"), v.file)
		require.NoError(t, err)
		got, problems := passed(defs)
		assert.Equal(t, v.verdict, got, "%s: %v", v.file, problems)
		for _, e := range problems {
			assert.Equal(t, v.file, e.File)
			assert.NotEmpty(t, e.Message)
		}
	}
	var found []string
	require.NoError(t, fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".yaml" {
			found = append(found, name)
		}
		return err
	}))
	assert.ElementsMatch(t, found, listed, "testdata/verdicts.txt lists every file")
}

// A file takes less than 10 ms where nothing else runs, as BenchmarkCorpus
// shows. Tests share their machine and may run under the race detector, so that
// twenty times as long is let pass here.
const longest = 20 * 10 * time.Millisecond

func TestCorpusIsQuick(t *testing.T) {
	tree := corpus(t)
	New(environmentOf)
	for _, v := range verdicts(t) {
		assert.Less(t, median(t, 3, tree, v.file), longest, v.file)
	}
}

// median is that of the times which so many renders of a file take, none of
// which knows of the one before.
func median(t testing.TB, tries int, tree fs.FS, file string) time.Duration {
	t.Helper()
	took := make([]time.Duration, tries)
	for i := range took {
		begin := time.Now()
		_, err := New(environmentOf).RenderPaths(context.Background(), Dir(tree, "1"), file)
		took[i] = time.Since(begin)
		require.NoError(t, err)
	}
	slices.Sort(took)
	return took[tries/2]
}

// BenchmarkCorpus measures the slowest file: the median of its renders.
func BenchmarkCorpus(b *testing.B) {
	tree, slowest := corpus(b), time.Duration(0)
	for b.Loop() {
		for _, v := range verdicts(b) {
			slowest = max(slowest, median(b, 9, tree, v.file))
		}
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms/slowest-file")
}

// TestCorpusInOurWords renders the case that stands for each file of the corpus:
// input, pods and all that is said of it.
func TestCorpusInOurWords(t *testing.T) {
	want, used := map[string]string{}, map[string]bool{}
	for _, v := range verdicts(t) {
		if other, ok := want[v.golden]; ok {
			require.Equal(t, other, v.verdict, "%s: files of two verdicts have one case", v.golden)
		}
		want[v.golden] = v.verdict
	}
	eachGolden(t, "testdata/corpus/*.txtar", func(t *testing.T, name string, files map[string]string) string {
		defs := render(t, files)
		got, problems := passed(defs)
		used[name] = true
		if expected, ok := want[name]; ok {
			assert.Equal(t, expected, got, problems)
		}
		return fmt.Sprintf("verdict: %s\n", got) + brief(t, defs)
	})
	for name := range want {
		assert.True(t, used[name], "testdata/corpus has no %s.txtar", name)
	}
}
