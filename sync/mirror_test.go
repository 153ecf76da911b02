package gitsync

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBranchesThatMoveInEveryWay(t *testing.T) {
	b := newBare(t)
	one := b.commit("main", map[string]string{"a": "1"})
	two := b.commit("main", map[string]string{"a": "2"})
	b.git("tag", "main", one) // a tag of the branch's name is not the branch
	m := mirrorOf(t, b.dir)
	assert.Equal(t, two, fetch(t, m, "main").Revision())

	move := func(what, to string) {
		t.Helper()
		b.git("update-ref", "refs/heads/main", to)
		snap, changed, err := m.Fetch(t.Context(), "main")
		require.NoError(t, err, what)
		assert.True(t, changed, what)
		assert.Equal(t, to, snap.Revision(), what)
		_, err = snap.ReadFile("a")
		require.NoError(t, err, what)
	}
	move("back to an ancestor", one)
	move("forward again", two)
	orphan := b.commitTree("other", b.tree(map[string]string{"a": "3", "d/e/f": "4"}))
	move("to another history", orphan)
	amended := b.commitTree("third", b.tree(map[string]string{"a": "5", "d/e/f": "4"}), one)
	move("to a rewritten history", amended)
	for i := range 5 {
		b.commit("side", map[string]string{"a": fmt.Sprint("side", i)})
	}
	merge := b.commitTree("merge", b.tree(map[string]string{"a": "6"}), amended, b.tip("side"))
	move("to a merge of a side branch", merge)

	b.git("update-ref", "-d", "refs/heads/main")
	_, _, err := m.Fetch(t.Context(), "main")
	require.ErrorIs(t, err, ErrNoBranch)
	require.NotErrorIs(t, err, ErrEmpty)
	move("back after it was deleted", two)
}

// By haves, a branch that is moved to another history brings all of it.
func TestRewrittenHistoryIsNotFetchedWhole(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())
	fetch(t, m, "main")
	old := m.current()
	heavy, rng := map[string]string{}, rand.NewChaCha8([32]byte{1})
	for i := range 18 {
		noise := make([]byte, 1<<20)
		_, _ = rng.Read(noise)
		heavy[fmt.Sprint(i)] = string(noise)
	}
	b.commit("other", heavy)
	want := b.commit("other", map[string]string{"a": "2"})
	b.git("update-ref", "refs/heads/main", want)
	assert.Equal(t, want, fetch(t, m, "main").Revision())
	assert.NotSame(t, old, m.current())
	assert.Less(t, m.current().weight(), int64(1<<20))
}

func TestRepositoriesWithoutCommits(t *testing.T) {
	b := newBare(t)
	srv := serve(t, b)
	for _, url := range []string{b.dir, srv.url()} {
		m := mirrorOf(t, url)
		_, _, err := m.Fetch(t.Context(), "main")
		require.ErrorIs(t, err, ErrEmpty)
		require.ErrorIs(t, err, ErrNoBranch)
		refs, err := m.List(t.Context())
		require.NoError(t, err)
		assert.Empty(t, refs.Branches)

		rev, err := m.Publish(t.Context(), put("main", map[string]string{"README.md": "hi"}))
		require.NoError(t, err)
		srv.requests()
		snap := fetch(t, m, "main")
		assert.Equal(t, rev, snap.Revision())
		assert.Equal(t, "hi", read(t, snap, "README.md"))
		assert.NotContains(t, srv.requests(), "POST git-upload-pack")
		refs, err = m.List(t.Context())
		require.NoError(t, err)
		assert.Equal(t, Refs{Default: "main", Branches: map[string]Hash{"main": hash(rev)}}, refs)

		b.git("update-ref", "-d", "refs/heads/main") // emptied
		_, _, err = m.Fetch(t.Context(), "main")
		require.ErrorIs(t, err, ErrEmpty)
	}
	b.commit("dev", map[string]string{"a": "1"}) // HEAD names a branch that is not there
	m := mirrorOf(t, b.dir)
	refs, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, refs.Branches, 1)
	_, _, err = m.Fetch(t.Context(), "main")
	require.ErrorIs(t, err, ErrNoBranch)
	for _, bad := range []string{"", "-x", "a..b", "a b", "../x", "x.lock"} {
		_, _, err = m.Fetch(t.Context(), bad)
		require.ErrorContains(t, err, "not a branch name", bad)
	}
}

