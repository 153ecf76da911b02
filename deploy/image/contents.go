package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user that the daemon runs as: by number, as Kubernetes can tell only then
// that it is not root.
const (
	user  = 65532
	home  = "/var/lib/trainyard"
	start = "/usr/local/bin/trainyard"
)

// file is one file or directory of the image. Its time is the beginning of time.
type file struct {
	name  string // without the leading slash; directories come before what is in them
	mode  fs.FileMode
	owner int // user and group
	text  []byte
}

// contents are the image's files in two layers: what is seldom different, and
// the daemon.
func contents(binary []byte) ([][]file, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\ntrainyard:x:%d:%d:trainyard:%s:/sbin/nologin\n", user, user, home)
	group := fmt.Sprintf("root:x:0:\ntrainyard:x:%d:\n", user)
	const dir = fs.ModeDir | 0o755
	return [][]file{{
		{name: "etc", mode: dir},
		{name: "etc/group", mode: 0o644, text: []byte(group)},
		{name: "etc/passwd", mode: 0o644, text: []byte(passwd)},
		{name: "etc/ssl", mode: dir},
		{name: "etc/ssl/certs", mode: dir},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: roots},
		{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{name: "var", mode: dir},
		{name: "var/lib", mode: dir},
		{name: home[1:], mode: fs.ModeDir | 0o700, owner: user},
	}, {
		{name: "usr", mode: dir},
		{name: "usr/local", mode: dir},
		{name: "usr/local/bin", mode: dir},
		{name: start[1:], mode: 0o755, text: binary},
	}}, nil
}

// certificates are the roots that Mozilla trusts, as go.mod pins them: those of
// the machine that builds would make the image differ from machine to machine.
// A root that is trusted in part only cannot be told so in a file of PEM, and
// is left out.
func certificates() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("write certificates: %w", err)
		}
	}
	if b.Len() == 0 {
		return nil, errors.New("write certificates: there are none")
	}
	return b.Bytes(), nil
}

// writeTree writes the files into a directory. Whose they are is left to who
// makes an image of it.
func writeTree(dir string, layers [][]file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, layer := range layers {
		for _, f := range layer {
			name := filepath.Join(dir, filepath.FromSlash(f.name))
			if err := writeFile(name, f); err != nil {
				return fmt.Errorf("write %s: %w", name, err)
			}
		}
	}
	return nil
}

func writeFile(name string, f file) error {
	if f.mode.IsDir() {
		if err := os.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	} else if err := os.WriteFile(name, f.text, 0o600); err != nil {
		return err
	}
	return os.Chmod(name, f.mode) // as it is to be, whatever the umask says
}
