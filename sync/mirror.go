package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// Options of a Mirror.
type Options struct {
	// Dir is the state directory. One process at a time uses it.
	Dir string
	// Read is where to fetch from; Write where to push to, by default Read.
	// They are the same repository, with credentials of their own.
	Read  *Remote
	Write *Remote
	// MaxFile (1 MiB) is the largest file that can be read. Larger ones are
	// left at the remote, if it is able to.
	MaxFile int64
	// MaxFetch (1 GiB) bounds what one fetch may bring.
	MaxFetch int64
	// MaxPacks (200) is how many packs may gather, one for each fetch and each
	// publish, before the mirror is fetched afresh.
	MaxPacks int
}

// Mirror is the local copy of a repository: the newest commits of the branches
// that were asked for. It is safe for concurrent use; work that needs the
// remote is done one after another.
type Mirror struct {
	opt  Options
	lock *os.File
	busy chan struct{} // holds one token: who has it may use the remote and write

	mu      sync.Mutex
	gen     *generation
	retired []retired
	next    int             // number of the next generation
	fetched map[string]Hash // what Fetch last gave
	listed  map[string]Hash // where the remote said that branches stand which the mirror has had; zero is gone
	closed  bool
}

// retired is a generation that snapshots may still read from.
type retired struct {
	dir string
	gen weak.Pointer[generation]
}

// Open takes the state directory, made if need be, and what an earlier process
// left in it. It does not connect. A damaged mirror is thrown away: the next
// Fetch begins afresh.
func Open(ctx context.Context, opt Options) (*Mirror, error) {
	if opt.Read == nil || opt.Dir == "" {
		return nil, errors.New("open mirror: a remote and a state directory are needed")
	}
	opt.Write = cmp.Or(opt.Write, opt.Read)
	opt.MaxFile = cmp.Or(opt.MaxFile, 1<<20)
	opt.MaxFetch = cmp.Or(opt.MaxFetch, 1<<30)
	opt.MaxPacks = cmp.Or(opt.MaxPacks, 200)
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open mirror: %w", err)
	}
	lock, err := lockDir(opt.Dir, filepath.Join(opt.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open mirror: %w", err)
	}
	m := &Mirror{opt: opt, lock: lock, busy: make(chan struct{}, 1), fetched: map[string]Hash{}, listed: map[string]Hash{}}
	err = m.recover()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open mirror: %w", err), lock.Close())
	}
	return m, nil
}

// recover loads the current generation if it is sound, and removes all others.
func (m *Mirror) recover() error {
	dirs, err := filepath.Glob(filepath.Join(m.opt.Dir, "mirror-*.git"))
	if err != nil {
		return err
	}
	current, err := os.ReadFile(m.currentFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "mirror-"), ".git")); err == nil {
			m.next = max(m.next, n+1)
		}
		if name == string(current) {
			g := newGeneration(dir, m.opt.Read.String(), m.opt.MaxFile)
			if g.load() == nil {
				m.gen = g
				continue
			}
		}
		if err := removeMirror(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeMirror removes the directory of a generation that is not the current one.
func removeMirror(dir string) error {
	crash.At(crash.MirrorRemove, crash.Before)
	err := os.RemoveAll(dir)
	crash.At(crash.MirrorRemove, crash.After)
	return err
}

func (m *Mirror) currentFile() string { return filepath.Join(m.opt.Dir, "current") }

// Close gives the state directory back. Snapshots must not be read any more.
func (m *Mirror) Close() error {
	m.busy <- struct{}{} // whoever is at work finishes first
	defer func() { <-m.busy }()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	var errs []error
	for _, old := range m.retired {
		errs = append(errs, removeMirror(old.dir))
	}
	m.gen, m.retired = nil, nil
	return errors.Join(append(errs, m.lock.Close())...)
}

var errClosed = errors.New("mirror is closed")

// acquire waits for the right to use the remote and to write.
func (m *Mirror) acquire(ctx context.Context) (release func(), err error) {
	select {
	case m.busy <- struct{}{}:
		if m.closed {
			<-m.busy
			return nil, errClosed
		}
		return func() { <-m.busy }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Refs is a remote's listing.
type Refs struct {
	Default  string          // branch that HEAD names, even one without a commit; "" if the remote does not say
	Branches map[string]Hash // tips by branch name
}

// List asks the remote for its branches: one short conversation, nothing is
// fetched. An empty repository has none.
func (m *Mirror) List(ctx context.Context) (Refs, error) {
	s, err := m.opt.Read.open(ctx, uploadPack)
	if err != nil {
		return Refs{}, err
	}
	defer s.close()
	refs := Refs{Default: s.head, Branches: make(map[string]Hash)}
	for name, tip := range s.refs {
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			refs.Branches[branch] = tip
		}
	}
	return refs, nil
}

// current is the generation to read from; nil before the first fetch.
func (m *Mirror) current() *generation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gen
}

// note keeps what a listing says of the branches that the mirror has, or had.
func (m *Mirror) note(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for branch := range m.listed {
		m.listed[branch] = s.refs[branchRef(branch)]
	}
	if m.gen != nil {
		for branch := range m.gen.refs {
			m.listed[branch] = s.refs[branchRef(branch)]
		}
	}
}

// Listed is where the last Fetch, of any branch, saw a branch stand that the
// mirror has had: "" if it is gone. It asks nobody.
func (m *Mirror) Listed(branch string) (revision string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tip, known := m.listed[branch]
	if tip.IsZero() {
		return "", known
	}
	return tip.String(), known
}

// At is a commit that the mirror has; nil if it has not. It asks nobody.
func (m *Mirror) At(revision string) *Snapshot {
	g := m.current()
	if g == nil || revision == "" {
		return nil
	}
	hash := plumbing.NewHash(revision)
	if p, _ := g.find(hash); p == nil {
		return nil
	}
	snap, err := m.snapshot(g, hash)
	if err != nil {
		return nil
	}
	return snap
}

// swap makes g the current generation. The old one's directory goes once the
// last snapshot of it has been collected: see sweep.
func (m *Mirror) swap(g *generation) error {
	crash.At(crash.MirrorSwitch, crash.Before)
	if err := writeFile(m.currentFile(), []byte(filepath.Base(g.dir))); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gen != nil {
		m.retired = append(m.retired, retired{dir: m.gen.dir, gen: weak.Make(m.gen)})
	}
	m.gen = g
	crash.At(crash.MirrorSwitch, crash.After)
	return nil
}

// sweep removes the directories of generations that nobody reads any more.
func (m *Mirror) sweep() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	kept := m.retired[:0]
	for _, old := range m.retired {
		if old.gen.Value() != nil {
			kept = append(kept, old)
		} else if err := removeMirror(old.dir); err != nil {
			errs, kept = append(errs, err), append(kept, old)
		}
	}
	m.retired = kept
	return errors.Join(errs...)
}
