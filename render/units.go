package render

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// kustomizationFiles are the names that kustomize knows.
var kustomizationFiles = [...]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// Bounds of the walk.
const (
	maxUnits     = 20000
	maxWalkDepth = 32
)

// unit is what is built at once: a job file, or a directory with a kustomization.
type unit struct {
	path string
	dir  bool
}

// listing is a directory as the walk sees it, remembered by its hash.
type listing struct {
	hash  string
	units []unit   // files of its own, or the directory itself
	dirs  []string // to go on with
	// passed are warnings of what is passed over: somebody may wait for it.
	passed []*repo.Error
}

// walker finds units. It keeps directories between snapshots, so that a walk
// lists only those that changed.
type walker struct {
	known map[string]listing
}

// find lists the units below the given roots, in the order of their paths.
func (w *walker) find(v *view, roots ...string) ([]unit, []*repo.Error) {
	f := finder{view: v, known: w.known, next: make(map[string]listing, len(w.known))}
	for _, r := range roots {
		f.walk(r, 0)
	}
	w.known = f.next
	slices.SortFunc(f.units, func(a, b unit) int { return strings.Compare(a.path, b.path) })
	return slices.Compact(f.units), f.problems
}

type finder struct {
	view        *view
	known, next map[string]listing
	units       []unit
	problems    []*repo.Error
}

func (f *finder) walk(dir string, depth int) {
	if depth > maxWalkDepth {
		f.problem(dir, "directories are nested more than 32 levels deep; nothing below is read")
		return
	}
	h := f.view.hash(dir)
	if h == "" {
		return
	}
	l, ok := f.known[dir]
	if !ok || l.hash != h {
		l = f.list(dir, h)
	}
	f.next[dir] = l
	f.problems = append(f.problems, l.passed...)
	if len(f.units)+len(l.units) > maxUnits {
		f.problem(dir, "more than 20000 job files; the rest is not read")
		return
	}
	f.units = append(f.units, l.units...)
	for _, d := range l.dirs {
		f.walk(d, depth+1)
	}
}

func (f *finder) problem(file, message string) {
	f.problems = append(f.problems, &repo.Error{File: file, Message: message})
}

func (f *finder) list(dir, hash string) listing {
	l := listing{hash: hash}
	entries, err := f.view.ReadDir(dir)
	if err != nil {
		f.problem(dir, plainError(err).Error())
		return listing{}
	}
	for _, e := range entries {
		if isKustomization(e) {
			return listing{hash: hash, units: []unit{{dir, true}}}
		}
		name := path.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			l.dirs = append(l.dirs, name)
		case e.Type().IsRegular() && isManifest(name):
			l.units = append(l.units, unit{path: name})
		case e.Type().IsRegular() && isManifest(strings.ToLower(name)):
			l.pass(name, "is not read: the name of a job file ends in .yaml, .yml or .json, in small letters")
		case e.Type()&fs.ModeSymlink != 0:
			l.pass(name, "is a symbolic link, which is not followed: put what it leads to in its place")
		case !e.Type().IsRegular():
			l.pass(name, "is neither a file nor a directory (a submodule is not read)")
		}
	}
	if r, ok := f.view.Snapshot.(refuser); ok {
		names, err := r.Refused(dir)
		if err != nil {
			f.problem(dir, plainError(err).Error())
		}
		for _, name := range names {
			l.pass(dir, name+" is not read: such a name is not the same on every system")
		}
	}
	return l
}

// refuser is a snapshot that does not show all names.
type refuser interface {
	Refused(dir string) (quoted []string, err error)
}

// maxPassed bounds the warnings of one directory.
const maxPassed = 100

func (l *listing) pass(file, message string) {
	if len(l.passed) < maxPassed {
		l.passed = append(l.passed, &repo.Error{File: file, Message: message, Warning: true})
	}
}

func isKustomization(e fs.DirEntry) bool {
	return e.Type().IsRegular() && isKustomizationName(e.Name())
}

func isKustomizationName(name string) bool {
	return slices.Contains(kustomizationFiles[:], path.Base(name))
}

func isManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
