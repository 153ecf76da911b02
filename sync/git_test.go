package gitsync

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The git programs that go-git's own counterpart is tested against must not see
// the settings of whoever runs the tests.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "gitsync-home-")
	if err != nil {
		panic(err)
	}
	for k, v := range map[string]string{"HOME": home, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
		"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.com", "GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.com"} {
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	_ = os.RemoveAll(home)
	os.Exit(code)
}

// bareRepo is a repository on this machine, used as the server's.
type bareRepo struct {
	t   testing.TB
	dir string
}

func newBare(t testing.TB) *bareRepo {
	t.Helper()
	b := &bareRepo{t: t, dir: filepath.Join(t.TempDir(), "repo.git")}
	b.run("", "init", "-q", "--bare", "-b", "main", b.dir)
	b.git("config", "http.receivepack", "true")
	b.git("config", "uploadpack.allowFilter", "true")
	b.git("config", "gc.auto", "0")
	b.git("config", "receive.autogc", "false")
	return b
}

func (b *bareRepo) run(stdin string, args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(b.t, err, "git %v: %s", args, errs.String())
	return strings.TrimSpace(string(out))
}

func (b *bareRepo) git(args ...string) string {
	b.t.Helper()
	return b.run("", append([]string{"-C", b.dir}, args...)...)
}

func (b *bareRepo) gitIn(stdin string, args ...string) string {
	b.t.Helper()
	return b.run(stdin, append([]string{"-C", b.dir}, args...)...)
}

// blob writes an object and returns its hash.
func (b *bareRepo) blob(content string) string {
	b.t.Helper()
	return b.gitIn(content, "hash-object", "-w", "--stdin")
}

// tree writes files as a tree. Names may be anything that git mktree takes.
func (b *bareRepo) tree(files map[string]string) string {
	b.t.Helper()
	subs, lines := map[string]map[string]string{}, ""
	for name, content := range files {
		dir, rest, nested := strings.Cut(name, "/")
		if !nested {
			lines += "100644 blob " + b.blob(content) + "\t" + name + "\x00"
			continue
		}
		if subs[dir] == nil {
			subs[dir] = map[string]string{}
		}
		subs[dir][rest] = content
	}
	for name, sub := range subs {
		lines += "040000 tree " + b.tree(sub) + "\t" + name + "\x00"
	}
	return b.gitIn(lines, "mktree", "-z")
}

// commitTree makes a commit and moves a branch to it.
func (b *bareRepo) commitTree(branch, tree string, parents ...string) string {
	b.t.Helper()
	args := []string{"commit-tree", tree, "-m", "change"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	h := b.git(args...)
	b.git("update-ref", "refs/heads/"+branch, h)
	return h
}

// commit makes a commit of exactly these files on top of the branch.
func (b *bareRepo) commit(branch string, files map[string]string) string {
	b.t.Helper()
	var parents []string
	if p := b.tip(branch); p != "" {
		parents = []string{p}
	}
	return b.commitTree(branch, b.tree(files), parents...)
}

func (b *bareRepo) tip(branch string) string {
	b.t.Helper()
	return b.git("for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

func (b *bareRepo) show(branch, file string) string {
	b.t.Helper()
	return b.git("cat-file", "blob", branch+":"+file)
}

func (b *bareRepo) hook(name, script string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "hooks", name), []byte("#!/bin/sh\n"+script), 0o755))
}

// server serves a repository over HTTP, and counts and may spoil requests.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	log   []string
	spoil func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func serve(t testing.TB, b *bareRepo) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(s.handler(b))
	t.Cleanup(s.Close)
	return s
}

func (s *server) handler(b *bareRepo) http.Handler {
	exe := b.run("", "--exec-path")
	backend := &cgi.Handler{
		Path: filepath.Join(exe, "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(b.dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=ann",
			"GIT_CONFIG_NOSYSTEM=1", "HOME=" + os.Getenv("HOME")},
		InheritEnv: []string{"PATH"},
		Stderr:     io.Discard,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.log = append(s.log, r.Method+" "+filepath.Base(r.URL.Path)+strings.TrimPrefix(r.URL.RawQuery, "service="))
		spoil := s.spoil
		s.mu.Unlock()
		if spoil != nil {
			spoil(w, r, backend)
			return
		}
		backend.ServeHTTP(w, r)
	})
}

func (s *server) url() string { return s.URL + "/repo.git" }

// requests since the last call.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *server) setSpoil(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil = f
}

func remoteOf(t testing.TB, opt RemoteOptions) *Remote {
	t.Helper()
	r, err := NewRemote(opt)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func openMirror(t testing.TB, opt Options) *Mirror {
	t.Helper()
	if opt.Dir == "" {
		opt.Dir = t.TempDir()
	}
	m, err := Open(t.Context(), opt)
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// mirrorOf is a mirror of a URL in a new directory.
func mirrorOf(t testing.TB, url string) *Mirror {
	t.Helper()
	return openMirror(t, Options{Read: remoteOf(t, RemoteOptions{URL: url})})
}

func fetch(t testing.TB, m *Mirror, branch string) *Snapshot {
	t.Helper()
	s, _, err := m.Fetch(t.Context(), branch)
	require.NoError(t, err)
	return s
}

func read(t testing.TB, s *Snapshot, name string) string {
	t.Helper()
	b, err := s.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

var commitTime = time.Unix(1_700_000_000, 0).UTC()

// put publishes files as they are, whatever the branch holds.
func put(branch string, files map[string]string) PublishRequest {
	return PublishRequest{Branch: branch, Author: Person{"Trainyard", "bot@example.com"}, When: commitTime,
		Build: func(*Snapshot) (map[string][]byte, string, error) {
			out := map[string][]byte{}
			for k, v := range files {
				out[k] = []byte(v)
			}
			return out, "records", nil
		}}
}

const (
	waitLong = 20 * time.Second
	tick     = 10 * time.Millisecond
)
