package runner

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A daemon that was killed before any record was pushed leaves two runs behind:
// the one that was replaced, and the one that took its place. The first must
// not go on beside the second, not even when both began in the same second.
func TestReplacedRunIsNotTakenUpAgain(t *testing.T) {
	w := pushed(t)
	w.act()
	w.start("main-0", "main-1")
	w.edit(func(j *repo.Job) { digest("B")(j); j.OnChange = repo.Restart })
	for range 3 {
		w.act()
	}
	require.Len(t, w.runs, 2)
	require.Equal(t, []string{"main-0", "main-1"}, w.live(), "of the second run")
	starts := len(w.starts)
	w.edit(func(j *repo.Job) { j.OnChange = repo.Finish }) // nothing asks for the first one's end any more
	w.kill()
	w.succeed()
	assert.Len(t, w.starts, starts)
	assert.Equal(t, []string{"A", "B"}, w.ran())
	assert.Equal(t, repo.Stopped, w.record.History[0].Result)
	assert.Equal(t, repo.Succeeded, w.record.History[1].Result)
}
