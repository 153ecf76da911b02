package render

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Renderer renders snapshots for one environment. It keeps what it rendered,
// and renders a unit again only when something that it read has changed.
type Renderer struct {
	environment string
	formats     formats

	mu     sync.Mutex // one render at a time
	walker walker
	units  map[unit]rendered
	shared *shared
}

// rendered is a unit with all that it was made from.
type rendered struct {
	outcome outcome
	reads   reads
	print   string // of the settings
	overlay *overlay
}

// shared is what every unit is rendered with, and what it was read from.
type shared struct {
	settings      repo.Settings
	problems      []*repo.Error
	print         string
	settingsReads reads
	overlay       *overlay
	overlayReads  reads
}

// New makes the renderer of an environment.
func New(environment string) *Renderer {
	Warm()
	return &Renderer{environment: environment, formats: known()}
}

// Render reads all jobs of a snapshot. Mistakes in its files are part of the
// result and no error. The same files give the same result, in the same order.
// Jobs are shared with later results: they are not to be changed.
func (r *Renderer) Render(ctx context.Context, s Snapshot) (repo.Definitions, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := newView(s)
	units, problems := r.walker.find(v, repo.JobsDir)
	return r.render(ctx, v, units, problems)
}

// RenderPaths reads the jobs of some files and directories only, which need
// not lie below jobs/. Settings and overlay are those of the snapshot.
func (r *Renderer) RenderPaths(ctx context.Context, s Snapshot, paths ...string) (repo.Definitions, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := newView(s)
	var units []unit
	var problems []*repo.Error
	for _, p := range paths {
		found, e := unitsAt(v, path.Clean(p))
		units, problems = append(units, found...), append(problems, e...)
	}
	slices.SortFunc(units, func(a, b unit) int { return strings.Compare(a.path, b.path) })
	return r.render(ctx, v, slices.Compact(units), problems)
}

// unitsAt are the units at a path: the one that it is part of, or those below.
func unitsAt(v *view, name string) ([]unit, []*repo.Error) {
	look := newReader(v)
	k := look.kind(name)
	if k == absent {
		return nil, []*repo.Error{{File: name, Message: "no such file or directory"}}
	}
	switch {
	case name == "." && look.kind(repo.JobsDir) == directory:
		name = repo.JobsDir
	case name == repo.SettingsFile, inside(repo.OverlaysDir, name):
		return nil, nil // checked with every render
	}
	top := ""
	for d := name; d != "." && d != "/" && d != repo.JobsDir; d = path.Dir(d) {
		for _, f := range kustomizationFiles {
			if d != name && look.kind(path.Join(d, f)) == regular && (inside(repo.JobsDir, d) || top == "" && isKustomizationName(name)) {
				top = d
			}
		}
	}
	switch {
	case top != "":
		return []unit{{top, true}}, nil
	case k == regular:
		return []unit{{path: name}}, nil
	}
	var w walker
	return w.find(v, name)
}

func (r *Renderer) render(ctx context.Context, v *view, units []unit, problems []*repo.Error) (repo.Definitions, error) {
	r.share(v)
	work := &rendering{view: v, environment: r.environment, formats: r.formats, settings: r.shared.settings, overlay: r.shared.overlay}
	work.blocked, _ = repo.Split(r.shared.problems)
	results, err := r.all(ctx, work, units)
	if err != nil {
		return repo.Definitions{}, fmt.Errorf("render %s: %w", v.Revision(), err)
	}
	r.units = make(map[unit]rendered, len(units))
	for i, u := range units {
		r.units[u] = results[i]
	}
	defs := repo.Definitions{Revision: v.Revision(), Environment: r.environment, Settings: r.shared.settings}
	defs.Problems = append(slices.Clone(r.shared.problems), problems...)
	gather(&defs, results)
	return defs, nil
}

// all renders the units that have changed, several at a time.
func (r *Renderer) all(ctx context.Context, work *rendering, units []unit) ([]rendered, error) {
	results := make([]rendered, len(units))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, u := range units {
		if old, ok := r.units[u]; ok && old.print == r.shared.print && old.overlay == work.overlay && old.reads.hold(work.view) {
			results[i] = old
			continue
		}
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			outcome, reads := work.unit(u)
			results[i] = rendered{outcome: outcome, reads: reads, print: r.shared.print, overlay: work.overlay}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return results, nil
}

// share reads settings and overlay, unless they are as they were.
func (r *Renderer) share(v *view) {
	old := r.shared
	if old != nil && old.settingsReads.hold(v) && old.overlayReads.hold(v) {
		return
	}
	next := &shared{}
	look := newReader(v)
	next.settings, next.problems = readSettings(look, r.environment)
	next.settingsReads = look.reads
	if old != nil && old.overlayReads.hold(v) {
		next.overlay, next.overlayReads = old.overlay, old.overlayReads
	} else {
		look = newReader(v)
		next.overlay = readOverlay(look, r.formats, r.environment)
		next.overlayReads = look.reads
	}
	errs, _ := repo.Split(next.problems)
	next.print = fingerprint(next.settings.Defaults, next.settings.Rules, next.settings.FrameworkRules, next.settings.FrameworkDelay, next.settings.Accelerators, next.settings.Rename, errs)
	next.problems = append(next.problems, next.overlay.graph.problems...)
	r.shared = next
}

// fingerprint of what units take from the settings.
func fingerprint(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		return fmt.Sprintf("%+v", parts)
	}
	return string(text)
}
