package gitsync

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// token is the password for HTTP as it is now.
func (r *Remote) token() (string, error) {
	if r.opt.TokenFile == "" {
		return r.opt.Token, nil
	}
	b, err := os.ReadFile(r.opt.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, "\r\n\x00") {
		return "", fmt.Errorf("read token: %s does not hold one line", r.opt.TokenFile)
	}
	return token, nil
}

// scrub takes the remote's secrets out of an error: a server may repeat them.
func (r *Remote) scrub(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := r.scrubText(text)
	if clean == text {
		return err
	}
	return &scrubbed{text: clean, err: err}
}

func (r *Remote) scrubText(text string) string {
	secrets := []string{r.opt.Token}
	if now, err := r.token(); err == nil {
		secrets = append(secrets, now)
	}
	if p, err := url.Parse(r.opt.Proxy); err == nil && p.User != nil {
		password, _ := p.User.Password()
		secrets = append(secrets, password)
	}
	for _, s := range secrets {
		if s == "" {
			continue
		}
		basic := base64.StdEncoding.EncodeToString([]byte(r.opt.User + ":" + s))
		for _, form := range []string{basic, url.QueryEscape(s), url.PathEscape(s), s} {
			text = strings.ReplaceAll(text, form, "[secret]")
		}
	}
	return text
}

// sshLogin is what one SSH connection logs in with. It is made anew for each:
// keys and known hosts may change.
type sshLogin struct {
	config *ssh.ClientConfig
	done   func() // ends the connection to the agent

	mu      sync.Mutex
	trusted bool  // the server's key was checked
	keyErr  error // and this was wrong with it
}

func (r *Remote) sshLogin(ctx context.Context, addr string) (*sshLogin, error) {
	db, err := knownhosts.NewDB(r.opt.KnownHosts...)
	if err != nil {
		return nil, fmt.Errorf("read known_hosts: %w", err)
	}
	l := &sshLogin{done: func() {}}
	l.config = &ssh.ClientConfig{
		User:            r.opt.User,
		HostKeyCallback: l.checkKey(db, addr),
		// Only the kinds of key that known_hosts has: the server would else
		// choose one that nobody wrote down.
		HostKeyAlgorithms: db.HostKeyAlgorithms(addr),
		ClientVersion:     "SSH-2.0-" + userAgent,
	}
	if r.opt.SSHKeyFile != "" {
		signer, err := readKey(r.opt.SSHKeyFile)
		if err != nil {
			return nil, err
		}
		l.config.Auth = append(l.config.Auth, ssh.PublicKeys(signer))
	}
	if r.opt.SSHAgent != "" {
		d := net.Dialer{Timeout: r.opt.DialTimeout}
		conn, err := d.DialContext(ctx, "unix", r.opt.SSHAgent)
		if err != nil {
			return nil, fmt.Errorf("ssh-agent: %w", err)
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		l.done = func() { stop(); _ = conn.Close() }
		l.config.Auth = append(l.config.Auth, ssh.PublicKeysCallback(agent.NewClient(conn).Signers))
	}
	return l, nil
}

func (l *sshLogin) checkKey(db *knownhosts.HostKeyDB, addr string) ssh.HostKeyCallback {
	check := db.HostKeyCallback()
	return func(host string, remote net.Addr, key ssh.PublicKey) error {
		err := check(host, remote, key)
		shown := key.Type() + " " + ssh.FingerprintSHA256(key)
		switch {
		case err == nil:
		case knownhosts.IsHostUnknown(err):
			err = fmt.Errorf("%w: %s is not in known_hosts; it shows %s", ErrHostKey, addr, shown)
		default:
			err = fmt.Errorf("%w: %s shows %s, which is not what known_hosts has", ErrHostKey, addr, shown)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.trusted, l.keyErr = err == nil, err
		return err
	}
}

// explain turns a failed handshake into an error by how far it came: the key
// was refused by us, or after it the server refused to let us in.
func (l *sshLogin) explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var network net.Error
	switch {
	case l.keyErr != nil:
		return l.keyErr
	case l.trusted && !errors.Is(err, io.EOF) && !errors.As(err, &network):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

func readKey(file string) (ssh.Signer, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read SSH key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("read SSH key: %s has a passphrase: add it to an ssh-agent", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read SSH key: %s is no private key", file)
	}
	return signer, nil
}
