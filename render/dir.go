package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Dir makes a snapshot of a tree that is no commit: a working tree, or files in
// memory. It shows what a commit of it would: symbolic links can be seen and
// not read, .git and names that are refused are not there. Directories are
// listed and files hashed once, so it holds only as long as nobody changes the tree.
func Dir(tree fs.FS, revision string) Snapshot {
	return &dir{tree: tree, revision: revision, hashes: map[string]string{}, listed: map[string][]fs.DirEntry{}, refused: map[string][]string{}}
}

type dir struct {
	tree     fs.FS
	revision string
	mu       sync.Mutex
	hashes   map[string]string
	listed   map[string][]fs.DirEntry
	refused  map[string][]string // quoted names, by directory
}

// Revision implements Snapshot.
func (d *dir) Revision() string { return d.revision }

// Open implements fs.FS.
func (d *dir) Open(name string) (fs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.find(name); !ok || e != nil && !shown(e) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return d.tree.Open(name)
}

// ReadDir implements fs.ReadDirFS.
func (d *dir) ReadDir(name string) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.find(name); !ok || e != nil && !e.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return d.list(name)
}

// Refused are the quoted names in a directory that are not shown.
func (d *dir) Refused(name string) ([]string, error) {
	if _, err := d.ReadDir(name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused[name], nil
}

// Hash implements Snapshot.
func (d *dir) Hash(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.find(name)
	if !ok {
		return ""
	}
	return d.hash(name, e)
}

// find looks a name up part by part, so that none leads through a link. The
// root has no entry.
func (d *dir) find(name string) (entry fs.DirEntry, ok bool) {
	if !fs.ValidPath(name) {
		return nil, false
	}
	if name == "." {
		return nil, true
	}
	if parent, ok := d.find(path.Dir(name)); !ok || parent != nil && !parent.IsDir() {
		return nil, false
	}
	entries, err := d.list(path.Dir(name))
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		if e.Name() == path.Base(name) {
			return e, true
		}
	}
	return nil, false
}

func (d *dir) list(name string) ([]fs.DirEntry, error) {
	if entries, ok := d.listed[name]; ok {
		return entries, nil
	}
	all, err := fs.ReadDir(d.tree, name)
	if err != nil {
		return nil, err
	}
	entries := make([]fs.DirEntry, 0, len(all))
	for _, e := range all {
		switch {
		case strings.EqualFold(e.Name(), ".git"):
		case repo.PlainName(e.Name()):
			entries = append(entries, e)
		default:
			d.refused[name] = append(d.refused[name], strconv.Quote(e.Name()))
		}
	}
	d.listed[name] = entries
	return entries, nil
}

// shown says whether an entry may be read. What else there is only has a name.
func shown(e fs.DirEntry) bool { return e.IsDir() || e.Type().IsRegular() }

// hash of an entry, which is nil for the root.
func (d *dir) hash(name string, entry fs.DirEntry) string {
	if h, ok := d.hashes[name]; ok {
		return h
	}
	h := sha256.New()
	switch {
	case entry != nil && !shown(entry):
		fmt.Fprint(h, entry.Type())
	case entry == nil || entry.IsDir():
		entries, err := d.list(name)
		if err != nil {
			return ""
		}
		for _, e := range entries {
			fmt.Fprintf(h, "%q %s\n", e.Name(), d.hash(path.Join(name, e.Name()), e))
		}
		for _, refused := range d.refused[name] {
			fmt.Fprintln(h, refused)
		}
	default:
		f, err := d.tree.Open(name)
		if err != nil {
			return ""
		}
		defer f.Close()
		if _, err := io.Copy(h, f); err != nil {
			return ""
		}
	}
	sum := hex.EncodeToString(h.Sum(nil))
	d.hashes[name] = sum
	return sum
}
