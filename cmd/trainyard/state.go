package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// scp is the short form of an SSH URL: git@host:path.
var scp = regexp.MustCompile(`^(?:[^/@:]+@)?([^/@:]+):([^/].*|/.*)$`)

// absoluteRepo makes a path absolute and leaves URLs as they are.
func absoluteRepo(remote string, sys system) string {
	if remote == "" || strings.Contains(remote, "://") || scp.MatchString(remote) {
		return remote
	}
	return sys.path(remote)
}

// stateDir is where a daemon keeps its state unless it is told where: one
// directory for each repository and environment, the same for run and logs.
func stateDir(sys system, remote, environment string) (string, error) {
	base := sys.env("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		if sys.home() == "" {
			return "", errors.New("no place for state: neither XDG_STATE_HOME nor HOME is set")
		}
		base = filepath.Join(sys.home(), ".local", "state")
	}
	sum := sha256.Sum256([]byte(canonical(remote) + "\x00" + environment))
	return filepath.Join(base, "trainyard", hex.EncodeToString(sum[:8])), nil
}

// canonical is the same for all ways to write a remote's address: with HTTPS or
// SSH, with or without user and .git. Paths are what they are.
func canonical(remote string) string {
	place := remote
	switch u, err := url.Parse(remote); {
	case err == nil && u.Scheme == "file":
		return strings.TrimRight(u.Path, "/")
	case err == nil && strings.Contains(remote, "://"):
		host := strings.ToLower(u.Host)
		if port := u.Port(); port == "443" || port == "80" || port == "22" {
			host = strings.ToLower(u.Hostname())
		}
		place = host + "/" + strings.TrimPrefix(u.Path, "/")
	case scp.MatchString(remote):
		m := scp.FindStringSubmatch(remote)
		place = strings.ToLower(m[1]) + "/" + strings.TrimPrefix(m[2], "/")
	default:
		return strings.TrimRight(remote, "/")
	}
	return strings.TrimSuffix(strings.TrimRight(place, "/"), ".git")
}

// identity tells a repository from others that nobody has seen yet: by where it
// is, and where its records are. A path is one of this machine.
func identity(o *remoteOptions) string {
	place := canonical(o.Repo)
	if filepath.IsAbs(place) {
		host, _ := os.Hostname() // a machine without a name has paths too
		place = host + place
	}
	return repo.RepositoryID(place + "\x00" + o.StatusBranch)
}

// redacted is a remote's address without user and password: either may be a token.
func redacted(remote string) string {
	u, err := url.Parse(remote)
	switch {
	case err != nil && strings.Contains(remote, "://"):
		return "a URL that cannot be read"
	case err == nil && u.User != nil:
		u.User = nil
		return u.String()
	}
	return remote
}
