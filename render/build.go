package render

import (
	"fmt"
	"maps"
	"path"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// maxBuildTime ends a build at its next read. Kustomize cannot be interrupted
// in between: the bounds of its input see to it that it comes to an end.
const maxBuildTime = 20 * time.Second

// built is an object as kustomize left it, and the document it came from; nil
// for what a generator made.
type built struct {
	object map[string]any
	key    string // of the source
	source *manifest.Document
}

// plan is what one build reads: the resources at its root, with the overlay
// applied to them.
type plan struct {
	resources     []string
	overlay       *overlay
	served        map[string][]byte
	sources       map[string]*manifest.Document
	configuration []byte
}

// build runs kustomize. It neither knows nor finds any file but those of the plan.
func build(p plan) (all []built, err error) {
	started := time.Now()
	fsys := newFiles(started.Add(maxBuildTime))
	root := types.Kustomization{Resources: p.resources}
	sources := map[string]*manifest.Document{}
	maps.Copy(sources, p.sources)
	for name, data := range p.served {
		fsys.put(name, data)
	}
	if p.overlay.exists() {
		for name, data := range p.overlay.graph.served {
			fsys.put(name, data)
		}
		maps.Copy(sources, p.overlay.graph.sources)
		root.Components = []string{relative(".", p.overlay.dir)}
	}
	if p.configuration != nil {
		root.Configurations = []string{configurationFile}
		fsys.put(configurationFile, p.configuration)
	}
	text, err := encode(root)
	if err != nil {
		return nil, err
	}
	fsys.put(kustomizationFiles[0], text)
	all, err = run(fsys, sources)
	if time.Since(started) > maxBuildTime {
		return nil, errDeadline
	}
	return all, err
}

// run is one call of kustomize. A panic in it is an error of the unit.
func run(fsys *files, sources map[string]*manifest.Document) (all []built, err error) {
	defer func() {
		if r := recover(); r != nil {
			all, err = nil, fmt.Errorf("kustomize broke down over this input: %v", r)
		}
	}()
	options := krusty.Options{Reorder: krusty.ReorderOptionNone, LoadRestrictions: types.LoadRestrictionsRootOnly, PluginConfig: types.DisabledPluginConfig()}
	result, err := krusty.MakeKustomizer(&options).Run(fsys, "/")
	if err != nil {
		return nil, err
	}
	for _, r := range result.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, err
		}
		if size, err := encode(object); err != nil {
			return nil, err
		} else if len(size) > maxFile {
			return nil, fmt.Errorf("%s %q is larger than %d KiB once it is built", r.GetKind(), r.GetName(), maxFile>>10)
		}
		key := unmark(object)
		b := built{object: object, key: key, source: sources[key]}
		if b.source == nil {
			b.source = bySight(r.GetKind(), r.GetName(), sources)
		}
		all = append(all, b)
	}
	return all, nil
}

// bySight finds the document of an object that lost its mark, because a patch
// replaced all its annotations.
func bySight(kind, name string, sources map[string]*manifest.Document) *manifest.Document {
	var ofKind []*manifest.Document
	for _, d := range sources {
		switch {
		case d.Kind() != kind:
		case d.Name() == name:
			return d
		default:
			ofKind = append(ofKind, d)
		}
	}
	if len(ofKind) == 1 && kind != "ConfigMap" {
		return ofKind[0]
	}
	return nil
}

// overlay is what an environment adds to every unit.
type overlay struct {
	dir   string // "" when the environment has none
	file  string // its kustomization
	graph *graph
	// pods is set when it may change a pod, adds when it brings objects or
	// labels that job kinds refer to.
	pods, adds bool
}

func (o *overlay) exists() bool { return o != nil && o.dir != "" }

// changes are the patches and the like that are applied to every object.
func (o *overlay) changes() int {
	if !o.exists() {
		return 0
	}
	n := 0
	for _, of := range o.graph.nodes {
		n += of.changes
	}
	return n
}

// readOverlay checks the environment's overlay, if there is one.
func readOverlay(r *reader, f formats, environment string) *overlay {
	dir := path.Join("overlays", environment)
	o := &overlay{graph: newGraph(r, f)}
	o.graph.overlay = true
	for _, name := range []string{"overlays", dir} {
		if r.hidden(name) { // jobs without their overlay would be others
			o.graph.add(&repo.Error{File: name, Message: "is no directory; symbolic links are not followed"})
			return o
		}
	}
	if r.kind(dir) == absent {
		return o
	}
	n := o.graph.directory(dir, true, reference{})
	if n == nil {
		return o
	}
	o.dir, o.file = dir, n.doc.File
	for _, p := range o.graph.patches {
		o.pods = o.pods || matchesPods(p.target)
	}
	for _, n := range o.graph.nodes {
		for _, r := range n.fields.Replacements {
			for _, t := range r.Targets {
				o.pods = o.pods || t != nil && matchesPods(t.Select)
			}
		}
		labelled := len(n.fields.Labels)+len(n.fields.CommonAnnotations) > 0
		o.adds = o.adds || labelled || n.own > 0
	}
	return o
}

// matchesPods says whether a selector can mean a Pod of ours.
func matchesPods(s *types.Selector) bool {
	if s == nil {
		return false
	}
	regex, err := types.NewSelectorRegex(s)
	if err != nil {
		return true
	}
	return regex.MatchGvk(podKind)
}
