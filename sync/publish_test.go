package gitsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Four daemons on one branch: nothing is lost, nothing is there twice.
func TestPublishersDoNotLoseEachOthersCommits(t *testing.T) {
	b := newBare(t)
	b.commit("status", map[string]string{"README.md": "x"})
	srv := serve(t, b)
	const writers, commits = 4, 15
	var wg sync.WaitGroup
	for w := range writers {
		m := mirrorOf(t, srv.url())
		wg.Go(func() {
			for i := range commits {
				req := put("status", map[string]string{fmt.Sprintf("w%d/j%d/status.yaml", w, i): fmt.Sprint(i)})
				// A common file, merged by what each finds in it.
				files := req.Build
				req.Build = func(tip *Snapshot) (map[string][]byte, string, error) {
					out, msg, err := files(tip)
					log, _ := tip.ReadFile("log")
					line := fmt.Sprintf("w%d j%d\n", w, i)
					if !strings.Contains(string(log), line) {
						out["log"] = append(log, line...)
					}
					return out, msg, err
				}
				req.Tries = 200
				_, err := m.Publish(t.Context(), req)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, fmt.Sprint(1+writers*commits), b.git("rev-list", "--count", "status"))
	assert.Len(t, strings.Fields(b.git("ls-tree", "-r", "--name-only", "status")), writers*commits+2)
	assert.Len(t, strings.Split(b.show("status", "log"), "\n"), writers*commits)
	b.git("fsck", "--strict", "--full")
}

func TestAnswerLostAfterThePushLanded(t *testing.T) {
	b := newBare(t)
	b.commit("status", map[string]string{"a": "1"})
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())
	lost := 0
	srv.setSpoil(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, receivePack) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			lost++
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	req, built := put("status", map[string]string{"a": "2"}), 0
	build := req.Build
	req.Build = func(tip *Snapshot) (map[string][]byte, string, error) {
		built++
		return build(tip)
	}
	rev, err := m.Publish(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, 1, lost)
	assert.Equal(t, 1, built, "our commit is known by its hash")
	assert.Equal(t, rev, b.tip("status"))
	assert.Equal(t, "2", b.git("rev-list", "--count", "status"))
	assert.Equal(t, "2", read(t, fetch(t, m, "status"), "a"))

	// Landed, and somebody else's commit on top before we could ask.
	srv.setSpoil(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, receivePack) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			b.commit("status", map[string]string{"a": "3", "theirs": "x"})
			srv.setSpoil(nil)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	_, err = m.Publish(t.Context(), put("status", map[string]string{"a": "3"}))
	require.NoError(t, err)
	assert.Equal(t, "4", b.git("rev-list", "--count", "status"), "it is not there twice")
}

func TestRefusedPushSaysWhy(t *testing.T) {
	b := newBare(t)
	b.commit("status", map[string]string{"a": "1"})
	before := b.tip("status")
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())
	fetch(t, m, "status")

	b.hook("pre-receive", "echo 'status is closed on Sundays' >&2; exit 1\n")
	_, err := m.Publish(t.Context(), put("status", map[string]string{"a": "2"}))
	require.ErrorIs(t, err, ErrRefused)
	var push *PushError
	require.True(t, errors.As(err, &push))
	assert.Contains(t, push.Reason, "pre-receive hook declined")
	assert.Contains(t, push.Output, "status is closed on Sundays")
	assert.Equal(t, before, b.tip("status"))

	b.hook("pre-receive", "exit 0\n")
	b.hook("update", `[ "$1" = refs/heads/status ] && { echo protected >&2; exit 1; }; exit 0`+"\n")
	_, err = m.Publish(t.Context(), put("status", map[string]string{"a": "2"}))
	require.ErrorIs(t, err, ErrRefused)
	_, err = m.Publish(t.Context(), put("other", map[string]string{"a": "2"}))
	require.NoError(t, err)
	b.hook("update", "exit 0\n")
	_, err = m.Publish(t.Context(), put("status", map[string]string{"a": "2"}))
	require.NoError(t, err, "the same request, later")
}

func TestPublishOnABranchThatMoved(t *testing.T) {
	b := newBare(t)
	b.commit("status", map[string]string{"mine": "1", "theirs": "1"})
	m := mirrorOf(t, b.dir)
	fetch(t, m, "status")
	b.commit("status", map[string]string{"mine": "1", "theirs": "2"})
	var saw []string
	req := put("status", map[string]string{"mine": "2"})
	build := req.Build
	req.Build = func(tip *Snapshot) (map[string][]byte, string, error) {
		saw = append(saw, read(t, tip, "theirs"))
		return build(tip)
	}
	_, err := m.Publish(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, []string{"1", "2"}, saw)
	assert.Equal(t, "2", b.show("status", "theirs"))

	b.git("update-ref", "-d", "refs/heads/status")
	nothing := false
	req.Build = func(tip *Snapshot) (map[string][]byte, string, error) {
		nothing = tip == nil
		return build(tip)
	}
	rev, err := m.Publish(t.Context(), req)
	require.NoError(t, err)
	assert.True(t, nothing, "a deleted branch is begun anew")
	assert.Equal(t, "1", b.git("rev-list", "--count", rev))

	moves := 0
	req.Tries = 3
	req.Build = func(*Snapshot) (map[string][]byte, string, error) {
		moves++
		b.commit("status", map[string]string{"n": fmt.Sprint(moves)})
		return map[string][]byte{"mine": []byte("3")}, "x", nil
	}
	_, err = m.Publish(t.Context(), req)
	require.ErrorIs(t, err, ErrContended)
	assert.Equal(t, 3, moves)
}

func TestPublishEdits(t *testing.T) {
	b := newBare(t)
	link := entry{"link", modeSymlink, hash(b.blob("/etc"))}
	script := entry{"run.sh", modeExec, hash(b.blob("1"))}
	odd := entry{"caf\xe9", modeFile, hash(b.blob("odd"))}
	b.commitTree("main", b.rawTree(odd, entry{"d.txt", modeFile, hash(b.blob("t"))},
		entry{"d", modeDir, hash(b.tree(map[string]string{"x": "1", "e/y": "2"}))}, link, script))
	m := mirrorOf(t, b.dir)
	publish := func(files map[string][]byte) error {
		_, err := m.Publish(t.Context(), PublishRequest{Branch: "main", Author: Person{"A", "a@b"}, When: commitTime,
			Build: func(*Snapshot) (map[string][]byte, string, error) { return files, "edit", nil }})
		return err
	}
	list := func() string {
		return b.git("-c", "core.quotepath=true", "ls-tree", "-r", "--format=%(objectmode) %(path)", "main")
	}
	require.NoError(t, publish(map[string][]byte{"d/e/y": nil, "d0/new": []byte("n"), "link/in": []byte("l"), "run.sh": []byte("2"), "none/there": nil, "d.txt/x": nil}))
	assert.Equal(t, strings.Join([]string{`100644 "caf\351"`, "100644 d.txt", "100644 d/x", "100644 d0/new", "100644 link/in", "100755 run.sh"}, "\n"), list())
	b.git("fsck", "--strict")

	before := b.tip("main")
	require.NoError(t, publish(map[string][]byte{"d/x": []byte("1"), "gone": nil}))
	require.NoError(t, publish(nil))
	assert.Equal(t, before, b.tip("main"), "no change, no commit")
	require.ErrorContains(t, publish(map[string][]byte{"d": []byte("file")}), "is a directory on the branch")
	require.NoError(t, publish(map[string][]byte{"d/x": nil, "d0/new": nil, "link/in": nil, "run.sh": nil, "d.txt": nil, "empty": {}}))
	assert.Equal(t, "100644 \"caf\\351\"\n100644 empty", list())

	for _, bad := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".git/config", "a/.GIT/x", `a\b`, "a\x00b", "a\nb", "\xff", "./a"} {
		require.ErrorContains(t, publish(map[string][]byte{bad: []byte("x")}), "cannot be published", "%q", bad)
	}
	require.ErrorContains(t, publish(map[string][]byte{"a": []byte("x"), "a/b": []byte("x")}), `"a" is a file`)
	why := errors.New("not now")
	_, err := m.Publish(t.Context(), PublishRequest{Branch: "main", Author: Person{"A", "a@b"}, When: commitTime,
		Build: func(*Snapshot) (map[string][]byte, string, error) { return nil, "", why }})
	require.ErrorIs(t, err, why)
	assert.Equal(t, "100644 \"caf\\351\"\n100644 empty", list())
}

