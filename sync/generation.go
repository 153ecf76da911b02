package gitsync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// generation is one directory of the mirror: a bare repository of packs. It
// only ever grows; when it has grown too much, or is damaged, the mirror
// begins a new one. Snapshots read on from the old, which stays as long as
// there are any. The directory can be looked at with git; git must not write to it.
type generation struct {
	dir    string
	limit  int64 // files larger than this were left at the remote, if filtered
	origin string

	objects cache.Object
	damaged atomic.Bool // a read has failed: the next fetch begins anew

	mu       sync.RWMutex
	packs    []*pack // newest last
	refs     map[string]Hash
	shallow  []Hash
	filtered bool
	dirs     map[Hash]*directory
	held     int // entries in dirs

	whole map[Hash]bool // commits seen to be complete, by the one who fetches
}

const (
	objectCache = 2 << 20 // bytes of objects held in memory: more was measured to gain nothing
	dirCache    = 100_000 // entries of directories held in memory
)

func newGeneration(dir, origin string, limit int64) *generation {
	return &generation{dir: dir, origin: origin, limit: limit, objects: cache.NewObjectLRU(objectCache),
		refs: map[string]Hash{}, dirs: map[Hash]*directory{}, whole: map[Hash]bool{}}
}

func (g *generation) packDir() string { return filepath.Join(g.dir, "objects", "pack") }

// create makes the directory.
func (g *generation) create() error {
	for _, d := range []string{g.packDir(), filepath.Join(g.dir, "refs")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(g.dir, "HEAD"), []byte("ref: refs/heads/main\n")); err != nil {
		return err
	}
	return g.save()
}

// save writes what is not a pack.
func (g *generation) save() error {
	var config, refs, shallow bytes.Buffer
	fmt.Fprintf(&config, "[core]\n\tbare = true\n\trepositoryformatversion = 0\n[gc]\n\tauto = 0\n[trainyard]\n\torigin = %q\n\tlimit = %d\n\tfiltered = %t\n",
		g.origin, g.limit, g.filtered)
	refs.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for _, name := range slices.Sorted(maps.Keys(g.refs)) {
		fmt.Fprintf(&refs, "%s %s\n", g.refs[name], branchRef(name))
	}
	for _, h := range g.shallow {
		fmt.Fprintln(&shallow, h)
	}
	return errors.Join(
		writeFile(filepath.Join(g.dir, "config"), config.Bytes()),
		writeFile(filepath.Join(g.dir, "shallow"), shallow.Bytes()),
		writeFile(filepath.Join(g.dir, "packed-refs"), refs.Bytes()))
}