func TestMirrorIsKeptBetweenRuns(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	srv := serve(t, b)
	opt := Options{Dir: t.TempDir(), Read: remoteOf(t, RemoteOptions{URL: srv.url()})}
	m := openMirror(t, opt)
	fetch(t, m, "main")
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, _, err := m.Fetch(t.Context(), "main")
	require.ErrorIs(t, err, errClosed)
	srv.requests()

	m = openMirror(t, opt)
	_, changed, err := m.Fetch(t.Context(), "main")
	require.NoError(t, err)
	assert.True(t, changed, "new to this process")
	assert.Equal(t, []string{"GET refsgit-upload-pack"}, srv.requests())
	require.NoError(t, m.Close())

	opt.MaxFile = 1 << 10
	m = openMirror(t, opt)
	assert.Nil(t, m.current(), "other limits, other mirror")
	fetch(t, m, "main")
	require.NoError(t, m.Close())
	opt.Read = remoteOf(t, RemoteOptions{URL: b.dir})
	m = openMirror(t, opt)
	assert.Nil(t, m.current(), "another remote, another mirror")
	fetch(t, m, "main")
	dirs, err := filepath.Glob(filepath.Join(opt.Dir, "mirror-*"))
	require.NoError(t, err)
	assert.Len(t, dirs, 1)
}

// mirrorFiles are all files of the mirror but the lock.
func mirrorFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "lock" {
			files = append(files, path)
		}
		return err
	}))
	return files
}

func TestDamagedMirrorIsFetchedAgain(t *testing.T) {
	b := newBare(t)
	files := map[string]string{"jobs/b/c": "deep"}
	for i := range 6 {
		files[fmt.Sprintf("jobs/%d.yaml", i)] = strings.Repeat(fmt.Sprintf("line %d\n", i), 50)
	}
	b.commit("main", files)
	opt := Options{Dir: t.TempDir(), Read: remoteOf(t, RemoteOptions{URL: b.dir})}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		m := openMirror(t, opt)
		fetch(t, m, "main")
		files["jobs/b/c"] = fmt.Sprint("round ", round)
		want := b.commit("main", files)
		fetch(t, m, "main")
		require.NoError(t, m.Close())

		all := mirrorFiles(t, opt.Dir)
		victim := all[rng.IntN(len(all))]
		data, err := os.ReadFile(victim)
		require.NoError(t, err)
		how := rng.IntN(4)
		switch {
		case how == 0:
			require.NoError(t, os.Remove(victim))
		case len(data) == 0 || how == 1:
			require.NoError(t, os.WriteFile(victim, []byte("garbage\x00\xff"), 0o600))
		case how == 2:
			require.NoError(t, os.WriteFile(victim, data[:rng.IntN(len(data))], 0o600))
		default:
			data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			require.NoError(t, os.Chmod(victim, 0o600))
			require.NoError(t, os.WriteFile(victim, data, 0o600))
		}
		what := fmt.Sprintf("round %d: %s, damage %d", round, filepath.Base(victim), how)
		m, err = Open(t.Context(), opt)
		require.NoError(t, err, what)
		snap, _, err := m.Fetch(t.Context(), "main")
		require.NoError(t, err, what)
		assert.Equal(t, want, snap.Revision(), what)
		for name, content := range files {
			got, err := snap.ReadFile(name)
			require.NoError(t, err, what)
			require.Equal(t, content, string(got), what)
		}
		_, err = m.Publish(t.Context(), put("status", map[string]string{"n": fmt.Sprint(round)}))
		require.NoError(t, err, what)
		require.NoError(t, m.Close())
	}
}

func TestDamageUnderOurFeet(t *testing.T) {
	b := newBare(t)
	want := b.commit("main", map[string]string{"a": "1", "d/b": "2"})
	m := mirrorOf(t, b.dir)
	snap := fetch(t, m, "main")
	for _, p := range snap.gen.packs {
		require.NoError(t, os.Chmod(p.path, 0o600))
		require.NoError(t, os.Truncate(p.path, 20))
	}
	_, err := snap.ReadFile("d/b")
	require.ErrorIs(t, err, errCorrupt)
	again := fetch(t, m, "main")
	assert.Equal(t, want, again.Revision())
	assert.Equal(t, "2", read(t, again, "d/b"))
}