func TestTheSameRequestGivesTheSameCommit(t *testing.T) {
	var revs []string
	for range 2 {
		b := newBare(t)
		rev, err := mirrorOf(t, b.dir).Publish(t.Context(), put("main", map[string]string{"b/c": "1", "a": "2"}))
		require.NoError(t, err)
		revs = append(revs, rev)
		assert.Equal(t, "Trainyard <bot@example.com> 1700000000 +0000", b.git("log", "-1", "--format=%an <%ae> %at +0000", "main"))
		assert.Equal(t, "records", b.git("log", "-1", "--format=%B", "main"))
	}
	assert.Equal(t, revs[0], revs[1])
	for _, bad := range []PublishRequest{
		{Branch: "x y"}, {Branch: "x", Author: Person{"a\nb", "c"}, When: commitTime}, {Branch: "x", Author: Person{"a", "b"}},
	} {
		_, err := mirrorOf(t, t.TempDir()).Publish(t.Context(), bad)
		require.Error(t, err)
	}
}

func TestPublishStopsWithItsContext(t *testing.T) {
	b := newBare(t)
	b.commit("status", map[string]string{"a": "1"})
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())
	fetch(t, m, "status")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("shutting down")
	srv.setSpoil(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		cancel(why)
		<-r.Context().Done()
	})
	_, err := m.Publish(ctx, put("status", map[string]string{"a": "2"}))
	require.ErrorIs(t, err, why)
	srv.setSpoil(nil)
	_, err = m.Publish(t.Context(), put("status", map[string]string{"a": "2"}))
	require.NoError(t, err)
}

// A push that is given up in the middle leaves no lock behind, which would
// keep everybody from pushing.
func TestPushThatIsGivenUpLeavesNoLock(t *testing.T) {
	b := newBare(t)
	b.commit("status", map[string]string{"a": "1"})
	m := mirrorOf(t, b.dir)
	marker := filepath.Join(t.TempDir(), "locked")
	b.hook("reference-transaction", `[ "$1" = prepared ] && touch `+marker+" && sleep 100\n")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := m.Publish(ctx, put("status", map[string]string{"a": "2"}))
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(marker); return err == nil }, 20*time.Second, 5*time.Millisecond)
	require.FileExists(t, filepath.Join(b.dir, "refs/heads/status.lock"), "the push is in the middle")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.NoFileExists(t, filepath.Join(b.dir, "refs/heads/status.lock"))
	require.NoError(t, os.Remove(filepath.Join(b.dir, "hooks", "reference-transaction")))
	_, err := m.Publish(t.Context(), put("status", map[string]string{"a": "3"}))
	require.NoError(t, err)
	assert.Equal(t, "3", b.show("status", "a"))
}
