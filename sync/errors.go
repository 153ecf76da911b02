package gitsync

import (
	"errors"
	"fmt"
	"strings"
)

// What errors.Is can tell a caller apart.
var (
	// ErrNoBranch: the remote answered, and has no branch of that name.
	ErrNoBranch = errors.New("the remote has no such branch")
	// ErrEmpty: the remote has no refs at all. It is also an ErrNoBranch.
	ErrEmpty = fmt.Errorf("the remote repository is empty: %w", ErrNoBranch)
	// ErrDenied: the remote refused the credentials, or wants some.
	ErrDenied = errors.New("access denied")
	// ErrNotFound: there is no repository at that address, or none that we may see.
	ErrNotFound = errors.New("repository not found")
	// ErrHostKey: the SSH server's key is not the one in known_hosts.
	ErrHostKey = errors.New("host key is not trusted")
	// ErrTooLarge: a file is larger than Options.MaxFile.
	ErrTooLarge = errors.New("file is too large")
	// ErrIrregular: a symbolic link or submodule was read.
	ErrIrregular = errors.New("not a regular file")
	// ErrBudget: a View has used up its Limits.
	ErrBudget = errors.New("budget used up")
	// ErrLocked: another process uses the state directory.
	ErrLocked = errors.New("state directory is in use")
	// ErrRefused: the remote took the connection and declined the push.
	ErrRefused = errors.New("push was refused")
	// ErrContended: others moved the branch at every try.
	ErrContended = errors.New("the branch kept moving")

	errHungUp  = errors.New("the remote hung up without a word")
	errIdle    = errors.New("the remote was silent for too long")
	errCorrupt = errors.New("mirror is damaged") // fetching afresh helps
	errTooMuch = errors.New("more data than expected")
	// errMalformed: the repository itself is wrong, and would be so again.
	errMalformed = errors.New("malformed object")
)

// PushError is a push that the remote declined while the branch stayed where
// it was: a hook, a protected branch, missing rights. It is an ErrRefused.
type PushError struct {
	Remote string
	Branch string
	Reason string // the remote's word on the ref: "pre-receive hook declined"
	Output string // what the remote printed meanwhile, its end
}

func (e *PushError) Error() string {
	s := fmt.Sprintf("push %s to %s: %v", e.Branch, e.Remote, ErrRefused)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if out := strings.TrimSpace(e.Output); out != "" {
		s += ": the remote says: " + strings.ReplaceAll(out, "\n", "; ")
	}
	return s
}

// Unwrap makes a PushError an ErrRefused.
func (e *PushError) Unwrap() error { return ErrRefused }

// LockedError names who uses a state directory. It is an ErrLocked.
type LockedError struct {
	Dir string
	PID int // 0 is unknown
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%v: %s is held by %s", ErrLocked, e.Dir, who)
}

// Unwrap makes a LockedError an ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// scrubbed is an error whose text had a secret in it.
type scrubbed struct {
	text string
	err  error
}

func (e *scrubbed) Error() string { return e.text }

// Is lets errors.Is see through, without a way to unwrap to the secret.
func (e *scrubbed) Is(target error) bool { return errors.Is(e.err, target) }

// printable cuts text of a remote to one that can stand in an error: at most
// limit bytes from its end, control characters but newlines as spaces.
func printable(text string, limit int) string {
	if len(text) > limit {
		text = text[len(text)-limit:]
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\r':
			return '\n'
		case r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.TrimSpace(clean)
}