func TestGrownMirrorIsSwapped(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "0", "keep": "k"})
	m := openMirror(t, Options{Read: remoteOf(t, RemoteOptions{URL: b.dir}), MaxPacks: 5})
	first := fetch(t, m, "main")
	old := first.gen.dir
	for i := range 20 {
		b.commit("main", map[string]string{"a": fmt.Sprint(i), "keep": "k"})
		fetch(t, m, "main")
		_, err := m.Publish(t.Context(), put("status", map[string]string{"s": fmt.Sprint(i)}))
		require.NoError(t, err)
		assert.LessOrEqual(t, len(m.current().packs), 7)
	}
	assert.NotEqual(t, old, m.current().dir)
	assert.Equal(t, "k", read(t, first, "keep"), "an old snapshot still reads")
	runtime.KeepAlive(first)
	first = nil
	runtime.GC()
	fetch(t, m, "main")
	assert.NoDirExists(t, old, "nobody reads it any more")
	dirs, err := filepath.Glob(filepath.Join(m.opt.Dir, "mirror-*"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(dirs), 2)
	assert.Equal(t, "21", b.git("rev-list", "--count", "main"))
	assert.Equal(t, "20", b.git("rev-list", "--count", "status"))
}

// A tree that lies about what is in it is the repository's fault: it is an
// error, not a reason to fetch everything at each poll.
func TestMalformedTreesAreNotFetchedForEver(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	snap := fetch(t, mirrorOf(t, b.dir), "main")
	for _, data := range []string{"100644 cut short", "100644", "10x644 a\x00" + strings.Repeat("h", 20), "100644 a\x00short"} {
		_, err := parseTree([]byte(data))
		require.ErrorIs(t, err, errMalformed, "%q", data)
	}
	_, err := snap.gen.read(plumbing.TreeObject, hash(b.blob("1")), 0)
	require.ErrorIs(t, err, errMalformed)
	assert.False(t, snap.gen.damaged.Load())
	_, err = snap.Refused("a")
	require.ErrorContains(t, err, "not a directory")
	assert.False(t, snap.gen.damaged.Load())
}

// The mirror is an ordinary bare repository to look at.
func TestMirrorCanBeLookedAtWithGit(t *testing.T) {
	b := newBare(t)
	for i := range 3 {
		b.commit("main", map[string]string{"a": fmt.Sprint(i)})
	}
	m := mirrorOf(t, b.dir)
	fetch(t, m, "main")
	b.commit("main", map[string]string{"a": "new"})
	fetch(t, m, "main")
	look := &bareRepo{t: t, dir: m.current().dir}
	assert.Equal(t, "2", look.git("rev-list", "--count", "main"))
	assert.Equal(t, "new", look.show("main", "a"))
	look.git("fsck")
}

func TestLockNamesTheHolder(t *testing.T) {
	if held := os.Getenv("GITSYNC_TEST_HOLD"); held != "" {
		r, err := NewRemote(RemoteOptions{URL: "/nowhere"})
		require.NoError(t, err)
		_, err = Open(t.Context(), Options{Dir: held, Read: r})
		require.NoError(t, err)
		fmt.Println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until we are killed
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockNamesTheHolder$")
	cmd.Env = append(os.Environ(), "GITSYNC_TEST_HOLD="+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)

	opt := Options{Dir: dir, Read: remoteOf(t, RemoteOptions{URL: "/nowhere"})}
	_, err = Open(t.Context(), opt)
	require.ErrorIs(t, err, ErrLocked)
	var locked *LockedError
	require.True(t, errors.As(err, &locked))
	assert.Equal(t, cmd.Process.Pid, locked.PID)
	assert.ErrorContains(t, err, fmt.Sprintf("%s is held by process %d", dir, cmd.Process.Pid))

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	_ = in.Close()
	m, err := Open(t.Context(), opt)
	require.NoError(t, err, "the lock of a dead process is free")
	_, err = Open(t.Context(), opt)
	require.ErrorIs(t, err, ErrLocked, "not twice in one process either")
	require.NoError(t, m.Close())
}
