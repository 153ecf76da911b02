package hook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "s3cret"

func sign(body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// options for a test, and the bell that they ring.
func options() (Options, Bell) {
	bell := NewBell()
	return Options{
		Secret: []byte(secret), Branch: "main", Hasten: bell.Ring, Ready: func() (string, error) { return "ok: stands by", nil },
		Metrics: NewMetrics("test"), Now: time.Now,
	}, bell
}

func rung(b Bell) bool {
	select {
	case <-b:
		return true
	default:
		return false
	}
}

func TestHook(t *testing.T) {
	const push = `{"before":"1","repository":{"ref":"refs/heads/other"},"ref":"refs/heads/main","commits":[]}`
	const other = `{"ref":"refs/heads/trainyard/status"}`
	github := func(body string) map[string]string {
		return map[string]string{"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=" + sign(body)}
	}
	for _, c := range []struct {
		name, method, body string
		header             map[string]string
		code               int
		hastens            bool
	}{
		{"github", "POST", push, github(push), 202, true},
		{"github, a ping", "POST", `{"zen":"x"}`, map[string]string{"X-GitHub-Event": "ping", "X-Hub-Signature-256": "sha256=" + sign(`{"zen":"x"}`)}, 202, false},
		{"github, another branch", "POST", other, github(other), 202, false},
		{"github, a tag", "POST", `{"ref":"refs/tags/main"}`, github(`{"ref":"refs/tags/main"}`), 202, true},
		{"github, a form", "POST", "payload=%7B%7D", github("payload=%7B%7D"), 202, true},
		{"github, a wrong signature", "POST", push, github(push + " "), 401, false},
		{"github, no hex", "POST", push, map[string]string{"X-Hub-Signature-256": "sha256=zz"}, 401, false},
		{"github, half a signature", "POST", push, map[string]string{"X-Hub-Signature-256": "sha256=" + sign(push)[:32]}, 401, false},
		{"github, sha1 alone", "POST", push, map[string]string{"X-Hub-Signature": "sha1=00"}, 401, false},
		{"gitlab", "POST", push, map[string]string{"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": secret}, 202, true},
		{"gitlab, a merge request", "POST", push, map[string]string{"X-Gitlab-Event": "Merge Request Hook", "X-Gitlab-Token": secret}, 202, false},
		{"gitlab, a wrong token", "POST", push, map[string]string{"X-Gitlab-Token": secret + "x"}, 401, false},
		{"gitea", "POST", push, map[string]string{"X-Gitea-Event": "push", "X-Gitea-Signature": sign(push)}, 202, true},
		{"forgejo", "POST", push, map[string]string{"X-Forgejo-Event": "push", "X-Forgejo-Signature": sign(push)}, 202, true},
		{"forgejo, a wrong signature", "POST", push, map[string]string{"X-Forgejo-Signature": sign("")}, 401, false},
		{"a bad signature beside a good token", "POST", push, map[string]string{"X-Hub-Signature-256": "sha256=00", "X-Gitlab-Token": secret}, 401, false},
		{"a stranger", "POST", push, nil, 401, false},
		{"GET", "GET", "", github(""), 405, false},
		{"PUT", "PUT", push, github(push), 405, false},
		{"too large", "POST", strings.Repeat("x", MaxBody+1), nil, 413, false},
		{"large", "POST", push + strings.Repeat(" ", MaxBody-len(push)), github(push + strings.Repeat(" ", MaxBody-len(push))), 202, true},
		{"no JSON", "POST", "[", github("["), 202, true},
		{"empty", "POST", "", github(""), 202, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, bell := options()
			r := httptest.NewRequest(c.method, "/hook", strings.NewReader(c.body))
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			Handler(o).ServeHTTP(w, r)
			assert.Equal(t, c.code, w.Code)
			assert.Equal(t, c.hastens, rung(bell))
			assert.NotContains(t, w.Body.String(), "signature", "a stranger learns nothing")
		})
	}
}

// A body of unknown length is cut off where the limit is, not read to its end.
func TestHookEndlessBody(t *testing.T) {
	o, bell := options()
	r := httptest.NewRequest("POST", "/hook", struct{ io.Reader }{endless{}})
	r.ContentLength = -1
	w := httptest.NewRecorder()
	Handler(o).ServeHTTP(w, r)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	assert.False(t, rung(bell))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReplaysAreOneFetch(t *testing.T) {
	o, bell := options()
	h := Handler(o)
	for range 10 {
		r := httptest.NewRequest("POST", "/hook", strings.NewReader("{}"))
		r.Header.Set("X-Gitea-Signature", sign("{}"))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusAccepted, w.Code)
	}
	assert.True(t, rung(bell))
	assert.False(t, rung(bell), "ten webhooks, one fetch")
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := options()
		h := Handler(o)
		ask := func() int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/hook", nil))
			return w.Code
		}
		for range burst {
			require.Equal(t, http.StatusUnauthorized, ask())
		}
		require.Equal(t, http.StatusTooManyRequests, ask())
		<-time.After(interval)
		require.Equal(t, http.StatusUnauthorized, ask())
		require.Equal(t, http.StatusTooManyRequests, ask())
	})
}

