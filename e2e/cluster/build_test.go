package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDigest: another source or other versions are another program.
func TestDigest(t *testing.T) {
	source, err := sourceFolder()
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(source, "main.go"))
	t.Chdir("build")
	again, err := sourceFolder()
	require.NoError(t, err)
	assert.Equal(t, source, again, "found from every folder")
	t.Chdir(t.TempDir())
	_, err = sourceFolder()
	assert.ErrorContains(t, err, "no e2e/cluster/controlplane above")

	first, err := digest(source)
	require.NoError(t, err)
	for _, changed := range []string{"main.go", "go.mod", "go.sum"} {
		other := filepath.Join(t.TempDir(), "source")
		require.NoError(t, os.CopyFS(other, os.DirFS(source)))
		same, err := digest(other)
		require.NoError(t, err)
		assert.Equal(t, first, same)
		require.NoError(t, os.WriteFile(filepath.Join(other, changed), []byte("other"), 0o644))
		changedKey, err := digest(other)
		require.NoError(t, err)
		assert.NotEqual(t, first, changedKey, changed)
	}
}

// TestLock: of two who build, one waits.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	var said strings.Builder
	unlock, err := lock(t.Context(), name, &said)
	require.NoError(t, err)
	assert.Empty(t, said.String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = lock(ctx, name, &said)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, "control plane: another process builds it; waiting\n", said.String())
	unlock()
	unlock, err = lock(t.Context(), name, &said)
	require.NoError(t, err)
	unlock()
}

// TestCompile: what does not compile says so, and leaves nothing that looks built.
func TestCompile(t *testing.T) {
	source, cache := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	write(filepath.Join(source, "go.mod"), "module broken\n")
	write(filepath.Join(source, "main.go"), "package main\n\nfunc main() { nothing() }\n")
	stale, used := filepath.Join(cache, "stale"), filepath.Join(cache, "used")
	for _, dir := range []string{stale, used, filepath.Join(cache, "unfinished-1")} {
		write(filepath.Join(dir, "controlplane"), "")
	}
	old := time.Now().Add(-90 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(stale, "controlplane"), old, old))

	err := compileInto(t.Context(), source, cache, "key", &strings.Builder{})
	require.ErrorContains(t, err, "build the control plane: go list")
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, "used", left[0].Name())
}
