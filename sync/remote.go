package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// RemoteOptions says where a repository lies and how to be let in. Reading and
// writing may use different ones: see Options.
type RemoteOptions struct {
	// URL is a path, file://, http://, https://, ssh://, git:// or user@host:path.
	// User and password in it are used like User and Token, and never printed.
	URL string

	// User for HTTP and SSH; by default the URL's, else "git".
	User string
	// Token is the password for HTTP. TokenFile, a file that holds it, is read
	// anew for each connection and wins.
	Token     string
	TokenFile string
	// CAFile holds certificates to trust in addition to the system's.
	CAFile string
	// Proxy is an http, https or socks5 URL (socks5 alone for SSH). Without it
	// HTTP follows the environment as every Go program does.
	Proxy string

	// SSHKeyFile is an unencrypted private key; SSHAgent the path of an agent's
	// socket. KnownHosts are the files in which a server's key must stand.
	SSHKeyFile string
	SSHAgent   string
	KnownHosts []string

	// DialTimeout (15s) is for the connection, IdleTimeout (60s) for each
	// silence after it. The whole is bounded by the caller's context.
	DialTimeout time.Duration
	IdleTimeout time.Duration
}

// Remote is a repository on a server. It is safe for concurrent use.
type Remote struct {
	opt  RemoteOptions
	kind scheme
	url  *url.URL // without user and password; for kind file only Path
	get  *http.Client
	post *http.Client
}

type scheme int

const (
	fileScheme scheme = iota
	httpScheme
	sshScheme
	gitScheme
)

const userAgent = "trainyard"

// NewRemote checks the options and reads the CA file. It does not connect.
func NewRemote(opt RemoteOptions) (*Remote, error) {
	r := &Remote{opt: opt}
	r.opt.DialTimeout = cmp.Or(opt.DialTimeout, 15*time.Second)
	r.opt.IdleTimeout = cmp.Or(opt.IdleTimeout, time.Minute)
	if err := r.parse(opt.URL); err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("remote %s: %w", r, err)
	}
	if r.kind == httpScheme {
		if err := r.buildClients(); err != nil {
			return nil, fmt.Errorf("remote %s: %w", r, err)
		}
	}
	return r, nil
}

// String is the address without user, password and query.
func (r *Remote) String() string {
	if r.kind == fileScheme {
		return r.url.Path
	}
	return r.url.Redacted()
}

// Close ends idle connections.
func (r *Remote) Close() {
	if r.get != nil {
		r.get.CloseIdleConnections()
	}
}

func (r *Remote) parse(raw string) error {
	if raw == "" {
		return errors.New("no URL given")
	}
	if strings.ContainsAny(raw, "\x00\r\n") {
		return errors.New("the URL has control characters in it")
	}
	if strings.Contains(raw, "://") {
		return r.parseURL(raw)
	}
	if host, p, ok := strings.Cut(raw, ":"); ok && !strings.Contains(host, "/") {
		return r.parseSCP(host, p)
	}
	abs, err := filepath.Abs(raw)
	if err != nil {
		return err
	}
	r.kind, r.url = fileScheme, &url.URL{Scheme: "file", Path: abs}
	return nil
}

func (r *Remote) parseURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error repeats the URL, and with it a password.
		return errors.New("the URL cannot be read: check the host, the port and percent signs")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" {
			return fmt.Errorf("file URL names the host %q: write file:///path", u.Host)
		}
		r.kind = fileScheme
	case "http", "https":
		r.kind = httpScheme
	case "ssh", "git+ssh", "ssh+git":
		u.Scheme = "ssh"
		r.kind = sshScheme
	case "git":
		r.kind = gitScheme
	default:
		return fmt.Errorf("scheme %q is not supported: use a path, file, https, ssh or git", u.Scheme)
	}
	if r.kind != fileScheme && u.Hostname() == "" {
		return errors.New("the URL names no host")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the URL has a query or fragment: a repository's address has neither")
	}
	if u.User != nil {
		password, _ := u.User.Password()
		r.opt.User = cmp.Or(r.opt.User, u.User.Username())
		r.opt.Token = cmp.Or(r.opt.Token, password)
		u.User = nil
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	r.url = u
	return nil
}

// parseSCP reads user@host:path. A relative path stays relative to the home
// directory on the server.
func (r *Remote) parseSCP(host, p string) error {
	if strings.HasPrefix(p, ":") {
		return errors.New("remote helpers (name::address) are not supported")
	}
	if user, h, ok := strings.Cut(host, "@"); ok {
		r.opt.User, host = cmp.Or(r.opt.User, user), h
	}
	if host == "" || p == "" {
		return errors.New("the address is not host:path")
	}
	r.kind, r.url = sshScheme, &url.URL{Scheme: "ssh", Host: host, Path: p}
	if !path.IsAbs(p) {
		r.url.Path = "/~/" + p
	}
	return nil
}

func (r *Remote) check() error {
	secret := r.opt.Token != "" || r.opt.TokenFile != ""
	switch r.kind {
	case httpScheme:
		if secret && r.url.Scheme == "http" && !loopback(r.url.Hostname()) {
			return errors.New("credentials are not sent over plain http: use https")
		}
	case sshScheme:
		if len(r.opt.KnownHosts) == 0 {
			return errors.New("no known_hosts file given: the server's key has to be checked against one")
		}
		if r.opt.SSHKeyFile == "" && r.opt.SSHAgent == "" {
			return errors.New("no SSH key file and no agent given")
		}
	case gitScheme:
		if secret {
			return errors.New("git:// knows no credentials: use https or ssh")
		}
	}
	r.opt.User = cmp.Or(r.opt.User, "git")
	return nil
}

// open begins a conversation with one of the remote's two services and reads
// its listing of refs.
func (r *Remote) open(ctx context.Context, service string) (*session, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{remote: r, service: service, ctx: ctx, cancel: cancel}
	s.watch = time.AfterFunc(r.opt.IdleTimeout, func() { cancel(errIdle) })
	var err error
	switch r.kind {
	case fileScheme:
		if _, err = os.Stat(r.url.Path); err != nil {
			// Git says so too, on a stream that may come too late.
			err = fmt.Errorf("%w: %w", ErrNotFound, err)
		} else {
			s.wire, err = openProcess(s, r.url.Path)
		}
	case httpScheme:
		s.wire, err = openHTTP(s)
	case sshScheme:
		s.wire, err = openSSH(s)
	case gitScheme:
		s.wire, err = openTCP(s)
	}
	if err == nil {
		err = s.readListing()
	}
	if err != nil {
		err = s.fail("list", err)
		s.close()
		return nil, err
	}
	return s, nil
}

// hostPort is what to dial.
func (r *Remote) hostPort(port int) string {
	return net.JoinHostPort(r.url.Hostname(), cmp.Or(r.url.Port(), strconv.Itoa(port)))
}

// serverPath is the path as SSH and git:// servers expect it.
func (r *Remote) serverPath() string {
	if p, ok := strings.CutPrefix(r.url.Path, "/~/"); ok && r.kind == sshScheme {
		return p
	}
	if strings.HasPrefix(r.url.Path, "/~") {
		return r.url.Path[1:]
	}
	return r.url.Path
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
