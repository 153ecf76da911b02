package gitsync

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const secret = "s3cret/+tok en"

func TestAddresses(t *testing.T) {
	ssh := RemoteOptions{KnownHosts: []string{"kh"}, SSHKeyFile: "key"}
	tests := []struct{ url, shown, path, bad string }{
		{url: "https://example.com/a/b.git", shown: "https://example.com/a/b.git"},
		{url: "https://ann:pw-of-ann@example.com:8443/a/", shown: "https://example.com:8443/a"},
		{url: "ssh://ann@example.com:2222/a/b", shown: "ssh://example.com:2222/a/b", path: "/a/b"},
		{url: "ssh://example.com/~ann/b", shown: "ssh://example.com/~ann/b", path: "~ann/b"},
		{url: "git@example.com:a/b.git", shown: "ssh://example.com/~/a/b.git", path: "a/b.git"},
		{url: "git@example.com:/srv/b.git", shown: "ssh://example.com/srv/b.git", path: "/srv/b.git"},
		{url: "git://example.com/a", shown: "git://example.com/a", path: "/a"},
		{url: "/srv/a.git", shown: "/srv/a.git", path: "/srv/a.git"},
		{url: "file:///srv/a.git", shown: "/srv/a.git", path: "/srv/a.git"},
		{url: "", bad: "no URL"},
		{url: "file://host/a", bad: "names the host"},
		{url: "ext::sh -c true", bad: "not supported"},
		{url: "ftp://example.com/a", bad: `scheme "ftp" is not supported`},
		{url: "https:///a", bad: "names no host"},
		{url: "https://example.com/a?x=1", bad: "query"},
		{url: "https://ann:pw-of-ann@exa mple.com/%zz", bad: "cannot be read"},
		{url: "https://ann:pw-of-ann@[::1/a", bad: "cannot be read"},
		{url: "http://ann:pw-of-ann@example.com/a", bad: "not sent over plain http"},
		{url: "git://ann:pw-of-ann@example.com/a", bad: "knows no credentials"},
		{url: "a\nb", bad: "control characters"},
	}
	for _, tt := range tests {
		opt := ssh
		opt.URL = tt.url
		r, err := NewRemote(opt)
		if tt.bad != "" {
			require.ErrorContains(t, err, tt.bad, tt.url)
			assert.NotContains(t, err.Error(), "pw-of-ann")
			continue
		}
		require.NoError(t, err, tt.url)
		assert.Equal(t, tt.shown, r.String())
		if tt.path != "" {
			assert.Equal(t, tt.path, r.serverPath())
		}
	}
	_, err := NewRemote(RemoteOptions{URL: "git@example.com:a", SSHKeyFile: "x"})
	require.ErrorContains(t, err, "no known_hosts file")
	_, err = NewRemote(RemoteOptions{URL: "git@example.com:a", KnownHosts: []string{"x"}})
	require.ErrorContains(t, err, "no SSH key file")
	_, err = NewRemote(RemoteOptions{URL: "http://example.com/a", Token: secret})
	require.ErrorContains(t, err, "not sent over plain http")
	_, err = NewRemote(RemoteOptions{URL: "https://example.com/a", CAFile: "/nowhere"})
	require.ErrorContains(t, err, "read CA file")
	assert.Equal(t, `'/a'\''b'\!'c'`, shellQuote("/a'b!c"))
}

