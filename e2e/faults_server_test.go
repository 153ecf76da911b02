package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gitServer serves a world's remote over HTTP by git's own program, as long as
// it is not told to do something else.
type gitServer struct {
	t       testing.TB
	address string
	git     http.Handler
	http    *http.Server
	done    chan struct{}

	mu    sync.Mutex
	spoil spoiler
}

// spoiler answers instead of git, which is next.
type spoiler func(w http.ResponseWriter, r *http.Request, next http.Handler)

func newGitServer(t testing.TB, w *world) *gitServer {
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	// The handler kills what it has started when a connection breaks. A git that
	// is killed while it moves a branch leaves a lock there that only people take
	// away; so it is the shell that dies.
	s := &gitServer{t: t, address: "127.0.0.1:0", git: &cgi.Handler{
		Path: shell, Args: []string{"-c", filepath.Join(w.git("", "--exec-path"), "git-http-backend") + "; exit"},
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(w.remote), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=ann",
			"GIT_CONFIG_NOSYSTEM=1", "HOME=" + filepath.Join(filepath.Dir(w.remote), "home")},
		InheritEnv: []string{"PATH"}, Stderr: io.Discard,
	}}
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *gitServer) url() string { return "http://" + s.address + "/remote.git" }

// up listens, always at the same address.
func (s *gitServer) up() {
	l, err := net.Listen("tcp", s.address)
	require.NoError(s.t, err)
	s.address, s.http, s.done = l.Addr().String(), &http.Server{Handler: s}, make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l)
	}()
}

// down closes the listener and cuts every connection.
func (s *gitServer) down() {
	_ = s.http.Close()
	<-s.done
}

func (s *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	spoil := s.spoil
	s.mu.Unlock()
	if spoil == nil {
		s.git.ServeHTTP(w, r)
		return
	}
	spoil(w, r, s.git)
}

// spoiled answers by f from now on, until end is called.
func (s *gitServer) spoiled(f spoiler) (end func()) {
	set := func(f spoiler) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spoil = f
	}
	set(f)
	return func() { set(nil) }
}

// answers is a server that has but one answer.
func answers(code int) spoiler {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(code) }
}

// slowly passes little of an answer on, and late, until it is over.
func slowly(over <-chan struct{}) spoiler {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		wait(over, time.Second)
		next.ServeHTTP(&slowWriter{w, over}, r)
	}
}

type slowWriter struct {
	http.ResponseWriter
	over <-chan struct{}
}

func (s *slowWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		wait(s.over, 20*time.Millisecond)
		var m int
		m, err = s.ResponseWriter.Write(p[n:min(len(p), n+40)])
		n += m
		_ = http.NewResponseController(s.ResponseWriter).Flush()
	}
	return n, err
}

func wait(over <-chan struct{}, d time.Duration) {
	select {
	case <-over:
	case <-time.After(d):
	}
}

// cutter ends the connection after so many bytes of an answer.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		_, _ = c.ResponseWriter.Write(p[:max(0, c.left+len(p))])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

// cutting ends connections in the middle of what answers a request for a pack,
// or a push.
func cutting(at func() int) spoiler {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			w = &cutter{w, at()}
		}
		next.ServeHTTP(w, r)
	}
}
