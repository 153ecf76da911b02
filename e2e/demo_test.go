package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestDemo runs the demo as a new user does, and holds every number of the
// dashboard against the records.
func TestDemo(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "demo")
	code, out := w.trainyard("demo", "--dir", dir)
	require.Equal(t, 0, code, out)
	assert.Contains(t, out, "loss=", "it shows the training's progress")
	assert.Contains(t, out, "Everything is in "+dir)

	remote := filepath.Join(dir, "repository.git")
	show := func(name string) string { return w.git(remote, "show", repo.StatusBranch+":"+name) }
	board := show("README.md")
	assert.Contains(t, out, "3 jobs · 3 Succeeded · 3 finished runs")
	assert.Contains(t, board, "3 jobs · 3 Succeeded · 3 finished runs")
	tried := 0
	for _, name := range strings.Fields(w.git(remote, "ls-tree", "-r", "--name-only", repo.StatusBranch)) {
		if filepath.Base(name) != repo.StatusFile {
			continue
		}
		tried++
		var rec repo.Record
		require.NoError(t, yaml.Unmarshal([]byte(show(name)), &rec))
		require.Equal(t, repo.PhaseSucceeded, rec.Phase)
		done, want, retries := 0, 0, rec.Run.Retries.Total
		for _, role := range rec.Roles {
			for _, task := range role.Tasks {
				retries += task.Retries.Total
				if role.Daemon {
					continue
				}
				if want++; *task.Attempts[len(task.Attempts)-1].ExitCode == 0 {
					done++
				}
			}
		}
		row := fmt.Sprintf(`\| \[%s\]\(%s\) \| Succeeded \| %d/%d \| %d \| %s \| %ds \|`, rec.Key(), filepath.Dir(name)+"/README.md", done, want, retries,
			rec.Run.StartedAt.UTC().Format("2006-01-02 15:04:05"), int(rec.Run.FinishedAt.Sub(rec.Run.StartedAt.Time).Seconds()))
		assert.Regexp(t, regexp.MustCompile(row), board)
	}
	assert.Equal(t, 3, tried)

	code, out = w.trainyard("demo", "--dir", dir)
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, "not empty")
}