// guard lets in who shows the token.
func guard(token func() string, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "ann" || password != token() {
			http.Error(w, "no entry with "+r.Header.Get("Authorization")+" "+password, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}
}

func TestCredentials(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	var mu sync.Mutex
	valid := secret
	srv := httptest.NewUnstartedServer(guard(func() string { mu.Lock(); defer mu.Unlock(); return valid }, (&server{}).handler(b)))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // it is told of our distrust below
	srv.StartTLS()
	defer srv.Close()
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	require.NoError(t, os.WriteFile(token, []byte("old\n"), 0o600))
	opt := RemoteOptions{URL: srv.URL + "/repo.git", User: "ann", CAFile: ca, TokenFile: token}
	m := openMirror(t, Options{Read: remoteOf(t, opt)})

	_, _, err := m.Fetch(t.Context(), "main")
	require.ErrorIs(t, err, ErrDenied)
	require.NoError(t, os.WriteFile(token, []byte(secret+"\n"), 0o600))
	fetch(t, m, "main") // the file is read each time
	_, err = m.Publish(t.Context(), put("main", map[string]string{"a": "2"}))
	require.NoError(t, err)

	mu.Lock()
	valid = "another"
	mu.Unlock()
	_, _, err = m.Fetch(t.Context(), "main")
	require.ErrorIs(t, err, ErrDenied)
	assert.ErrorContains(t, err, "401 Unauthorized")
	for _, form := range []string{secret, url.PathEscape(secret), url.QueryEscape(secret), "Basic YW5u"} {
		assert.NotContains(t, err.Error(), form, "a server that repeats credentials")
	}
	assert.Contains(t, err.Error(), "no entry with Basic [secret] [secret]")
	_, err = m.Publish(t.Context(), put("main", map[string]string{"a": "3"}))
	require.ErrorIs(t, err, ErrDenied)

	opt.CAFile = ""
	_, err = openMirror(t, Options{Read: remoteOf(t, opt)}).List(t.Context())
	require.ErrorContains(t, err, "certificate")
	opt.TokenFile = "/nowhere"
	_, err = openMirror(t, Options{Read: remoteOf(t, opt)}).List(t.Context())
	require.ErrorContains(t, err, "read token")
}

func TestReadAndWriteCredentialsAreApart(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	s := &server{}
	backend := s.handler(b)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		need := "reader"
		if strings.Contains(r.URL.String(), receivePack) {
			need = "writer"
		}
		guard(func() string { return need }, backend)(w, r)
	}))
	defer srv.Close()
	remote := func(token string) *Remote {
		return remoteOf(t, RemoteOptions{URL: srv.URL + "/repo.git", User: "ann", Token: token})
	}
	m := openMirror(t, Options{Read: remote("reader"), Write: remote("writer")})
	fetch(t, m, "main")
	_, err := m.Publish(t.Context(), put("main", map[string]string{"a": "2"}))
	require.NoError(t, err)
}