func TestWithoutSecretThereIsNoHook(t *testing.T) {
	o, _ := options()
	o.Secret = nil
	w := httptest.NewRecorder()
	Handler(o).ServeHTTP(w, httptest.NewRequest("POST", "/hook", nil))
	assert.Equal(t, http.StatusNotFound, w.Code)
}

func TestProbesAndMetrics(t *testing.T) {
	o, _ := options()
	o.Ready = func() (string, error) { return "", errors.New("no records read yet") }
	o.Metrics.Synced(time.Unix(1000, 0), nil)
	o.Metrics.Synced(time.Unix(2000, 0), errors.New("away"))
	o.Metrics.Rendered()
	o.Metrics.Contended(2)
	o.Metrics.Published(nil)
	o.State = func() State {
		return State{Leads: true, Unpublished: 4, Phases: map[repo.Phase]int{repo.PhaseRunning: 5}}
	}
	o.Metrics.AttemptStarted()
	o.Metrics.AttemptEnded(repo.Outcome{Result: repo.Failed, Class: repo.Transient})
	o.Metrics.PassTook(time.Millisecond)
	h := Handler(o)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	code, _ := get("/healthz")
	assert.Equal(t, 200, code)
	code, text := get("/readyz")
	assert.Equal(t, 503, code)
	assert.Equal(t, "no records read yet\n", text)
	o.Ready = func() (string, error) { return "ok: stands by, host_1 leads", nil }
	h = Handler(o)
	code, text = get("/readyz")
	assert.Equal(t, 200, code)
	assert.Equal(t, "ok: stands by, host_1 leads\n", text)
	code, text = get("/metrics")
	assert.Equal(t, 200, code)
	for _, line := range []string{
		`trainyard_syncs_total{result="ok"} 1`, `trainyard_syncs_total{result="error"} 1`, "trainyard_last_sync_timestamp_seconds 1000",
		"trainyard_renders_total 1", "trainyard_publish_retries_total 2", "trainyard_records_unpublished 4",
		`trainyard_jobs{phase="Running"} 5`, `trainyard_jobs{phase="Failed"} 0`, "trainyard_task_attempts_started_total 1",
		`trainyard_task_outcomes_total{class="Transient",result="Failed"} 1`, "trainyard_pass_duration_seconds_count 1",
		`trainyard_build_info{version="test"} 1`, "trainyard_leader 1", "trainyard_backend_up 0",
	} {
		assert.Contains(t, text, line+"\n")
	}
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

func TestServeFinishesWhatItHas(t *testing.T) {
	l := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	started, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-release
		fmt.Fprint(w, "done")
	})
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, handler) }()
	got := make(chan string, 1)
	go func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + l.Addr().String())
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got <- string(body)
	}()
	<-started
	stop()
	close(release)
	assert.Equal(t, "done", <-got)
	assert.NoError(t, <-served)
}

// A client that sends its header a byte at a time, or never, is cut off.
func TestServeCutsSlowClientsOff(t *testing.T) {
	l := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o, _ := options()
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, l, &http.Server{Handler: Handler(o), ReadHeaderTimeout: 50 * time.Millisecond, ReadTimeout: 100 * time.Millisecond})
	}()
	for name, text := range map[string]string{
		"in the header": "POST /hook HTTP/1.1\r\nHost: x\r\n",
		"in the body":   "POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		reply, err := io.ReadAll(conn)
		assert.NoError(t, err, name)
		assert.False(t, bytes.Contains(reply, []byte(" 202 ")), name)
		conn.Close()
	}
	stop()
	assert.NoError(t, <-served)
}

func TestServeSaysWhyItCannot(t *testing.T) {
	l := listen(t)
	l.Close()
	assert.ErrorContains(t, Serve(t.Context(), l, http.NotFoundHandler()), "serve 127.0.0.1:")
}

func FuzzBranchOf(f *testing.F) {
	f.Add([]byte(`{"a":{"ref":1},"ref":"refs/heads/m"`))
	f.Add([]byte(`{"ref":`))
	f.Fuzz(func(t *testing.T, head []byte) {
		if b := branchOf(head); b != "" && !bytes.Contains(head, []byte("ref")) && !bytes.Contains(head, []byte(`\u`)) {
			t.Errorf("%q has no ref, yet %q", head, b)
		}
	})
}
