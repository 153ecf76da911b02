package gitsync

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
)

// newKey writes a private key and returns its file and public half.
func newKey(t testing.TB) (string, ssh.PublicKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "id")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return file, signer.PublicKey()
}

// sshServer runs git's services for whoever has the key.
type sshServer struct {
	addr string
	key  ssh.PublicKey
}

func serveSSH(t testing.TB, allowed ssh.PublicKey) *sshServer {
	t.Helper()
	hostFile, hostKey := newKey(t)
	host, err := readKey(hostFile)
	require.NoError(t, err)
	cfg := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(allowed.Marshal()) {
			return nil, fmt.Errorf("unknown key")
		}
		return nil, nil
	}}
	cfg.AddHostKey(host)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = ln.Close() })
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { sshConn(&wg, conn, cfg) })
		}
	})
	return &sshServer{addr: ln.Addr().String(), key: hostKey}
}

func sshConn(wg *sync.WaitGroup, conn net.Conn, cfg *ssh.ServerConfig) {
	defer conn.Close()
	c, channels, requests, err := ssh.NewServerConn(conn, cfg)
	if err != nil {
		return
	}
	wg.Go(func() { ssh.DiscardRequests(requests) })
	for nc := range channels {
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		for r := range reqs {
			var cmd struct{ Text string }
			if r.Type != "exec" || ssh.Unmarshal(r.Payload, &cmd) != nil {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			p := exec.Command("sh", "-c", cmd.Text)
			in, _ := p.StdinPipe()
			p.Stdout, p.Stderr = ch, ch.Stderr()
			if p.Start() == nil {
				wg.Go(func() { _, _ = io.Copy(in, ch); _ = in.Close() })
				_ = p.Wait()
			}
			_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ S uint32 }{uint32(p.ProcessState.ExitCode())}))
			_ = ch.Close()
		}
	}
	_ = c.Close()
}

func (s *sshServer) knownHosts(t testing.TB, key ssh.PublicKey) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	line := "# ours\n"
	if key != nil {
		line += knownhosts.Line([]string{knownhosts.Normalize(s.addr)}, key) + "\n"
	}
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	return []string{file}
}

func TestSSH(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	file, public := newKey(t)
	srv := serveSSH(t, public)
	opt := RemoteOptions{URL: "ssh://git@" + srv.addr + b.dir, SSHKeyFile: file, KnownHosts: srv.knownHosts(t, srv.key)}
	exercise(t, b, remoteOf(t, opt))

	wrong := opt
	other, otherKey := newKey(t)
	wrong.KnownHosts = srv.knownHosts(t, otherKey)
	require.ErrorIs(t, listWith(t, wrong), ErrHostKey)
	require.ErrorContains(t, listWith(t, wrong), "which is not what known_hosts has")
	wrong.KnownHosts = srv.knownHosts(t, nil)
	require.ErrorIs(t, listWith(t, wrong), ErrHostKey)
	require.ErrorContains(t, listWith(t, wrong), "is not in known_hosts; it shows ssh-ed25519 SHA256:")
	wrong.KnownHosts = []string{"/nowhere"}
	require.ErrorContains(t, listWith(t, wrong), "read known_hosts")

	wrong = opt
	wrong.SSHKeyFile = other
	require.ErrorIs(t, listWith(t, wrong), ErrDenied)
	require.NoError(t, os.WriteFile(other, []byte("rubbish"), 0o600))
	require.ErrorContains(t, listWith(t, wrong), "is no private key")
	wrong = opt
	pwned := filepath.Join(t.TempDir(), "pwned")
	wrong.URL = "ssh://git@" + srv.addr + "/nowhere'; touch " + pwned + "; '.git"
	require.ErrorContains(t, listWith(t, wrong), "does not appear to be a git repository")
	assert.NoFileExists(t, pwned)
	wrong = opt
	wrong.Proxy = "http://127.0.0.1:1"
	require.ErrorContains(t, listWith(t, wrong), "socks5")
}

func TestSSHAgent(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	file, public := newKey(t)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	private, err := ssh.ParseRawPrivateKey(raw)
	require.NoError(t, err)
	ring := agent.NewKeyring()
	require.NoError(t, ring.Add(agent.AddedKey{PrivateKey: private}))
	dir, err := os.MkdirTemp("", "agent") // a socket's path has to be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _ = agent.ServeAgent(ring, conn); _ = conn.Close() })
		}
	})
	srv := serveSSH(t, public)
	exercise(t, b, remoteOf(t, RemoteOptions{URL: "ssh://git@" + srv.addr + b.dir, SSHAgent: filepath.Join(dir, "s"), KnownHosts: srv.knownHosts(t, srv.key)}))
}

func listWith(t *testing.T, opt RemoteOptions) error {
	t.Helper()
	_, err := openMirror(t, Options{Read: remoteOf(t, opt)}).List(t.Context())
	require.Error(t, err)
	return err
}

// exercise fetches, publishes and fetches again.
func exercise(t *testing.T, b *bareRepo, r *Remote) {
	t.Helper()
	m := openMirror(t, Options{Read: r})
	old := fetch(t, m, "main")
	rev, err := m.Publish(t.Context(), put("main", map[string]string{"b": strings.Repeat("x", 200_000)}))
	require.NoError(t, err)
	assert.Equal(t, rev, b.tip("main"))
	want := b.commit("main", map[string]string{"a": "2"})
	snap, changed, err := m.Fetch(t.Context(), "main")
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, want, snap.Revision())
	changes, err := Changed(old, snap)
	require.NoError(t, err)
	assert.Equal(t, []Change{{"a", Modified}}, changes)
	b.hook("pre-receive", "echo closed >&2; exit 1\n")
	_, err = m.Publish(t.Context(), put("main", map[string]string{"b": "x"}))
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "closed")
}

func TestFile(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	exercise(t, b, remoteOf(t, RemoteOptions{URL: "file://" + b.dir}))
}

func TestGitDaemon(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	// git daemon cannot say which port it was given: one is asked for first.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().(*net.TCPAddr)
	require.NoError(t, ln.Close())
	cmd := exec.CommandContext(t.Context(), "git", "daemon", "--listen=127.0.0.1", fmt.Sprintf("--port=%d", addr.Port),
		"--base-path="+filepath.Dir(b.dir), "--export-all", "--enable=receive-pack", "--reuseaddr")
	endGroup(cmd)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Cancel(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr.String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, waitLong, tick)
	exercise(t, b, remoteOf(t, RemoteOptions{URL: "git://" + addr.String() + "/repo.git"}))
	require.Error(t, listError(t, "git://"+addr.String()+"/none.git"))
}
