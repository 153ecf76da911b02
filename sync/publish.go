package gitsync

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// PublishRequest is a commit to make on a branch.
type PublishRequest struct {
	Branch    string
	Author    Person
	Committer Person // by default Author
	// When is the time of the commit: nothing here asks the clock, so that the
	// same request gives the same commit.
	When time.Time
	// Build says what the commit holds, given what the branch holds now: nil if
	// there is no such branch. It is called again whenever the branch has
	// moved, and merges by what it knows of its files. A nil content deletes;
	// files that are not named stay. It may not use the Mirror.
	Build func(tip *Snapshot) (files map[string][]byte, message string, err error)
	// Tries (20) bounds how often others may come first.
	Tries int
}

// Publish adds a commit to a branch and returns the branch's revision: no
// commit is made if the files are as they should be. The branch moves only from
// the tip that Build saw, so nobody's commit is lost; a branch that does not
// exist is begun without a parent.
//
// Whenever a push fails, whatever the reason, the remote is asked where the
// branch stands. If it stands at our commit, the answer was lost and all is well.
// If it has moved, the commit is built again on the new tip. If it has not, the
// error is a *PushError with the remote's words, or what went wrong on the way;
// the same request may be published again later. An error leaves open whether
// the commit has landed only if the remote could not be asked.
func (m *Mirror) Publish(ctx context.Context, req PublishRequest) (revision string, err error) {
	if err := req.check(); err != nil {
		return "", fmt.Errorf("publish to %q: %w", req.Branch, err)
	}
	for try := range cmp.Or(req.Tries, 20) {
		tip, err := m.tip(ctx, req.Branch, try > 0)
		if err != nil {
			return "", err
		}
		c, err := m.build(tip, &req)
		if errors.Is(err, errCorrupt) && try == 0 {
			continue // the next try fetches afresh
		}
		if err != nil {
			return "", fmt.Errorf("publish to %s: %w", req.Branch, err)
		}
		landed, err := m.offer(ctx, req.Branch, c)
		if err != nil {
			return "", err
		}
		if landed {
			return c.revision(), nil
		}
		if err := pause(ctx, try, c.tip); err != nil {
			return "", fmt.Errorf("publish to %s: %w", req.Branch, err)
		}
	}
	return "", fmt.Errorf("publish to %s: %w for %d tries", req.Branch, ErrContended, cmp.Or(req.Tries, 20))
}

// tip is what the branch holds: as the mirror knows it, or as the remote says.
// nil is a branch that does not exist.
func (m *Mirror) tip(ctx context.Context, branch string, ask bool) (*Snapshot, error) {
	release, err := m.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("publish to %s: %w", branch, err)
	}
	defer release()
	if g := m.current(); g != nil && !ask && !g.damaged.Load() && len(g.packs) <= m.opt.MaxPacks {
		if tip, ok := g.refs[branch]; ok && g.complete(tip, Hash{}) == nil {
			return m.snapshot(g, tip)
		}
	}
	g, tip, err := m.bring(ctx, branch)
	if errors.Is(err, ErrNoBranch) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m.snapshot(g, tip)
}

// candidate is a commit that is to be the branch's next.
type candidate struct {
	base *Snapshot // what it is built on; nil is nothing
	old  Hash
	tip  Hash // old if there is nothing to commit
	pack []byte
}

func (c *candidate) revision() string {
	if c.tip.IsZero() {
		return ""
	}
	return c.tip.String()
}

func (m *Mirror) build(tip *Snapshot, req *PublishRequest) (*candidate, error) {
	crash.At(crash.ObjectWrite, crash.Before)
	files, message, err := req.Build(tip)
	if err != nil {
		return nil, err
	}
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	c := &candidate{base: tip}
	var g *generation
	var root Hash
	if tip != nil {
		g, c.old, root = tip.gen, tip.hash, tip.root
	}
	out := newObjects()
	tree, err := buildTree(g, root, files, out)
	if err != nil {
		return nil, err
	}
	if tree == root || (tip == nil && tree == emptyTree) {
		c.tip = c.old
		return c, nil
	}
	if c.tip, err = buildCommit(tree, c.old, req, message, out); err != nil {
		return nil, err
	}
	c.pack, err = out.pack()
	crash.At(crash.ObjectWrite, crash.After)
	return c, err
}

// offer tries to move the branch to the candidate. landed false without an
// error says that the branch is no longer where the candidate was built.
func (m *Mirror) offer(ctx context.Context, branch string, c *candidate) (landed bool, err error) {
	release, err := m.acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("publish to %s: %w", branch, err)
	}
	defer release()
	s, err := m.opt.Write.open(ctx, receivePack)
	if err != nil {
		return false, err
	}
	defer s.close()
	now := s.refs[branchRef(branch)]
	if now != c.old && now != c.tip {
		return false, nil
	}
	if c.tip == c.old {
		return true, nil // nothing to commit, and that is still true
	}
	if now == c.old {
		if err := m.push(ctx, s, branch, c); errors.Is(err, errMoved) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	m.keep(branch, c)
	return true, nil
}

var errMoved = errors.New("the branch has moved")

// push sends the candidate. A failure is looked into by asking where the
// branch stands: the texts of servers differ and lie.
func (m *Mirror) push(ctx context.Context, s *session, branch string, c *candidate) error {
	reason, failed := s.push(branch, c.old, c.tip, c.pack)
	if failed == nil && reason == "" {
		return nil
	}
	var why error = &PushError{Remote: s.remote.String(), Branch: branch, Reason: s.remote.scrubText(reason), Output: s.output()}
	if failed != nil {
		why = s.fail("push", failed)
	}
	s.close()
	// Somebody else's push may hold the branch at this moment and move it in
	// the next: that looks like a refusal, so the second look counts.
	for look := range 2 {
		if err := pause(ctx, look, c.tip); err != nil {
			return errors.Join(why, err)
		}
		again, err := m.opt.Write.open(ctx, receivePack)
		if err != nil {
			return errors.Join(why, fmt.Errorf("whether it has landed is not known: %w", err))
		}
		now := again.refs[branchRef(branch)]
		again.close()
		if now == c.tip {
			return nil
		}
		if now != c.old {
			return errMoved
		}
	}
	return why
}

// keep puts the published commit into the mirror, so that it need not be
// fetched. If the mirror has begun afresh meanwhile, the next fetch brings it.
func (m *Mirror) keep(branch string, c *candidate) {
	var err error
	g := m.current()
	if g == nil {
		if g, err = m.begin(); err != nil || m.swap(g) != nil {
			return
		}
	}
	if c.base != nil && c.base.gen != g {
		return
	}
	f, err := os.CreateTemp(g.packDir(), "tmp-*")
	if err != nil {
		return // the commit has landed, and that is what counts
	}
	_, err = f.Write(c.pack)
	if err = errors.Join(err, f.Close()); err == nil {
		err = g.add(f.Name())
	}
	if err == nil {
		err = g.complete(c.tip, c.old)
	}
	if err == nil {
		err = g.setRef(branch, c.tip)
	}
	if err != nil {
		g.damaged.Store(true)
	}
}

// pause waits before the next try: longer each time, up to two seconds, by a
// chance that is drawn from the commit that lost, so that two do not meet again.
func pause(ctx context.Context, try int, lost Hash) error {
	most := min(20*time.Millisecond<<min(try, 10), 2*time.Second)
	chance := rand.New(rand.NewPCG(binary.BigEndian.Uint64(lost[:8]), uint64(try)))
	t := time.NewTimer(time.Duration(chance.Int64N(int64(most))))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
