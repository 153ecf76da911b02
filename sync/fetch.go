package gitsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// Fetch brings the newest commit of a branch. changed says whether it is
// another one than the last Fetch of this branch gave. When nothing changed,
// the remote is asked for its listing and nothing else.
//
// ErrNoBranch and ErrEmpty say that the remote answered and has no such
// branch, or no branch at all.
func (m *Mirror) Fetch(ctx context.Context, branch string) (snap *Snapshot, changed bool, err error) {
	if err := checkBranch(branch); err != nil {
		return nil, false, fmt.Errorf("git fetch: %w", err)
	}
	release, err := m.acquire(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("git fetch %s: %w", branch, err)
	}
	defer release()
	g, tip, err := m.bring(ctx, branch)
	if err == nil {
		snap, err = m.snapshot(g, tip)
	}
	if err != nil {
		return nil, false, err
	}
	changed = m.fetched[branch] != tip
	m.fetched[branch] = tip
	return snap, changed, nil
}

// bring makes the branch's tip complete in the current generation, in the
// cheapest way that works.
func (m *Mirror) bring(ctx context.Context, branch string) (*generation, Hash, error) {
	if err := m.sweep(); err != nil {
		return nil, Hash{}, fmt.Errorf("remove an old mirror: %w", err)
	}
	s, err := m.opt.Read.open(ctx, uploadPack)
	if err != nil {
		return nil, Hash{}, err
	}
	defer s.close()
	m.note(s)
	g := m.current()
	tip, err := s.branch(branch)
	if err != nil {
		if g != nil {
			err = errors.Join(err, g.setRef(branch, Hash{}))
		}
		return nil, tip, fmt.Errorf("git fetch %s: %w", m.opt.Read, err)
	}
	if g != nil && !g.damaged.Load() && len(g.packs) <= m.opt.MaxPacks {
		err := m.extend(s, g, branch, tip)
		if err == nil {
			return g, tip, nil
		}
		// A history that was rewritten, or a damaged copy, is fetched afresh.
		// Trouble with the remote is not helped by asking it for more.
		if !errors.Is(err, errCorrupt) && !errors.Is(err, errTooMuch) {
			return nil, tip, err
		}
	}
	s.close()
	g, tip, err = m.replace(ctx, branch)
	return g, tip, err
}

// extend adds what is new to g: nothing if the tip is there already, all of
// the tip for a branch that is new to g, else what came after the known tips.
func (m *Mirror) extend(s *session, g *generation, branch string, tip Hash) error {
	base := g.refs[branch]
	if p, _ := g.find(tip); p != nil {
		if err := g.complete(tip, base); err != nil {
			return err
		}
		return g.setRef(branch, tip)
	}
	w := wanted{tip: tip, haves: slices.Collect(maps.Values(g.refs)), shallows: g.shallow}
	// What a rewritten history brings is not worth more than a fresh start.
	most := max(16<<20, g.weight())
	if base.IsZero() {
		w.depth, most = 1, m.opt.MaxFetch
	}
	if err := m.receive(s, g, w, min(most, m.opt.MaxFetch)); err != nil {
		return err
	}
	if err := g.complete(tip, base); err != nil {
		return err
	}
	return g.setRef(branch, tip)
}

// replace begins a new generation with the branch's tip alone, and makes it
// the current one when it is complete.
func (m *Mirror) replace(ctx context.Context, branch string) (*generation, Hash, error) {
	s, err := m.opt.Read.open(ctx, uploadPack)
	if err != nil {
		return nil, Hash{}, err
	}
	defer s.close()
	tip, err := s.branch(branch)
	if err != nil {
		return nil, tip, fmt.Errorf("git fetch %s: %w", m.opt.Read, err)
	}
	g, err := m.begin()
	if err == nil {
		g.filtered = s.filters()
		err = m.receive(s, g, wanted{tip: tip, depth: 1}, m.opt.MaxFetch)
	}
	if err == nil {
		err = g.complete(tip, Hash{})
	}
	if err == nil {
		err = errors.Join(g.setRef(branch, tip), m.swap(g))
	}
	if err != nil {
		return nil, tip, errors.Join(err, os.RemoveAll(g.dir))
	}
	return g, tip, nil
}

// begin makes an empty generation.
func (m *Mirror) begin() (*generation, error) {
	dir := filepath.Join(m.opt.Dir, fmt.Sprintf("mirror-%d.git", m.next))
	m.next++
	g := newGeneration(dir, m.opt.Read.String(), m.opt.MaxFile)
	return g, g.create()
}

// receive takes a pack from the remote into g.
func (m *Mirror) receive(s *session, g *generation, w wanted, most int64) error {
	if s.filters() {
		w.filter = m.opt.MaxFile
		g.mu.Lock()
		g.filtered = true
		g.mu.Unlock()
	}
	f, err := os.CreateTemp(g.packDir(), "tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already if all went well
	}()
	crash.At(crash.Fetch, crash.Before)
	shallows, err := s.fetchPack(w, &capped{w: f, left: most})
	if err != nil {
		return s.fail("fetch", err)
	}
	crash.At(crash.Fetch, crash.Half)
	s.close() // indexing takes its time, and the remote has no part in it
	if err := errors.Join(f.Close(), g.add(f.Name())); err != nil {
		return fmt.Errorf("git fetch %s: %w", s.remote, err)
	}
	for _, h := range shallows {
		if !slices.Contains(g.shallow, h) {
			g.shallow = append(g.shallow, h)
		}
	}
	err = g.save()
	crash.At(crash.Fetch, crash.After)
	return err
}

// capped refuses what is too much.
type capped struct {
	w    io.Writer
	left int64
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, errTooMuch
	}
	return c.w.Write(p)
}
