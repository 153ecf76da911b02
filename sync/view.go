package gitsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"sync"
)

// Limits of a View; zero is without limit.
type Limits struct {
	Reads int   // looks at paths, of every kind
	Bytes int64 // of files' contents
}

// Read is what somebody learned about a path. It holds only what was asked
// for: whoever looks whether a directory is there does not depend on what is in it.
type Read struct {
	// Kind is what was there: "file", "directory", "symbolic link", "submodule"; "" is nothing.
	Kind string `json:"kind,omitempty"`
	// Hash is of the content, or for a directory of the names and kinds in it;
	// zero if nobody read or listed it.
	Hash Hash `json:"hash"`
}

// Reads is what was read, by path. Missing paths that were asked for are in it.
type Reads map[string]Read

// View reads a Snapshot for one piece of work: within limits, and remembering
// what was read. It is safe for concurrent use.
type View struct {
	ctx    context.Context
	snap   *Snapshot
	limits Limits

	mu    sync.Mutex
	looks int
	bytes int64
	reads Reads
}

var (
	_ fs.ReadDirFS  = (*View)(nil)
	_ fs.ReadFileFS = (*View)(nil)
	_ fs.StatFS     = (*View)(nil)
)

// View begins a piece of work that reads the snapshot until ctx is done.
func (s *Snapshot) View(ctx context.Context, limits Limits) *View {
	return &View{ctx: ctx, snap: s, limits: limits, reads: Reads{}}
}

// Reads is what was read so far.
func (v *View) Reads() Reads {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.reads)
}

// Stat describes a path; the content is not looked at.
func (v *View) Stat(name string) (fs.FileInfo, error) {
	e, err := v.look("stat", name)
	if err != nil {
		return nil, err
	}
	v.note(name, e, Hash{})
	return v.snap.info(path.Base(name), e), nil
}

// ReadFile is the content of a regular file.
func (v *View) ReadFile(name string) ([]byte, error) {
	e, err := v.look("read", name)
	if err != nil {
		return nil, err
	}
	if !e.isFile() {
		v.note(name, e, Hash{})
	} else {
		v.note(name, e, e.hash)
	}
	data, err := v.snap.readEntry(name, e)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bytes += int64(len(data))
	if v.limits.Bytes > 0 && v.bytes > v.limits.Bytes {
		return nil, pathError("read", name, fmt.Errorf("%w: more than %d bytes read", ErrBudget, v.limits.Bytes))
	}
	return data, nil
}

// ReadDir lists a directory.
func (v *View) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := v.look("list", name)
	if err != nil {
		return nil, err
	}
	if !e.isDir() {
		v.note(name, e, Hash{})
		return v.snap.listEntry(name, e)
	}
	d, err := v.snap.gen.directory(e.hash)
	if err != nil {
		return nil, pathError("list", name, err)
	}
	v.note(name, e, d.listing)
	return v.snap.listEntry(name, e)
}

// Open reads or lists at once: what is open has been read.
func (v *View) Open(name string) (fs.File, error) {
	e, err := v.look("open", name)
	if err != nil {
		return nil, err
	}
	info := &fileInfo{s: v.snap, name: path.Base(name), e: e}
	switch {
	case e.isDir():
		list, err := v.ReadDir(name)
		return &openDir{s: v.snap, name: name, info: info, list: list, listed: true}, err
	case e.isFile():
		if _, err := v.ReadFile(name); err != nil {
			return nil, err
		}
	default:
		v.note(name, e, Hash{})
	}
	return &openFileOf{s: v.snap, name: name, info: info}, nil
}

// look finds a path, against the budget, and notes a miss.
func (v *View) look(op, name string) (entry, error) {
	if err := context.Cause(v.ctx); err != nil {
		return entry{}, pathError(op, name, err)
	}
	v.mu.Lock()
	v.looks++
	over := v.limits.Reads > 0 && v.looks > v.limits.Reads
	v.mu.Unlock()
	if over {
		return entry{}, pathError(op, name, fmt.Errorf("%w: more than %d paths read", ErrBudget, v.limits.Reads))
	}
	e, err := v.snap.find(name)
	if errors.Is(err, fs.ErrNotExist) {
		v.mu.Lock()
		v.reads[name] = Read{}
		v.mu.Unlock()
	}
	if err != nil {
		return entry{}, pathError(op, name, err)
	}
	return e, nil
}

func (v *View) note(name string, e entry, hash Hash) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if hash.IsZero() {
		hash = v.reads[name].Hash
	}
	v.reads[name] = Read{Kind: e.what(), Hash: hash}
}

// Unchanged says whether whoever did these reads would find the same in s. It
// compares hashes and reads no file. In doubt the answer is no.
func (s *Snapshot) Unchanged(reads Reads) bool {
	for name, r := range reads {
		e, err := s.find(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if r.Kind != "" {
				return false
			}
			continue
		case err != nil || e.what() != r.Kind:
			return false
		}
		if r.Hash.IsZero() {
			continue
		}
		now := e.hash
		if e.isDir() {
			d, err := s.gen.directory(e.hash)
			if err != nil {
				return false
			}
			now = d.listing
		}
		if now != r.Hash {
			return false
		}
	}
	return true
}
