package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/trainyard/trainyard/render"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/sync"
)

// shared is what the last definitions say beyond the jobs.
type shared struct {
	mu       sync.Mutex
	layout   repo.Layout
	problems []string // errors of no job's own
}

func (s *shared) get() repo.Layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout
}

// take notes what definitions say. Settings that could not be read do not move
// every record to another place.
func (s *shared) take(defs *repo.Definitions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs, _ := repo.Split(defs.Problems)
	s.problems = nil
	unread := false
	for _, e := range errs {
		s.problems = append(s.problems, e.Error())
		unread = unread || e.File == repo.SettingsFile
	}
	if !unread {
		s.layout.Shards = defs.Settings.Shards
	}
}

func (s *shared) errors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems
}

// source polls the watched branch and renders what changed.
type source struct {
	mirror      *gitsync.Mirror
	branch      string
	environment string
	renderer    *render.Renderer
	shared      *shared
	once        bool   // a branch that is not there is an error: nothing is waited for
	polled      func() // the remote has answered. It may be nil
	own         string // the directory of records when they lie beside the jobs, else ""
	last        *gitsync.Snapshot
	done        string // revision that was looked at last; noBranch when there was none
}

const noBranch = "-"

// Poll returns the definitions of the branch's tip, nil if it has not moved.
// A branch that is not there asks for nothing, which is not an error: the
// loop keeps what runs, and says what is amiss.
func (s *source) Poll(ctx context.Context) (*repo.Definitions, error) {
	snap, _, err := s.mirror.Fetch(ctx, s.branch)
	if s.polled != nil && (err == nil || errors.Is(err, gitsync.ErrNoBranch)) {
		s.polled()
	}
	if errors.Is(err, gitsync.ErrNoBranch) && !s.once {
		if s.done == noBranch {
			return nil, nil
		}
		s.done, s.last = noBranch, nil
		problem := &repo.Error{Message: fmt.Sprintf("the watched branch %q does not exist: %v", s.branch, err), Warning: true}
		return &repo.Definitions{Environment: s.environment, Problems: []*repo.Error{problem}}, nil
	}
	if err != nil {
		return nil, err
	}
	if snap.Revision() == s.done {
		return nil, nil
	}
	if s.recordsOnly(snap) {
		s.done, s.last = snap.Revision(), snap
		return nil, nil
	}
	defs, err := s.renderer.Render(ctx, snap)
	if err != nil {
		return nil, fmt.Errorf("render %.12s: %w", snap.Revision(), err)
	}
	s.done = snap.Revision()
	if s.own != "" {
		s.last = snap
	}
	s.shared.take(&defs)
	return &defs, nil
}

// recordsOnly says that nothing but records has changed since the last
// snapshot: those commits are our own.
func (s *source) recordsOnly(snap *gitsync.Snapshot) bool {
	if s.last == nil {
		return false
	}
	changes, err := gitsync.Changed(s.last, snap)
	return err == nil && !slices.ContainsFunc(changes, func(c gitsync.Change) bool { return !strings.HasPrefix(c.Path, s.own+"/") })
}
