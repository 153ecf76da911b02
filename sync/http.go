package gitsync

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const infoRefs = "/info/refs"

// buildClients makes the remote's own clients: nothing here is shared with
// other remotes or with the rest of the program.
func (r *Remote) buildClients() error {
	tr := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: r.opt.DialTimeout}).DialContext,
		TLSHandshakeTimeout: r.opt.DialTimeout,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 2,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if r.opt.Proxy != "" {
		p, err := url.Parse(r.opt.Proxy)
		if err != nil || p.Host == "" {
			return errors.New("the proxy's URL cannot be read")
		}
		tr.Proxy = http.ProxyURL(p)
	}
	if r.opt.CAFile != "" {
		pem, err := os.ReadFile(r.opt.CAFile)
		if err != nil {
			return fmt.Errorf("read CA file: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("read CA file: no certificate in %s", r.opt.CAFile)
		}
		tr.TLSClientConfig.RootCAs = pool
	}
	r.get = &http.Client{Transport: tr, CheckRedirect: checkRedirect}
	r.post = &http.Client{Transport: tr, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		return fmt.Errorf("the remote redirects a request with a body to %s", req.URL.Host)
	}}
	return nil
}

// checkRedirect follows a few redirects, never from https to http, and drops
// the credentials for good when one leaves the host that they were meant for.
// net/http alone would let them follow to a subdomain or another port.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > 5 {
		return errors.New("too many redirects")
	}
	last := via[len(via)-1].URL
	if req.URL.Scheme != "https" && (req.URL.Scheme != "http" || last.Scheme == "https") {
		return fmt.Errorf("redirect from %s to %s", last.Scheme, req.URL.Scheme)
	}
	for _, hop := range append(via[1:], req) {
		if origin(hop.URL) != origin(via[0].URL) {
			req.Header.Del("Authorization")
			req.Header.Del("Cookie")
		}
	}
	req.URL.User = nil
	return nil
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// httpWire is the smart protocol over HTTP: a GET for the listing, a POST for
// the request.
type httpWire struct {
	s     *session
	base  string
	token string // "" once a redirect has left the origin
	body  io.ReadCloser
}

func openHTTP(s *session) (wire, error) {
	token, err := s.remote.token()
	if err != nil {
		return nil, err
	}
	w := &httpWire{s: s, base: s.remote.url.String(), token: token}
	req, err := w.request(http.MethodGet, w.base+infoRefs+"?service="+s.service, nil)
	if err != nil {
		return nil, err
	}
	res, err := s.remote.get.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	s.alive()
	w.body = res.Body
	if err := status(res); err != nil {
		return w, err
	}
	if want := "application/x-" + s.service + "-advertisement"; res.Header.Get("Content-Type") != want {
		return w, errors.New("no Git repository there: the server's answer is of another kind")
	}
	final := *res.Request.URL
	dir, ok := strings.CutSuffix(final.Path, infoRefs)
	if !ok {
		return w, fmt.Errorf("redirected to %s, which is no repository", final.Host)
	}
	final.Path, final.RawPath, final.RawQuery, final.User = dir, "", "", nil
	w.base = final.String()
	if res.Request.Header.Get("Authorization") == "" {
		w.token = ""
	}
	return w, nil
}

func (w *httpWire) request(method, address string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(w.s.ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	if w.token != "" {
		req.SetBasicAuth(w.s.remote.opt.User, w.token)
	}
	return req, nil
}

func (w *httpWire) listing() io.Reader { return touch{s: w.s, r: w.body} }

func (w *httpWire) send(body io.Reader, n int64) (io.Reader, error) {
	// The listing is read to its end, so that its connection is used again.
	_, _ = io.CopyN(io.Discard, w.body, 4<<10)
	_ = w.body.Close()
	w.body = nil
	req, err := w.request(http.MethodPost, w.base+"/"+w.s.service, touch{s: w.s, r: body})
	if err != nil {
		return nil, err
	}
	req.ContentLength = n
	req.Header.Set("Content-Type", "application/x-"+w.s.service+"-request")
	req.Header.Set("Accept", "application/x-"+w.s.service+"-result")
	res, err := w.s.remote.post.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	w.body = res.Body
	if err := status(res); err != nil {
		return nil, err
	}
	return touch{s: w.s, r: res.Body}, nil
}

func (w *httpWire) words() string { return "" }

func (w *httpWire) close() {
	if w.body != nil {
		_, _ = io.CopyN(io.Discard, w.body, 4<<10)
		_ = w.body.Close()
	}
}

// status turns an answer that is no success into an error with the server's words.
func status(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	err := fmt.Errorf("the server answers %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("%w: %w", ErrDenied, err)
	case http.StatusNotFound, http.StatusGone:
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		return err // a page for a browser tells nobody anything
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxWords))
	if words := printable(string(text), 300); words != "" {
		err = fmt.Errorf("%w: %s", err, strings.ReplaceAll(words, "\n", "; "))
	}
	return err
}

// bare takes the URL off an error of net/http: ours names the remote already,
// and a redirect's may hold what somebody else put there.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
