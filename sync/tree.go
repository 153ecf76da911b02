package gitsync

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// entry is one line of a Git tree, as it is: its name may be anything.
type entry struct {
	name string
	mode uint32
	hash Hash
}

// Modes of a tree's entries.
const (
	modeDir       = 0o040000
	modeFile      = 0o100644
	modeGroupFile = 0o100664 // written by very old versions of Git
	modeExec      = 0o100755
	modeSymlink   = 0o120000
	modeSubmodule = 0o160000
)

func (e entry) isDir() bool { return e.mode == modeDir }

func (e entry) isFile() bool {
	return e.mode == modeFile || e.mode == modeGroupFile || e.mode == modeExec
}

// fsMode is the entry as a file system shows it: everything but files and
// directories is there to be seen and not to be read.
func (e entry) fsMode() fs.FileMode {
	switch {
	case e.isDir():
		return fs.ModeDir | 0o555
	case e.mode == modeExec:
		return 0o555
	case e.isFile():
		return 0o444
	case e.mode == modeSymlink:
		return fs.ModeSymlink
	default:
		return fs.ModeIrregular
	}
}

// what names the entry in messages.
func (e entry) what() string {
	switch {
	case e.isDir():
		return "directory"
	case e.isFile():
		return "file"
	case e.mode == modeSymlink:
		return "symbolic link"
	case e.mode == modeSubmodule:
		return "submodule"
	}
	return "entry of unknown mode " + strconv.FormatUint(uint64(e.mode), 8)
}

// parseTree reads the content of a tree object.
func parseTree(data []byte) ([]entry, error) {
	var entries []entry
	for len(data) > 0 {
		mode, rest, ok := bytes.Cut(data, []byte(" "))
		if !ok {
			return nil, fmt.Errorf("%w: tree without a mode", errMalformed)
		}
		name, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(rest) < len(Hash{}) {
			return nil, fmt.Errorf("%w: tree is cut short", errMalformed)
		}
		m, err := strconv.ParseUint(string(mode), 8, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: tree with mode %q", errMalformed, mode)
		}
		e := entry{name: string(name), mode: uint32(m)}
		data = rest[copy(e.hash[:], rest):]
		entries = append(entries, e)
	}
	return entries, nil
}

// formatTree is the content of a tree object, in Git's order.
func formatTree(entries []entry) []byte {
	sorted := slices.Clone(entries)
	key := func(e entry) string {
		if e.isDir() {
			return e.name + "/"
		}
		return e.name
	}
	slices.SortStableFunc(sorted, func(a, b entry) int { return strings.Compare(key(a), key(b)) })
	var b bytes.Buffer
	for _, e := range sorted {
		fmt.Fprintf(&b, "%o %s\x00", e.mode, e.name)
		b.Write(e.hash[:])
	}
	return b.Bytes()
}

// directory is a tree as a file system shows it.
type directory struct {
	entries []entry  // sane names, each once, in order of names
	refused []string // quoted names of the others
	listing Hash     // of names and kinds: what somebody who lists it sees
}

func newDirectory(raw []entry) *directory {
	d := &directory{entries: make([]entry, 0, len(raw))}
	times := make(map[string]int, len(raw))
	for _, e := range raw {
		times[e.name]++
	}
	for _, e := range raw {
		// Of two entries of one name each reader would believe in another.
		if repo.PlainName(e.name) && times[e.name] == 1 {
			d.entries = append(d.entries, e)
		} else {
			d.refused = append(d.refused, strconv.Quote(e.name))
		}
	}
	slices.SortFunc(d.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	h := sha1.New()
	for _, e := range d.entries {
		fmt.Fprintf(h, "%s\x00%s\x00", e.name, e.what())
	}
	copy(d.listing[:], h.Sum(nil))
	return d
}

func (d *directory) find(name string) (entry, bool) {
	i, ok := slices.BinarySearchFunc(d.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	if !ok {
		return entry{}, false
	}
	return d.entries[i], true
}
