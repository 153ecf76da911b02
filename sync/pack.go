package gitsync

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// pack is a pack file that never changes, with its index in memory. Each read
// opens it anew, so that any number of readers may do so at once.
type pack struct {
	path string
	idx  *idxfile.MemoryIndex
}

// offset is where an object lies, or -1.
func (p *pack) offset(h Hash) int64 {
	at, err := p.idx.FindOffset(h)
	if err != nil {
		return -1
	}
	return at
}

// with opens the pack for fn.
func (p *pack) with(objects cache.Object, fn func(*packfile.Packfile) error) error {
	f, err := openFile(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(packfile.NewPackfileWithCache(p.idx, nil, f, objects, 0))
}

func openFile(path string) (billy.File, error) {
	return osfs.New(filepath.Dir(path)).Open(filepath.Base(path))
}

// loadPack reads a pack's index and checks both files to the last byte.
func loadPack(path string) (*pack, error) {
	name := filepath.Base(path)
	raw, err := os.ReadFile(strings.TrimSuffix(path, ".pack") + ".idx")
	if err != nil {
		return nil, err
	}
	end := len(raw) - sha1.Size
	if end < 0 {
		return nil, fmt.Errorf("%w: index of %s is cut short", errCorrupt, name)
	}
	if sum := sha1.Sum(raw[:end]); !bytes.Equal(sum[:], raw[end:]) {
		return nil, fmt.Errorf("%w: index of %s has a wrong checksum", errCorrupt, name)
	}
	idx := idxfile.NewMemoryIndex()
	if err := idxfile.NewDecoder(bytes.NewReader(raw)).Decode(idx); err != nil {
		return nil, fmt.Errorf("%w: index of %s: %w", errCorrupt, name, err)
	}
	sum, err := packSum(path)
	if err != nil {
		return nil, err
	}
	if sum != idx.PackfileChecksum {
		return nil, fmt.Errorf("%w: %s is not the pack of its index", errCorrupt, name)
	}
	return &pack{path: path, idx: idx}, nil
}

// packSum is the checksum at the end of a pack, if the pack agrees with it.
func packSum(path string) (sum [sha1.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if info.Size() < sha1.Size+12 {
		return sum, fmt.Errorf("%w: %s is cut short", errCorrupt, filepath.Base(path))
	}
	h := sha1.New()
	if _, err := io.CopyN(h, bufio.NewReaderSize(f, 64<<10), info.Size()-sha1.Size); err != nil {
		return sum, err
	}
	if _, err := f.ReadAt(sum[:], info.Size()-sha1.Size); err != nil {
		return sum, err
	}
	if !bytes.Equal(h.Sum(nil), sum[:]) {
		return sum, fmt.Errorf("%w: %s has a wrong checksum", errCorrupt, filepath.Base(path))
	}
	return sum, nil
}

// adoptPack indexes the pack in file tmp and moves it into dir. The index is
// written last: a pack without one is a leftover. A pack without objects is
// removed, and nil returned.
func adoptPack(tmp, dir string) (*pack, error) {
	crash.At(crash.PackAdopt, crash.Before)
	sum, err := packSum(tmp)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(tmp)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var w idxfile.Writer
	parser, err := packfile.NewParser(packfile.NewScanner(f), &w)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(); errors.Is(err, packfile.ErrEmptyPackfile) {
		return nil, os.Remove(tmp)
	} else if err != nil {
		return nil, fmt.Errorf("%w: read the pack: %w", errCorrupt, err)
	}
	idx, err := w.Index()
	if err != nil {
		return nil, fmt.Errorf("%w: index the pack: %w", errCorrupt, err)
	}
	if n, err := idx.Count(); err != nil || n == 0 {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	base := filepath.Join(dir, fmt.Sprintf("pack-%x", sum))
	if err := os.Rename(tmp, base+".pack"); err != nil {
		return nil, err
	}
	crash.At(crash.PackAdopt, crash.Half)
	var raw bytes.Buffer
	if _, err := idxfile.NewEncoder(&raw).Encode(idx); err != nil {
		return nil, err
	}
	err = writeFile(base+".idx", raw.Bytes())
	crash.At(crash.PackAdopt, crash.After)
	return &pack{path: base + ".pack", idx: idx}, err
}

// writeFile writes by rename: the file is there wholly, or as it was.
func writeFile(path string, data []byte) error {
	crash.File(path, crash.Before)
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	crash.File(path, crash.Half)
	err := os.Rename(tmp, path)
	crash.File(path, crash.After)
	return err
}

// objects collects new objects for a pack.
type objects struct {
	store  *memory.Storage
	hashes []Hash
}

func newObjects() *objects { return &objects{store: memory.NewStorage()} }

func (o *objects) add(kind plumbing.ObjectType, data []byte) (Hash, error) {
	obj := &plumbing.MemoryObject{}
	obj.SetType(kind)
	if _, err := obj.Write(data); err != nil {
		return plumbing.ZeroHash, err
	}
	h := obj.Hash()
	if o.store.HasEncodedObject(h) == nil {
		return h, nil
	}
	o.hashes = append(o.hashes, h)
	return o.store.SetEncodedObject(obj)
}

// pack is all of the objects, without deltas.
func (o *objects) pack() ([]byte, error) {
	var b bytes.Buffer
	var s storer.EncodedObjectStorer = o.store
	_, err := packfile.NewEncoder(&b, s, false).Encode(o.hashes, 0)
	return b.Bytes(), err
}
