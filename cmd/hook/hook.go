package hook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"
)

// Limits of the webhook endpoint. GitHub sends no more than 25 MB.
const (
	MaxBody       = 26 << 20
	maxHead       = 64 << 10 // of the body, looked at for the branch
	maxConcurrent = 8
	burst         = 60 // webhooks at once, then one each interval
	interval      = time.Second
)

// Options of the handler.
type Options struct {
	// Secret is shared with the forge. Without one, /hook is not there.
	Secret []byte
	// Branch is the watched branch; pushes to others are ignored. Empty: none are.
	Branch string
	// Hasten asks for a fetch soon. It must not block (see Bell).
	Hasten func()
	// Ready says in a line how the daemon is ready, or why it is not.
	Ready   func() (string, error)
	Metrics *Metrics
	// State is asked for whenever the metrics are. It may be nil.
	State func() State
	// Now is the clock of the rate limit.
	Now func() time.Time
}

// Handler serves /hook, /healthz, /readyz and /metrics.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state, err := o.Ready()
		if err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, state)
	})
	mux.Handle("GET /metrics", o.Metrics.handler(o.State))
	if len(o.Secret) > 0 {
		h := &webhook{options: o, slots: make(chan struct{}, maxConcurrent), tokens: newBucket(burst, interval, o.Now)}
		mux.Handle("POST /hook", h)
	}
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// The connection may be gone; there is nobody left to tell.
	_, _ = io.WriteString(w, text+"\n")
}

type webhook struct {
	options Options
	slots   chan struct{}
	tokens  *bucket
}

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		h.refuse(w, http.StatusTooManyRequests, "too many requests")
		return
	}
	if !h.tokens.take() {
		h.refuse(w, http.StatusTooManyRequests, "too many requests")
		return
	}
	if r.ContentLength > MaxBody {
		h.refuse(w, http.StatusRequestEntityTooLarge, "too large")
		return
	}
	mac := hmac.New(sha256.New, h.options.Secret)
	head, err := digest(mac, http.MaxBytesReader(w, r.Body, MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		h.refuse(w, http.StatusRequestEntityTooLarge, "too large")
	case err != nil:
		h.refuse(w, http.StatusBadRequest, "the body could not be read")
	case !signed(r.Header, mac, h.options.Secret):
		h.refuse(w, http.StatusUnauthorized, "no")
	default:
		h.options.Metrics.Webhook("accepted")
		if isPush(r.Header) && h.watched(branchOf(head)) {
			h.options.Hasten()
		}
		answer(w, http.StatusAccepted, "ok")
	}
}

func (h *webhook) refuse(w http.ResponseWriter, code int, text string) {
	h.options.Metrics.Webhook("refused")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Connection", "close") // what is left of the body is not read
	answer(w, code, text)
}

// watched says whether a push to the branch is worth a fetch. One that could
// not be read is: a fetch too many is harmless.
func (h *webhook) watched(branch string) bool {
	return branch == "" || h.options.Branch == "" || branch == h.options.Branch
}

// digest runs the body through the MAC and keeps its head only.
func digest(mac hash.Hash, body io.Reader) ([]byte, error) {
	head, err := io.ReadAll(io.LimitReader(body, maxHead))
	mac.Write(head)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(mac, body)
	return head, err
}

// Headers in which forges put a hex HMAC-SHA256 of the body.
var signatureHeaders = [...]string{"X-Hub-Signature-256", "X-Forgejo-Signature", "X-Gitea-Signature"}

// signed checks a request's signature, or GitLab's token, in constant time.
// Forges that speak for each other send several signatures: every one of them
// is made with the same secret, so the first one that is there decides.
func signed(header http.Header, mac hash.Hash, secret []byte) bool {
	for _, name := range signatureHeaders {
		if v := header.Get(name); v != "" {
			got, err := hex.DecodeString(strings.TrimPrefix(v, "sha256="))
			return err == nil && hmac.Equal(got, mac.Sum(nil))
		}
	}
	if token := header.Get("X-Gitlab-Token"); token != "" {
		// Hashes have one length, so the secret's own length does not show.
		a, b := sha256.Sum256([]byte(token)), sha256.Sum256(secret)
		return hmac.Equal(a[:], b[:])
	}
	return false
}

// isPush tells pushes from pings, comments and the rest.
func isPush(header http.Header) bool {
	for _, name := range [...]string{"X-Forgejo-Event", "X-Gitea-Event", "X-GitHub-Event", "X-Gitlab-Event"} {
		if v := header.Get(name); v != "" {
			return v == "push" || v == "Push Hook"
		}
	}
	return true
}
