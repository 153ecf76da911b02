package gitsync

import (
	"cmp"
	"fmt"
	"path"
	"slices"
)

// Kind of a Change.
type Kind string

// What happened to a path.
const (
	Added    Kind = "added"
	Removed  Kind = "removed"
	Modified Kind = "modified"
)

// Change is a path that is not the same in two snapshots.
type Change struct {
	Path string
	Kind Kind
}

// maxChanges bounds a comparison: a small repository can hold trees that
// unfold into more paths than there is memory.
const maxChanges = 200_000

// Changed lists the files (and links and submodules) that differ from a to b,
// in order of paths. Directories of the same hash are not looked into, so the
// cost follows the size of the change. A nil snapshot is one without files.
func Changed(a, b *Snapshot) ([]Change, error) {
	c := &comparison{}
	if a != nil {
		c.a = a.gen
	}
	if b != nil {
		c.b = b.gen
	}
	if err := c.trees("", rootOf(a), rootOf(b)); err != nil {
		return nil, fmt.Errorf("compare snapshots: %w", err)
	}
	slices.SortFunc(c.out, func(x, y Change) int { return cmp.Compare(x.Path, y.Path) })
	return c.out, nil
}

func rootOf(s *Snapshot) Hash {
	if s == nil {
		return emptyTree
	}
	return s.root
}

type comparison struct {
	a, b  *generation
	out   []Change
	steps int
}

// trees compares two directories; a zero hash is none.
func (c *comparison) trees(dir string, a, b Hash) error {
	if a == b {
		return nil
	}
	if len(dir) > 4096 {
		return fmt.Errorf("%.40s…: path is too long", dir)
	}
	before, err := c.list(c.a, a)
	if err != nil {
		return err
	}
	after, err := c.list(c.b, b)
	if err != nil {
		return err
	}
	for len(before) > 0 || len(after) > 0 {
		var was, is *entry
		switch {
		case len(after) == 0 || (len(before) > 0 && before[0].name < after[0].name):
			was, before = &before[0], before[1:]
		case len(before) == 0 || before[0].name > after[0].name:
			is, after = &after[0], after[1:]
		default:
			was, is, before, after = &before[0], &after[0], before[1:], after[1:]
		}
		if err := c.entries(dir, was, is); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) list(g *generation, h Hash) ([]entry, error) {
	if h.IsZero() || h == emptyTree || g == nil {
		return nil, nil
	}
	d, err := g.directory(h)
	if err != nil {
		return nil, err
	}
	return d.entries, nil
}

// entries compares what has the same name in two directories; nil is nothing.
func (c *comparison) entries(dir string, was, is *entry) error {
	if c.steps++; c.steps > maxChanges {
		return fmt.Errorf("more than %d paths differ", maxChanges)
	}
	var oldTree, newTree Hash
	var oldLeaf, newLeaf bool
	var name string
	if was != nil {
		name, oldLeaf = was.name, !was.isDir()
		if was.isDir() {
			oldTree = was.hash
		}
	}
	if is != nil {
		name, newLeaf = is.name, !is.isDir()
		if is.isDir() {
			newTree = is.hash
		}
	}
	p := path.Join(dir, name)
	switch {
	case oldLeaf && newLeaf:
		if was.hash != is.hash || was.mode != is.mode {
			c.out = append(c.out, Change{p, Modified})
		}
	case oldLeaf:
		c.out = append(c.out, Change{p, Removed})
	case newLeaf:
		c.out = append(c.out, Change{p, Added})
	}
	return c.trees(p, oldTree, newTree)
}
