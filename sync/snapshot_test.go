package gitsync

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rawTree writes a tree as it is, in the given order.
func (b *bareRepo) rawTree(entries ...entry) string {
	b.t.Helper()
	var s strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&s, "%o %s\x00", e.mode, e.name)
		s.Write(e.hash[:])
	}
	return b.gitIn(s.String(), "hash-object", "-t", "tree", "--literally", "-w", "--stdin")
}

func hash(s string) Hash { return plumbing.NewHash(s) }

func TestSnapshotIsAFileSystem(t *testing.T) {
	b := newBare(t)
	exec := entry{"run.sh", modeExec, hash(b.blob("#!/bin/sh\n"))}
	file := entry{"a.yaml", modeFile, hash(b.blob("a: 1\n"))}
	empty := entry{"empty", modeFile, hash(b.blob(""))}
	link := entry{"link", modeSymlink, hash(b.blob("/etc/passwd"))}
	sub := entry{"module", modeSubmodule, hash(strings.Repeat("1", 40))}
	deep := b.rawTree(file, empty)
	b.commitTree("main", b.rawTree(file, entry{"dir", modeDir, hash(deep)}, link, exec))
	b.commitTree("module", b.rawTree(file, entry{"dir", modeDir, hash(deep)}, link, sub, exec))
	m := mirrorOf(t, b.dir)
	snap := fetch(t, m, "main")

	require.NoError(t, fstest.TestFS(snap, "a.yaml", "run.sh", "dir/a.yaml", "dir/empty", "link"))
	require.NoError(t, fstest.TestFS(snap.View(t.Context(), Limits{}), "a.yaml", "dir/empty"))

	snap = fetch(t, m, "module")
	for name, what := range map[string]string{"link": "symbolic link", "module": "submodule"} {
		_, err := snap.ReadFile(name)
		require.ErrorIs(t, err, ErrIrregular)
		assert.ErrorContains(t, err, name+": not a regular file: it is a "+what)
		info, err := snap.Stat(name)
		require.NoError(t, err)
		assert.False(t, info.Mode().IsRegular())
		_, err = snap.Stat(name + "/below")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	info, err := snap.Stat("run.sh")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o555), info.Mode())
	assert.Equal(t, int64(10), info.Size())
	for _, bad := range []string{"", "/a.yaml", "../a.yaml", "dir/../a.yaml", "dir/", strings.Repeat("a/", 3000) + "a"} {
		_, err := snap.ReadFile(bad)
		require.ErrorIs(t, err, fs.ErrInvalid, bad)
	}
	_, err = snap.ReadFile("dir")
	require.ErrorIs(t, err, ErrIrregular)
	_, err = snap.ReadDir("a.yaml")
	require.ErrorContains(t, err, "not a directory")
}

// A bare fetch takes trees that no checkout would.
func TestHostileNamesAreNotShown(t *testing.T) {
	b := newBare(t)
	blob := hash(b.blob("x"))
	inner := hash(b.rawTree(entry{"config", modeFile, blob}))
	bad := []string{"..", ".", ".git", ".GIT", ".Git", `a\b`, "a/b", "../../evil", "nul\x01", "tab\tx", "line\nx", "del\x7f", "\xff\xfe", "caf\xe9"}
	entries := []entry{{"good", modeFile, blob}, {"café", modeFile, blob}, {"twice", modeFile, blob}, {"twice", modeDir, inner}}
	for _, name := range bad {
		entries = append(entries, entry{name, modeFile, blob})
	}
	entries = append(entries, entry{".giT", modeDir, inner}, entry{"...", modeFile, blob}, entry{".github", modeFile, blob})
	b.commitTree("main", b.rawTree(entries...))
	snap := fetch(t, mirrorOf(t, b.dir), "main")

	list, err := snap.ReadDir(".")
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"...", ".github", "café", "good"}, names)
	refused, err := snap.Refused(".")
	require.NoError(t, err)
	assert.Len(t, refused, len(bad)+1+2)
	assert.Contains(t, refused, `".."`)
	for _, name := range append(bad, "twice", ".giT/config") {
		_, err := snap.ReadFile(name)
		require.Error(t, err, "%q", name)
	}
	require.NoError(t, fstest.TestFS(snap, "good", "café"))
	assert.Empty(t, newDirectory([]entry{{"", modeFile, blob}}).entries, "git itself does not send this one")
}

func TestLargeFiles(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	exact := strings.Repeat("x", 1<<20)
	for _, filters := range []string{"true", "false"} {
		t.Run("filter="+filters, func(t *testing.T) {
			b := newBare(t)
			b.git("config", "uploadpack.allowFilter", filters)
			b.commit("main", map[string]string{"model.bin": big, "exact": exact, "job.yaml": "a"})
			m := mirrorOf(t, b.dir)
			snap := fetch(t, m, "main")
			assert.Equal(t, "a", read(t, snap, "job.yaml"))
			assert.Equal(t, exact, read(t, snap, "exact"), "a file of just the limit is readable")
			_, err := snap.ReadFile("model.bin")
			require.ErrorIs(t, err, ErrTooLarge)
			assert.EqualError(t, err, "read model.bin: file is too large: it has more than 1048576 bytes")
			info, err := snap.Stat("model.bin")
			require.NoError(t, err)
			assert.Equal(t, filters == "true", info.Size() == -1)
			assert.False(t, m.current().damaged.Load())

			next := b.commit("main", map[string]string{"model.bin": big, "exact": exact, "job.yaml": "b"})
			assert.Equal(t, next, fetch(t, m, "main").Revision())
			assert.Len(t, m.current().packs, 2, "fetched by haves")
		})
	}
}

func TestConcurrentReaders(t *testing.T) {
	b := newBare(t)
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("jobs/job-%03d.yaml", i)] = fmt.Sprintf("n: %d", i)
	}
	b.commit("main", files)
	m := mirrorOf(t, b.dir)
	snap := fetch(t, m, "main")
	list, err := snap.ReadDir("jobs")
	require.NoError(t, err)
	assert.Len(t, list, 300)

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for name, content := range files {
				got, err := snap.ReadFile(name)
				assert.NoError(t, err)
				assert.Equal(t, content, string(got))
			}
		})
	}
	for i := range 5 { // packs come in while others read
		files := map[string]string{fmt.Sprintf("f%d", i): "x"}
		_, err := m.Publish(t.Context(), put("status", files))
		require.NoError(t, err)
	}
	wg.Wait()
}

func TestFileReadsInPieces(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"d/a": "hello", "d/b": "", "d/c": ""})
	snap := fetch(t, mirrorOf(t, b.dir), "main")
	f, err := snap.Open("d/a")
	require.NoError(t, err)
	part := make([]byte, 2)
	_, err = io.ReadFull(f, part)
	require.NoError(t, err)
	rest, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(part)+string(rest))
	d, err := snap.Open("d")
	require.NoError(t, err)
	for _, want := range []int{2, 1} {
		list, err := d.(fs.ReadDirFile).ReadDir(2)
		require.NoError(t, err)
		assert.Len(t, list, want)
	}
	_, err = d.(fs.ReadDirFile).ReadDir(2)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "change\n", snap.Message())
	assert.False(t, snap.Time().IsZero())
}
