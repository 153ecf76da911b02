package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reader that has a file open, and a machine that loses its power, see all of
// the old content or all of the new.
func TestFilesAreReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "outcome.json"), filepath.Join(dir, "reader")
	require.NoError(t, writeDurable(path, "old"))
	require.NoError(t, os.Link(path, other)) // the file as a reader holds it
	require.NoError(t, writeDurable(path, "new"))
	var was, is string
	require.NoError(t, read(other, &was))
	require.NoError(t, read(path, &is))
	assert.Equal(t, []string{"old", "new"}, []string{was, is})
	names, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	assert.Empty(t, names, "nothing is left beside it")
}
