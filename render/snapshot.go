package render

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/trainyard/trainyard/render/manifest"
)

// Snapshot is an immutable tree of files, of which only regular files and
// directories show. Names are as in io/fs: slash-separated, "." is the root.
// It is used by several goroutines at once.
type Snapshot interface {
	fs.ReadDirFS
	// Revision names the snapshot: a commit, or "" for a working tree.
	Revision() string
	// Hash is a hash of all that lies at a path, in this snapshot and in every
	// other: of a file its content, of a directory everything below it, of what
	// is neither that it is there. It is "" when nothing is there, and cheap: Git
	// trees have it at hand.
	Hash(name string) string
}

// maxFile bounds a file that is read; maxRead all files of a unit.
const (
	maxFile = manifest.MaxBytes
	maxRead = 8 << 20
)

var (
	errTooLarge = fmt.Errorf("larger than %d KiB", maxFile>>10)
	errTooMuch  = fmt.Errorf("the unit's files are larger than %d MiB together", maxRead>>20)
)

// view is a snapshot during one render: no hash is asked for twice.
type view struct {
	Snapshot
	mu     sync.Mutex
	hashes map[string]string
}

func newView(s Snapshot) *view { return &view{Snapshot: s, hashes: map[string]string{}} }

func (v *view) hash(name string) string {
	v.mu.Lock()
	h, ok := v.hashes[name]
	v.mu.Unlock()
	if ok {
		return h
	}
	h = v.Hash(name)
	v.mu.Lock()
	v.hashes[name] = h
	v.mu.Unlock()
	return h
}

// reads are paths with the hashes they had; "" where nothing was found.
type reads map[string]string

// hold says whether every path still has the hash that was read.
func (r reads) hold(v *view) bool {
	for name, h := range r {
		if v.hash(name) != h {
			return false
		}
	}
	return true
}

// reader reads a snapshot's files and remembers which.
type reader struct {
	view  *view
	reads reads
	bytes int
}

func newReader(v *view) *reader { return &reader{view: v, reads: reads{}} }

// kind of what lies at a path.
type kind int

const (
	absent kind = iota
	regular
	directory
)

// kind looks without reading. A directory's hash is not remembered: whoever
// uses it looks for files in it.
func (r *reader) kind(name string) kind {
	if r.view.hash(name) == "" {
		r.reads[name] = ""
		return absent
	}
	info, err := fs.Stat(r.view, name)
	switch {
	case err == nil && info.IsDir():
		return directory
	case err == nil && info.Mode().IsRegular():
		r.reads[name] = r.view.hash(name)
		return regular
	}
	r.reads[name] = r.view.hash(name)
	return absent
}

// hidden says that something is there which is not shown: a link, a submodule.
func (r *reader) hidden(name string) bool { return r.view.hash(name) != "" && r.kind(name) == absent }

// file reads a regular file.
func (r *reader) file(name string) ([]byte, error) {
	r.reads[name] = r.view.hash(name)
	f, err := r.view.Open(name)
	if err != nil {
		return nil, plainError(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, plainError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%w (%d KiB)", errTooLarge, info.Size()>>10)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, plainError(err)
	}
	if len(data) > maxFile {
		return nil, errTooLarge
	}
	if r.bytes += len(data); r.bytes > maxRead {
		return nil, errTooMuch
	}
	return data, nil
}

// plainError drops the operation and the path, which the problem names itself.
func plainError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no such file")
	}
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
