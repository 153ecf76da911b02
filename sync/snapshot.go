package gitsync

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Snapshot is the tree of a commit as a read-only file system: no checkout,
// nothing of it ever changes, and any number of goroutines may read it.
//
// Shown are regular files and directories with sane names. Symbolic links and
// submodules can be seen and not read: nothing follows a link. Names such as
// "..", ".git" or with a backslash in them are not shown: Refused lists them.
// Paths are as in io/fs: slash-separated, the root is ".".
type Snapshot struct {
	gen     *generation
	hash    Hash
	root    Hash // of the tree
	when    time.Time
	message string
	limit   int64
}

var (
	_ fs.ReadDirFS  = (*Snapshot)(nil)
	_ fs.ReadFileFS = (*Snapshot)(nil)
	_ fs.StatFS     = (*Snapshot)(nil)
)

func (m *Mirror) snapshot(g *generation, tip Hash) (*Snapshot, error) {
	c, err := g.commit(tip)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", tip, err)
	}
	return &Snapshot{gen: g, hash: tip, root: c.TreeHash, when: c.Committer.When, message: c.Message, limit: m.opt.MaxFile}, nil
}

// Revision is the commit's hash in hexadecimal.
func (s *Snapshot) Revision() string { return s.hash.String() }

// Time is when the commit was made, by the committer's clock.
func (s *Snapshot) Time() time.Time { return s.when }

// Message is the commit's message.
func (s *Snapshot) Message() string { return s.message }

// Open opens a file or directory. A link or submodule opens, and cannot be read.
func (s *Snapshot) Open(name string) (fs.File, error) {
	e, err := s.find(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	info := s.info(path.Base(name), e)
	if e.isDir() {
		return &openDir{s: s, name: name, info: info}, nil
	}
	return &openFileOf{s: s, name: name, info: info}, nil
}

// ReadFile is the content of a regular file.
func (s *Snapshot) ReadFile(name string) ([]byte, error) {
	e, err := s.find(name)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return s.readEntry(name, e)
}

// ReadDir lists a directory in order of names.
func (s *Snapshot) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := s.find(name)
	if err != nil {
		return nil, pathError("list", name, err)
	}
	return s.listEntry(name, e)
}

// Stat describes a path without reading it. It follows nothing.
func (s *Snapshot) Stat(name string) (fs.FileInfo, error) {
	e, err := s.find(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return s.info(path.Base(name), e), nil
}

// Refused are the quoted names in a directory that are not shown.
func (s *Snapshot) Refused(dir string) ([]string, error) {
	e, err := s.find(dir)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	if !e.isDir() {
		return nil, pathError("list", dir, notDir(e))
	}
	d, err := s.gen.directory(e.hash)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	return d.refused, nil
}

// find walks to a path's entry. What lies behind a file or link does not exist.
func (s *Snapshot) find(name string) (entry, error) {
	if !fs.ValidPath(name) || len(name) > 4096 {
		return entry{}, fs.ErrInvalid
	}
	at := entry{mode: modeDir, hash: s.root}
	if name == "." {
		return at, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if !at.isDir() {
			return entry{}, fs.ErrNotExist
		}
		d, err := s.gen.directory(at.hash)
		if err != nil {
			return entry{}, err
		}
		next, ok := d.find(part)
		if !ok {
			return entry{}, fs.ErrNotExist
		}
		at = next
	}
	return at, nil
}

func (s *Snapshot) readEntry(name string, e entry) ([]byte, error) {
	if !e.isFile() {
		return nil, pathError("read", name, fmt.Errorf("%w: it is a %s", ErrIrregular, e.what()))
	}
	data, err := s.gen.read(plumbing.BlobObject, e.hash, s.limit)
	if errors.Is(err, ErrTooLarge) || (errors.Is(err, errAbsent) && s.gen.leavesOut()) {
		err = fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, s.limit)
	}
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return data, nil
}

func (s *Snapshot) listEntry(name string, e entry) ([]fs.DirEntry, error) {
	if !e.isDir() {
		return nil, pathError("list", name, notDir(e))
	}
	d, err := s.gen.directory(e.hash)
	if err != nil {
		return nil, pathError("list", name, err)
	}
	list := make([]fs.DirEntry, len(d.entries))
	for i, e := range d.entries {
		list[i] = fs.FileInfoToDirEntry(s.info(e.name, e))
	}
	return list, nil
}

func notDir(e entry) error { return fmt.Errorf("it is a %s, not a directory", e.what()) }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (s *Snapshot) info(name string, e entry) fs.FileInfo { return &fileInfo{s: s, name: name, e: e} }

type fileInfo struct {
	s    *Snapshot
	name string
	e    entry
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Mode() fs.FileMode  { return i.e.fsMode() }
func (i *fileInfo) ModTime() time.Time { return i.s.when }
func (i *fileInfo) IsDir() bool        { return i.e.isDir() }
func (i *fileInfo) Sys() any           { return nil }

// Size is looked up when asked for: it costs a read. It is -1 for a file that
// was left at the remote.
func (i *fileInfo) Size() int64 {
	if !i.e.isFile() {
		return 0
	}
	return i.s.gen.size(i.e.hash)
}

// openFileOf is an open file; its content is read at the first Read.
type openFileOf struct {
	s    *Snapshot
	name string
	info fs.FileInfo
	body *strings.Reader
}

func (f *openFileOf) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFileOf) Close() error               { return nil }

func (f *openFileOf) Read(p []byte) (int, error) {
	if f.body == nil {
		data, err := f.s.readEntry(f.name, f.info.(*fileInfo).e)
		if err != nil {
			return 0, err
		}
		f.body = strings.NewReader(string(data))
	}
	return f.body.Read(p)
}

// openDir is an open directory.
type openDir struct {
	s      *Snapshot
	name   string
	info   fs.FileInfo
	list   []fs.DirEntry
	listed bool
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, pathError("read", d.name, errors.New("it is a directory"))
}

// ReadDir gives the next n entries, or all that are left.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		list, err := d.s.listEntry(d.name, d.info.(*fileInfo).e)
		if err != nil {
			return nil, err
		}
		d.list, d.listed = list, true
	}
	if n <= 0 {
		n = len(d.list)
	} else if len(d.list) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.list))
	part := d.list[:n]
	d.list = d.list[n:]
	return part, nil
}
