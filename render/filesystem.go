package render

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var (
	errReadOnly = errors.New("the file system is read-only")
	errDeadline = errors.New("the build took too long")
	errReads    = errors.New("the build read too many files")
)

// maxReads bounds the files that one build asks for.
const maxReads = 5000

// files is the file system that kustomize sees: exactly the files that the
// guard has checked, at absolute paths. Nothing else exists for it.
type files struct {
	content map[string][]byte
	dirs    map[string]bool
	reads   int
	until   time.Time
}

func newFiles(until time.Time) *files {
	return &files{content: map[string][]byte{}, dirs: map[string]bool{"/": true}, until: until}
}

// put adds a file at a path from the repository's root.
func (f *files) put(name string, data []byte) {
	name = path.Join("/", name)
	f.content[name] = data
	for d := path.Dir(name); !f.dirs[d]; d = path.Dir(d) {
		f.dirs[d] = true
	}
}

// CleanedAbs implements filesys.FileSystem.
func (f *files) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	name = path.Join("/", name)
	if f.dirs[name] {
		return filesys.ConfirmedDir(name), "", nil
	}
	if _, ok := f.content[name]; ok {
		return filesys.ConfirmedDir(path.Dir(name)), path.Base(name), nil
	}
	return "", "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// ReadFile implements filesys.FileSystem.
func (f *files) ReadFile(name string) ([]byte, error) {
	if f.reads++; f.reads > maxReads {
		return nil, errReads
	}
	if time.Now().After(f.until) {
		return nil, errDeadline
	}
	if data, ok := f.content[path.Join("/", name)]; ok {
		return data, nil
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// Exists implements filesys.FileSystem.
func (f *files) Exists(name string) bool {
	_, _, err := f.CleanedAbs(name)
	return err == nil
}

// IsDir implements filesys.FileSystem.
func (f *files) IsDir(name string) bool { return f.dirs[path.Join("/", name)] }

// The rest of filesys.FileSystem is never needed by a build.

func (f *files) Create(string) (filesys.File, error)  { return nil, errReadOnly }
func (f *files) Mkdir(string) error                   { return errReadOnly }
func (f *files) MkdirAll(string) error                { return errReadOnly }
func (f *files) RemoveAll(string) error               { return errReadOnly }
func (f *files) WriteFile(string, []byte) error       { return errReadOnly }
func (f *files) Open(string) (filesys.File, error)    { return nil, errReadOnly }
func (f *files) ReadDir(string) ([]string, error)     { return nil, errReadOnly }
func (f *files) Glob(string) ([]string, error)        { return nil, errReadOnly }
func (f *files) Walk(string, filepath.WalkFunc) error { return errReadOnly }