// load reads the directory back. Any doubt is an error: the mirror is only a
// copy, and fetching it again is cheap.
func (g *generation) load() error {
	if err := g.loadConfig(); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(g.packDir(), "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, ".pack") {
			p, err := loadPack(path)
			if errors.Is(err, os.ErrNotExist) { // killed between the two files
				err = os.Remove(path)
			} else if err == nil {
				g.packs = append(g.packs, p)
			}
			if err != nil {
				return err
			}
		} else if !strings.HasSuffix(path, ".idx") {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return g.loadTips()
}

func (g *generation) loadConfig() error {
	config, err := os.ReadFile(filepath.Join(g.dir, "config"))
	if err != nil {
		return err
	}
	want := fmt.Sprintf("\torigin = %q\n\tlimit = %d\n\tfiltered = ", g.origin, g.limit)
	_, filtered, ok := strings.Cut(string(config), want)
	if !ok || (filtered != "true\n" && filtered != "false\n") {
		return errors.New("mirror of another remote or file size limit")
	}
	g.filtered = filtered == "true\n"
	return nil
}

// loadTips reads refs and shallow commits; each has to be there.
func (g *generation) loadTips() error {
	refs, err := os.ReadFile(filepath.Join(g.dir, "packed-refs"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(refs)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		hash, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, ok := strings.CutPrefix(ref, "refs/heads/")
		if !ok {
			return fmt.Errorf("%w: packed-refs", errCorrupt)
		}
		g.refs[name] = plumbing.NewHash(hash)
	}
	shallow, err := os.ReadFile(filepath.Join(g.dir, "shallow"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(shallow)) {
		g.shallow = append(g.shallow, plumbing.NewHash(strings.TrimSpace(line)))
	}
	for _, h := range append(slices.Collect(maps.Values(g.refs)), g.shallow...) {
		if _, err := g.commit(h); err != nil {
			return err
		}
	}
	return nil
}

// find is the pack with an object in it, or nil.
func (g *generation) find(h Hash) (*pack, int64) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, p := range slices.Backward(g.packs) {
		if at := p.offset(h); at >= 0 {
			return p, at
		}
	}
	return nil, -1
}

// errAbsent: no pack has the object.
var errAbsent = fmt.Errorf("%w: object is missing", errCorrupt)

// read is an object's content. limit > 0 refuses larger ones before they are in memory.
func (g *generation) read(kind plumbing.ObjectType, h Hash, limit int64) ([]byte, error) {
	p, at := g.find(h)
	if p == nil {
		if kind != plumbing.BlobObject || !g.leavesOut() {
			g.damaged.Store(true)
		}
		return nil, errAbsent
	}
	var data []byte
	err := p.with(g.objects, func(f *packfile.Packfile) error {
		if limit > 0 {
			if n, err := f.GetSizeByOffset(at); err != nil {
				return err
			} else if n > limit {
				return ErrTooLarge
			}
		}
		obj, err := f.GetByOffset(at)
		if err != nil {
			return err
		}
		if obj.Type() != kind {
			return fmt.Errorf("%w: %s is a %s, not a %s", errMalformed, h, obj.Type(), kind)
		}
		r, err := obj.Reader()
		if err != nil {
			return err
		}
		defer r.Close()
		data = make([]byte, obj.Size())
		_, err = io.ReadFull(r, data)
		return err
	})
	if err != nil && !errors.Is(err, ErrTooLarge) && !errors.Is(err, errMalformed) {
		g.damaged.Store(true)
		return nil, fmt.Errorf("%w: read %s: %w", errCorrupt, h, err)
	}
	return data, err
}

// size of a file, or -1 if it is not here.
func (g *generation) size(h Hash) int64 {
	p, at := g.find(h)
	if p == nil {
		return -1
	}
	n := int64(-1)
	_ = p.with(g.objects, func(f *packfile.Packfile) (err error) {
		if n, err = f.GetSizeByOffset(at); err != nil {
			n = -1
		}
		return err
	})
	return n
}

func (g *generation) leavesOut() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.filtered
}

func (g *generation) commit(h Hash) (*object.Commit, error) {
	data, err := g.read(plumbing.CommitObject, h, 0)
	if err != nil {
		return nil, err
	}
	obj := &plumbing.MemoryObject{}
	obj.SetType(plumbing.CommitObject)
	if _, err := obj.Write(data); err != nil {
		return nil, err
	}
	c := &object.Commit{}
	return c, c.Decode(obj)
}

// tree is a tree's entries as they are.
func (g *generation) tree(h Hash) ([]entry, error) {
	if h == emptyTree {
		return nil, nil
	}
	data, err := g.read(plumbing.TreeObject, h, 0)
	if err != nil {
		return nil, err
	}
	return parseTree(data)
}

// emptyTree is the tree of no files, which a remote need not send.
var emptyTree = plumbing.ComputeHash(plumbing.TreeObject, nil)

// directory is a tree as a file system shows it.
func (g *generation) directory(h Hash) (*directory, error) {
	g.mu.RLock()
	d := g.dirs[h]
	g.mu.RUnlock()
	if d != nil {
		return d, nil
	}
	raw, err := g.tree(h)
	if err != nil {
		return nil, err
	}
	d = newDirectory(raw)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held += len(d.entries) + 1; g.held > dirCache {
		clear(g.dirs)
		g.held = len(d.entries) + 1
	}
	g.dirs[h] = d
	return d, nil
}

// weight is the size of the largest pack.
func (g *generation) weight() int64 {
	var most int64
	for _, p := range g.packs {
		if info, err := os.Stat(p.path); err == nil {
			most = max(most, info.Size())
		}
	}
	return most
}

// add takes a pack's file into the generation.
func (g *generation) add(tmp string) error {
	p, err := adoptPack(tmp, g.packDir())
	if err != nil || p == nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.packs = append(slices.DeleteFunc(g.packs, func(old *pack) bool { return old.path == p.path }), p)
	return nil
}

// setRef notes a branch's tip; a zero hash forgets it.
func (g *generation) setRef(branch string, tip Hash) error {
	if g.refs[branch] == tip {
		return nil
	}
	if tip.IsZero() {
		delete(g.refs, branch)
	} else {
		g.refs[branch] = tip
	}
	return g.save()
}

// complete checks that a commit's trees are all here, and its files unless
// some were left out. What base, a commit seen to be complete, has in the same
// place is not looked at again. It ends: each tree is looked at once.
func (g *generation) complete(tip, base Hash) error {
	if g.whole[tip] {
		return nil
	}
	c, err := g.commit(tip)
	if err != nil {
		return err
	}
	old := plumbing.ZeroHash
	if g.whole[base] {
		b, err := g.commit(base)
		if err != nil {
			return err
		}
		old = b.TreeHash
	}
	if err := g.completeTree(c.TreeHash, old); err != nil {
		return err
	}
	if len(g.whole) > 100 { // forgetting costs a second look, no more
		clear(g.whole)
	}
	g.whole[tip] = true
	return nil
}

func (g *generation) completeTree(tree, old Hash) error {
	type pair struct{ tree, old Hash }
	filtered := g.leavesOut()
	seen := map[Hash]bool{emptyTree: true}
	for todo := []pair{{tree, old}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at.tree] || at.tree == at.old {
			continue
		}
		seen[at.tree] = true
		entries, err := g.tree(at.tree)
		if err != nil {
			return err
		}
		before := map[string]Hash{}
		if !at.old.IsZero() {
			was, err := g.tree(at.old)
			if err != nil {
				return err
			}
			for _, e := range was {
				before[e.name] = e.hash
			}
		}
		for _, e := range entries {
			switch {
			case e.hash == before[e.name]:
			case e.isDir():
				todo = append(todo, pair{e.hash, before[e.name]})
			case !filtered && e.mode != modeSubmodule:
				if p, _ := g.find(e.hash); p == nil {
					return errAbsent
				}
			}
		}
	}
	return nil
}
