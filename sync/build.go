package gitsync

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Person is an author or committer.
type Person struct {
	Name  string
	Email string
}

func (p Person) check(role string) error {
	if p.Name == "" || strings.ContainsAny(p.Name+p.Email, "<>\n\x00") {
		return fmt.Errorf("%s %q <%s> cannot stand in a commit", role, p.Name, p.Email)
	}
	return nil
}

// edit is a directory of the tree to build: files to write, to delete, and
// directories in which there is something to do.
type edit struct {
	blobs map[string]*Hash // nil deletes
	dirs  map[string]*edit
}

func newEdit() *edit { return &edit{blobs: map[string]*Hash{}, dirs: map[string]*edit{}} }

// put notes a file of the request.
func (e *edit) put(name string, blob *Hash) {
	dir, file := path.Split(name)
	for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		if part == "" {
			continue
		}
		if e.dirs[part] == nil {
			e.dirs[part] = newEdit()
		}
		e = e.dirs[part]
	}
	e.blobs[file] = blob
}

// checkFiles refuses paths that do not belong in a repository, and files that
// would have to be directories too.
func checkFiles(files map[string][]byte) error {
	for name, data := range files {
		if len(name) > 4096 {
			return fmt.Errorf("path %.40q… is too long", name)
		}
		for part := range strings.SplitSeq(name, "/") {
			if !repo.PlainName(part) {
				return fmt.Errorf("path %q cannot be published: %q is not allowed in it", name, part)
			}
		}
		if data == nil {
			continue
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if files[dir] != nil {
				return fmt.Errorf("path %q cannot be published: %q is a file", name, dir)
			}
		}
	}
	return nil
}

// buildTree makes the tree that files turn base into. The new objects go to
// out; trees in which nothing changes are not touched, whatever is in them.
func buildTree(g *generation, base Hash, files map[string][]byte, out *objects) (Hash, error) {
	root := newEdit()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] == nil {
			root.put(name, nil)
			continue
		}
		h, err := out.add(plumbing.BlobObject, files[name])
		if err != nil {
			return h, err
		}
		root.put(name, &h)
	}
	tree, err := applyEdit(g, base, root, out, "")
	if err == nil && tree.IsZero() {
		return out.add(plumbing.TreeObject, nil)
	}
	return tree, err
}

// applyEdit is the tree that e turns base into; zero if nothing is left in it.
func applyEdit(g *generation, base Hash, e *edit, out *objects, dir string) (Hash, error) {
	var entries []entry
	if !base.IsZero() {
		var err error
		if entries, err = g.tree(base); err != nil {
			return Hash{}, err
		}
	}
	before := slices.Clone(entries)
	for _, name := range slices.Sorted(maps.Keys(e.dirs)) {
		var old Hash
		at := slices.IndexFunc(entries, func(x entry) bool { return x.name == name })
		isDir := at >= 0 && entries[at].isDir()
		if isDir {
			old = entries[at].hash
		}
		tree, err := applyEdit(g, old, e.dirs[name], out, path.Join(dir, name))
		if err != nil {
			return Hash{}, err
		}
		// Deleting below what is no directory finds nothing to delete. Writing
		// there replaces a file or link that somebody has put in the way.
		if !tree.IsZero() || isDir {
			entries = setEntry(entries, entry{name: name, mode: modeDir, hash: tree})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.blobs)) {
		at := slices.IndexFunc(entries, func(x entry) bool { return x.name == name })
		blob := e.blobs[name]
		switch {
		case at >= 0 && entries[at].isDir() && blob != nil:
			return Hash{}, fmt.Errorf("%q is a directory on the branch, and is to be a file", path.Join(dir, name))
		case at >= 0 && entries[at].isDir():
		case blob == nil:
			entries = setEntry(entries, entry{name: name})
		case at >= 0 && entries[at].isFile():
			entries[at].hash = *blob // it stays executable if it was
		default:
			entries = setEntry(entries, entry{name: name, mode: modeFile, hash: *blob})
		}
	}
	switch {
	case len(entries) == 0:
		return Hash{}, nil
	case slices.Equal(entries, before):
		return base, nil
	}
	return out.add(plumbing.TreeObject, formatTree(entries))
}

// setEntry puts e in place of all that have its name; a zero hash removes them.
func setEntry(entries []entry, e entry) []entry {
	at := slices.IndexFunc(entries, func(x entry) bool { return x.name == e.name })
	if at >= 0 && entries[at] == e {
		return entries
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(x entry) bool { return x.name == e.name })
	if e.hash.IsZero() {
		return entries
	}
	return append(entries, e)
}

// buildCommit makes the commit. The same input gives the same bytes.
func buildCommit(tree Hash, parent Hash, req *PublishRequest, message string, out *objects) (Hash, error) {
	if strings.TrimSpace(message) == "" || strings.ContainsRune(message, 0) {
		return Hash{}, errors.New("a commit needs a message, and no NUL in it")
	}
	stamp := fmt.Sprintf("%d %s", req.When.Unix(), req.When.Format("-0700"))
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	if !parent.IsZero() {
		fmt.Fprintf(&b, "parent %s\n", parent)
	}
	fmt.Fprintf(&b, "author %s <%s> %s\n", req.Author.Name, req.Author.Email, stamp)
	fmt.Fprintf(&b, "committer %s <%s> %s\n\n", req.Committer.Name, req.Committer.Email, stamp)
	b.WriteString(strings.TrimRight(message, "\n") + "\n")
	return out.add(plumbing.CommitObject, []byte(b.String()))
}

func (req *PublishRequest) check() error {
	if err := checkBranch(req.Branch); err != nil {
		return err
	}
	if req.Committer == (Person{}) {
		req.Committer = req.Author
	}
	if req.When.Before(time.Unix(0, 0)) {
		return errors.New("a commit needs a time")
	}
	if req.Build == nil {
		return errors.New("nothing to publish")
	}
	return errors.Join(req.Author.check("author"), req.Committer.check("committer"))
}