func TestCredentialsDoNotFollowRedirects(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	var mu sync.Mutex
	var leaked []string
	s := &server{}
	backend := s.handler(b)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		leaked = append(leaked, r.Header.Get("Authorization")+r.Header.Get("Cookie")+r.URL.User.String())
		mu.Unlock()
		backend.ServeHTTP(w, r)
	}))
	defer other.Close()
	mode := ""
	first := httptest.NewServer(guard(func() string { return secret }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case mode == "same" && strings.HasPrefix(r.URL.Path, "/old"):
			http.Redirect(w, r, strings.Replace(r.URL.String(), "/old", "", 1), http.StatusMovedPermanently)
		case mode == "other":
			http.Redirect(w, r, other.URL+r.URL.String(), http.StatusFound)
		case mode == "userinfo":
			http.Redirect(w, r, strings.Replace(other.URL, "://", "://eve:pw@", 1)+r.URL.String(), http.StatusFound)
		case mode == "post" && r.Method == http.MethodPost:
			http.Redirect(w, r, other.URL+r.URL.String(), http.StatusTemporaryRedirect)
		case mode == "loop":
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		case mode == "page":
			http.Redirect(w, r, other.URL+"/login", http.StatusFound)
		case mode == "file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		default:
			backend.ServeHTTP(w, r)
		}
	})))
	defer first.Close()
	run := func(how, path string) error {
		mode, leaked = how, nil
		m := openMirror(t, Options{Read: remoteOf(t, RemoteOptions{URL: first.URL + path, User: "ann", Token: secret})})
		_, _, err := m.Fetch(t.Context(), "main")
		mu.Lock()
		defer mu.Unlock()
		for _, l := range leaked {
			assert.NotContains(t, l, "YW5u", how) // "ann" in base64
			assert.Empty(t, l, how)
		}
		return err
	}
	require.NoError(t, run("", "/repo.git"))
	require.NoError(t, run("same", "/old/repo.git"), "a renamed repository on the same server")
	require.NoError(t, run("other", "/repo.git"), "another server, without credentials")
	assert.NotEmpty(t, leaked)
	require.NoError(t, run("userinfo", "/repo.git"))
	require.ErrorContains(t, run("post", "/repo.git"), "307 Temporary Redirect")
	assert.Empty(t, leaked)
	require.ErrorContains(t, run("loop", "/repo.git"), "too many redirects")
	require.Error(t, run("page", "/repo.git"))
	require.ErrorContains(t, run("file", "/repo.git"), "redirect from http to file")

	get := func(raw string) *http.Request {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		return &http.Request{URL: u, Header: http.Header{"Authorization": {"x"}}}
	}
	for to, keeps := range map[string]bool{"https://a.com/y": true, "https://a.com:443/y": false, "https://A.com/y": true, "https://a.com:8443/y": false, "https://sub.a.com/y": false} {
		req := get(to)
		require.NoError(t, checkRedirect(req, []*http.Request{get("https://a.com/x")}))
		assert.Equal(t, keeps, req.Header.Get("Authorization") != "", to)
	}
	back := get("https://a.com/y")
	require.NoError(t, checkRedirect(back, []*http.Request{get("https://a.com/x"), get("https://b.com/x")}))
	assert.Empty(t, back.Header.Get("Authorization"), "once away, they stay away")
	require.Error(t, checkRedirect(get("http://a.com/y"), []*http.Request{get("https://a.com/x")}))
}

func TestProxy(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	s := &server{}
	backend := s.handler(b)
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Host+" "+r.Header.Get("Proxy-Authorization"))
		backend.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	through := strings.Replace(proxy.URL, "://", "://p:proxypw@", 1)
	m := openMirror(t, Options{Read: remoteOf(t, RemoteOptions{URL: "http://git.invalid/repo.git", Proxy: through})})
	fetch(t, m, "main")
	assert.Equal(t, "git.invalid Basic cDpwcm94eXB3", asked[0])
	_, err := NewRemote(RemoteOptions{URL: "https://git.invalid/repo.git", Proxy: "://p:proxypw@x"})
	require.ErrorContains(t, err, "proxy's URL cannot be read")
	assert.NotContains(t, err.Error(), "proxypw")
}

func TestServerAnswers(t *testing.T) {
	b := newBare(t)
	first := b.commit("main", map[string]string{"a": "1"})
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())
	fetch(t, m, "main")
	b.commit("main", map[string]string{"a": "2"})
	answer := func(code int, kind, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := []struct {
		name  string
		spoil func(http.ResponseWriter, *http.Request, http.Handler)
		is    error
		text  string
	}{
		{"401", answer(401, "text/plain", "who are you?"), ErrDenied, "who are you?"},
		{"403", answer(403, "text/html", "<html>"), ErrDenied, "403 Forbidden"},
		{"404", answer(404, "text/plain", "no such\x1b[31m thing"), ErrNotFound, "no such [31m thing"},
		{"429", answer(429, "", ""), nil, "429 Too Many Requests"},
		{"500", answer(500, "text/plain", strings.Repeat("x", 1<<20)), nil, "500 Internal Server Error"},
		{"page", answer(200, "text/html", "<html>welcome</html>"), nil, "no Git repository there"},
		{"rubbish", answer(200, "application/x-git-upload-pack-advertisement", "zzzz\x00rubbish"), nil, "listing of refs"},
		{"nothing", answer(200, "application/x-git-upload-pack-advertisement", ""), nil, "the remote hung up without a word"},
		{"error line", answer(200, "application/x-git-upload-pack-advertisement", "0011ERR go away!\n"), nil, "go away!"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				srv.setSpoil(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					if r.Method == method {
						tt.spoil(w, r, next)
						return
					}
					next.ServeHTTP(w, r)
				})
				_, _, err := m.Fetch(t.Context(), "main")
				require.Error(t, err)
				if tt.is != nil {
					require.ErrorIs(t, err, tt.is)
				}
				if method == http.MethodGet {
					require.ErrorContains(t, err, tt.text)
					_, err = m.Publish(t.Context(), put("main", map[string]string{"a": "9"}))
					require.Error(t, err)
				}
				assert.Less(t, len(err.Error()), 1000)
			}
		})
	}
	srv.setSpoil(nil)
	assert.NotEqual(t, first, fetch(t, m, "main").Revision())
	require.ErrorIs(t, listError(t, srv.URL+"/none.git"), ErrNotFound)
	require.ErrorContains(t, listError(t, "/nowhere.git"), "/nowhere.git: repository not found: stat /nowhere.git: no such file or directory")
}

