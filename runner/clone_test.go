package runner

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A look at a job costs the same however often it has run.
func TestHistoryIsNotCopied(t *testing.T) {
	old := repo.Record{History: make([]repo.RunSummary, 2, 10)}
	c := clone(old)
	require.Same(t, &old.History[0], &c.History[0])
	c.History = append(c.History, repo.RunSummary{ID: "new"})
	assert.Empty(t, old.History[:3][2].ID, "what is appended to a copy reaches nobody else")
	assert.NotSame(t, &old.History[0], &c.History[0])
}
