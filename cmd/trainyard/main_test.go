package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trainyard": main})
}

// TestScript runs the whole program as users do.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for _, v := range []string{
				"HOME=" + env.WorkDir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
				"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(env.WorkDir),
			} {
				name, value, _ := strings.Cut(v, "=")
				env.Setenv(name, value)
			}
			return nil
		},
	})
}

// bench is a program run in process, with parts of the test's choice.
type bench struct {
	dir   string
	vars  map[string]string
	parts parts
}

func newBench(t *testing.T) *bench {
	return &bench{dir: t.TempDir(), vars: map[string]string{"HOME": t.TempDir()}}
}

// write puts files into the bench's directory.
func (b *bench) write(t *testing.T, name, content string) {
	path := filepath.Join(b.dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func (b *bench) run(args ...string) (code int, out, errs string) {
	return b.runContext(context.Background(), args...)
}

func (b *bench) runContext(ctx context.Context, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	sys := system{
		streams: streams{In: strings.NewReader(""), Out: &o, Err: &e}, Dir: b.dir,
		Env: func(name string) (string, bool) { v, ok := b.vars[name]; return v, ok },
	}
	code = execute(ctx, sys, b.parts, args)
	return code, o.String(), e.String()
}

// treeBranch is a status branch in memory: one tree after another.
type treeBranch struct {
	trees []fs.FS
	reads int
}

func (b *treeBranch) Read(context.Context) (fs.FS, bool, error) {
	at := min(b.reads, len(b.trees)-1)
	changed := b.reads < len(b.trees)
	b.reads++
	if at < 0 {
		return nil, false, nil
	}
	return b.trees[at], changed, nil
}

func (b *treeBranch) Close() error { return nil }
