package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trainyard/trainyard/render"
	"github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/sync"
)

// shared is what the repository's settings say of where records lie.
type shared struct {
	mu     sync.Mutex
	layout repo.Layout
}

func (s *shared) get() repo.Layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout
}

func (s *shared) setShards(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout.Shards = n
}

// source polls the watched branch and renders what changed.
type source struct {
	mirror      *gitsync.Mirror
	branch      string
	environment string
	renderer    *render.Renderer
	shared      *shared
	done        string // revision that was rendered last; noBranch when there was none
}

const noBranch = "-"

// Poll returns the definitions of the branch's tip, nil if it has not moved.
// A branch that is not there asks for nothing, which is not an error: the
// loop keeps what runs, and says what is amiss.
func (s *source) Poll(ctx context.Context) (*repo.Definitions, error) {
	snap, _, err := s.mirror.Fetch(ctx, s.branch)
	if errors.Is(err, gitsync.ErrNoBranch) {
		if s.done == noBranch {
			return nil, nil
		}
		s.done = noBranch
		return &repo.Definitions{Environment: s.environment, Problems: []*repo.Error{
			{Message: fmt.Sprintf("the watched branch %q does not exist: %v", s.branch, err), Warning: true},
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	if snap.Revision() == s.done {
		return nil, nil
	}
	defs, err := s.renderer.Render(ctx, snap)
	if err != nil {
		return nil, fmt.Errorf("render %.12s: %w", snap.Revision(), err)
	}
	s.done = snap.Revision()
	s.shared.setShards(defs.Settings.Shards)
	return &defs, nil
}
