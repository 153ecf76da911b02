package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInit(t *testing.T) {
	b := newBench(t)
	b.parts.Skeleton = func() fs.FS {
		return fstest.MapFS{"jobs/hello.yaml": {Data: []byte("hello")}, "README.md": {Data: []byte("read")}}
	}
	code, out, errs := b.run("init", "mine")
	require.Zero(t, code, errs)
	assert.Equal(t, filepath.FromSlash("mine/README.md\nmine/jobs/hello.yaml\n")+`
Next:
  cd mine && trainyard validate
  git init -b main && git add . && git commit -m 'first job'
  trainyard run --repo . --once
`, out)
	text, err := os.ReadFile(filepath.Join(b.dir, "mine", "jobs", "hello.yaml"))
	require.NoError(t, err)
	assert.Equal(t, "hello", string(text))

	// What is there stays, and nothing is half written.
	require.NoError(t, os.Remove(filepath.Join(b.dir, "mine", "README.md")))
	code, out, errs = b.run("init", "mine")
	assert.Equal(t, exitProblems, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "already there: jobs/hello.yaml; nothing was written\nhint: ")
	assert.NoFileExists(t, filepath.Join(b.dir, "mine", "README.md"))

	// Into a checkout that is there already.
	b.write(t, ".git/HEAD", "")
	code, out, errs = b.run("init", ".")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "Next:\n  trainyard validate\n  git add . && git commit -m 'first job'\n")
}