func listError(t *testing.T, url string) error {
	t.Helper()
	_, err := mirrorOf(t, url).List(t.Context())
	return err
}

// cutter ends the connection after so many bytes of a pack.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		n := max(0, c.left+len(p))
		_, _ = c.ResponseWriter.Write(p[:n])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

func TestConnectionCutInThePack(t *testing.T) {
	b := newBare(t)
	files := map[string]string{}
	for _, n := range []string{"a", "b", "c"} {
		files[n] = strings.Repeat("compress me not "+n+t.TempDir(), 50)
	}
	b.commit("main", files)
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())
	for _, at := range []int{0, 5, 60, 150, 300} {
		srv.setSpoil(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost {
				w = &cutter{w, at}
			}
			next.ServeHTTP(w, r)
		})
		_, _, err := m.Fetch(t.Context(), "main")
		require.Error(t, err, at)
	}
	srv.setSpoil(nil)
	snap := fetch(t, m, "main")
	assert.Equal(t, files["b"], read(t, snap, "b"))
	assert.Len(t, mirrorFiles(t, m.opt.Dir), 7, "failed tries leave nothing behind")

	// The same for a change, on the mirror that is there.
	b.commit("main", map[string]string{"a": "new"})
	for _, at := range []int{0, 60, 150} {
		srv.setSpoil(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost {
				w = &cutter{w, at}
			}
			next.ServeHTTP(w, r)
		})
		_, _, err := m.Fetch(t.Context(), "main")
		require.Error(t, err, at)
	}
	srv.setSpoil(nil)
	assert.Equal(t, "new", read(t, fetch(t, m, "main"), "a"))
}

// A server that takes the connection and never says a word.
func TestSilentServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() })
		}
	})
	defer wg.Wait()
	defer ln.Close()
	kh := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(kh, nil, 0o600))
	key, _ := newKey(t)
	for _, u := range []string{"http://" + ln.Addr().String() + "/x", "git://" + ln.Addr().String() + "/x", "ssh://" + ln.Addr().String() + "/x"} {
		opt := RemoteOptions{URL: u, KnownHosts: []string{kh}, SSHKeyFile: key}
		m := openMirror(t, Options{Read: remoteOf(t, opt)})
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
		start := time.Now()
		_, _, err := m.Fetch(ctx, "main")
		cancel()
		require.ErrorIs(t, err, why, u)
		assert.Less(t, time.Since(start), time.Minute)

		opt.IdleTimeout = 50 * time.Millisecond
		m = openMirror(t, Options{Read: remoteOf(t, opt)})
		_, err = m.List(t.Context())
		require.ErrorIs(t, err, errIdle, u)
		_, err = m.Publish(t.Context(), put("main", nil))
		require.ErrorIs(t, err, errIdle, u)
	}
}
