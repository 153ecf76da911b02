package gitsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/net/proxy"
)

// streamWire is the protocol over one connection in both directions: a
// process, a TCP connection, an SSH channel.
type streamWire struct {
	s      *session
	in     io.Reader
	out    io.WriteCloser
	said   *tail
	sent   bool
	finish func()
}

func (w *streamWire) listing() io.Reader { return touch{s: w.s, r: w.in} }

func (w *streamWire) send(body io.Reader, _ int64) (io.Reader, error) {
	w.sent = true
	// A service that has heard enough stops reading, but its answer says why.
	_, err := io.Copy(touch{s: w.s, w: w.out}, body)
	if err == nil {
		_ = w.out.Close()
	}
	return touch{s: w.s, r: w.in}, nil
}

func (w *streamWire) words() string { return w.said.String() }

func (w *streamWire) close() {
	if !w.sent {
		// Wanting nothing is how a conversation ends politely.
		_, _ = w.out.Write(pktline.FlushPkt)
	}
	_ = w.out.Close()
	w.finish()
}

// openProcess runs git's own service on a repository of this machine.
func openProcess(s *session, path string) (wire, error) {
	cmd := exec.CommandContext(s.ctx, "git", strings.TrimPrefix(s.service, "git-"), path)
	cmd.Env = serviceEnv(os.Environ())
	endGroup(cmd)
	cmd.WaitDelay = 2 * time.Second
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run git: %w", err)
	}
	return &streamWire{s: s, in: in, out: out, said: said, finish: func() {
		_ = in.Close()
		_ = cmd.Wait() // what went wrong has been read from the stream
	}}, nil
}

// serviceEnv is the environment without what binds a git process to the
// repository that we were perhaps called from (in a hook).
func serviceEnv(env []string) []string {
	bound := []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
		"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_PROTOCOL"}
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(bound, name)
	})
}

// openTCP speaks the git:// protocol.
func openTCP(s *session) (wire, error) {
	d := net.Dialer{Timeout: s.remote.opt.DialTimeout}
	conn, err := d.DialContext(s.ctx, "tcp", s.remote.hostPort(9418))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	w := &streamWire{s: s, in: conn, out: halfCloser{conn}, said: &tail{}, finish: func() {
		stop()
		_ = conn.Close()
	}}
	req := packp.GitProtoRequest{RequestCommand: s.service, Pathname: s.remote.serverPath(), Host: s.remote.url.Host}
	return w, req.Encode(conn)
}

// halfCloser keeps a connection open for reading when the writer is done.
type halfCloser struct{ net.Conn }

func (halfCloser) Close() error { return nil }

// openSSH runs the service on a server.
func openSSH(s *session) (wire, error) {
	r := s.remote
	addr := r.hostPort(22)
	login, err := r.sshLogin(s.ctx, addr)
	if err != nil {
		return nil, err
	}
	defer login.done()
	conn, err := r.dialSSH(s.ctx, addr)
	if err != nil {
		return nil, err
	}
	// The handshake knows no context: ending the connection ends it.
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	hang := func() { stop(); _ = conn.Close() }
	c, channels, requests, err := ssh.NewClientConn(conn, addr, login.config)
	if err != nil {
		hang()
		return nil, login.explain(err)
	}
	client := ssh.NewClient(c, channels, requests)
	s.alive()
	w, err := startSSH(s, client)
	if err != nil {
		_ = client.Close()
		hang()
		return nil, err
	}
	w.finish = func() {
		_ = client.Close()
		hang()
		_ = client.Wait()
	}
	return w, nil
}

func startSSH(s *session, client *ssh.Client) (*streamWire, error) {
	ch, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	w := &streamWire{s: s, said: &tail{}}
	ch.Stderr = w.said
	if w.out, err = ch.StdinPipe(); err != nil {
		return nil, err
	}
	if w.in, err = ch.StdoutPipe(); err != nil {
		return nil, err
	}
	return w, ch.Start(s.service + " " + shellQuote(s.remote.serverPath()))
}

func (r *Remote) dialSSH(ctx context.Context, addr string) (net.Conn, error) {
	direct := &net.Dialer{Timeout: r.opt.DialTimeout}
	if r.opt.Proxy == "" {
		return direct.DialContext(ctx, "tcp", addr)
	}
	u, err := url.Parse(r.opt.Proxy)
	if err != nil || u.Scheme != "socks5" {
		return nil, errors.New("the proxy for SSH has to be a socks5 URL")
	}
	through, err := proxy.FromURL(u, direct)
	if err != nil {
		return nil, err
	}
	return through.(proxy.ContextDialer).DialContext(ctx, "tcp", addr)
}

// shellQuote quotes for the server's shell, as git itself does.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}
