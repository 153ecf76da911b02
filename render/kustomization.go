package render

import (
	"maps"
	"path"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	noSchema = "is refused: the schema that it changes is shared by all units; job kinds have theirs already"
	noPlugin = "is refused: it runs programs"
	noHelm   = "is refused: Helm charts are not rendered; commit what they render to"
)

// refusedFields of a kustomization, with the reason. What types.Kustomization
// does not know is refused as unknown.
var refusedFields = map[string]string{
	"openapi": noSchema, "crds": noSchema,
	"configurations": "is refused: the fields of job kinds are known already",
	"generators":     noPlugin, "transformers": noPlugin, "validators": noPlugin,
	"helmCharts": noHelm, "helmGlobals": noHelm, "helmChartInflationGenerator": noHelm,
	"secretGenerator": "is refused: secrets are never read from a repository; create the Secret in the cluster and name it in the job",
	"vars":            "is refused: kustomize has given it up; use replacements",
	"imageTags":       "is refused: kustomize has given it up; use images",
	"replicas":        "is refused: it changes Deployments and their like, never a job; patch the replicas of the job's role",
}

// decode checks the fields of a kustomization and brings it into the form that
// kustomize is given: only fields that are understood, patches inline.
func (g *graph) decode(n *node) {
	g.fields(n.doc, &n.fields, refusedFields)
	k := &n.fields
	g.header(n)
	// What only the top of a build may say, and we say it there.
	k.MetaData, k.BuildMetadata, k.SortOptions = nil, nil, nil
	n.listed = len(k.Resources)
	merge, json := modernize(k)
	g.normalizePatches(n, merge, json)
	g.normalizeReplacements(n)
	g.generators(n)
	n.changes = len(k.Patches) + len(k.Replacements) + len(k.Images) + len(k.Labels)
}

// fields decodes a document into a struct and reports every key and value that
// the struct does not know. Go's own decoders overlook a key's case.
func (g *graph) fields(doc *manifest.Document, into any, refused map[string]string) {
	v, err := content(doc.Root)
	object, ok := v.(map[string]any)
	switch {
	case err != nil:
		g.add(doc.Errorf("", "%s", err))
		return
	case !ok:
		g.add(doc.Errorf("", "want a map of fields"))
		return
	}
	for _, field := range slices.Sorted(maps.Keys(refused)) {
		if _, ok := object[field]; ok {
			g.add(doc.Errorf(field, "%s", refused[field]))
			delete(object, field)
		}
	}
	o := manifest.NewObject(object, doc, repo.Settings{})
	o.Decode("", into, manifest.Options{})
	g.add(o.Problems()...)
}

// header checks apiVersion and kind, both of which may be missing.
func (g *graph) header(n *node) {
	k := &n.fields
	want := types.KustomizationVersion
	switch k.Kind {
	case "", types.KustomizationKind:
		k.Kind = types.KustomizationKind
	case types.ComponentKind:
		want = types.ComponentVersion
	default:
		g.add(n.doc.Errorf("kind", "want %s or %s, not %q", types.KustomizationKind, types.ComponentKind, k.Kind))
	}
	if k.APIVersion != "" && k.APIVersion != want {
		g.add(n.doc.Errorf("apiVersion", "want %s, not %q", want, k.APIVersion))
	}
	k.APIVersion = want
}

// normalizeReplacements puts replacements that lie in files of their own in place.
func (g *graph) normalizeReplacements(n *node) {
	var all []types.ReplacementField
	for i, r := range n.fields.Replacements {
		field := manifest.Item("replacements", i)
		if r.Path == "" {
			all = append(all, r)
			g.checkReplacement(reference{n.doc, field}, r.Replacement)
			continue
		}
		name, ok := g.file(n, r.Path, reference{n.doc, field + ".path"})
		if !ok {
			continue
		}
		for _, d := range g.parse(name) {
			for _, part := range items(d) {
				var r types.Replacement
				g.fields(part, &r, nil)
				g.checkReplacement(reference{part, ""}, r)
				all = append(all, types.ReplacementField{Replacement: r})
			}
		}
	}
	n.fields.Replacements = all
}

// items are a document's list items as documents, or the document itself.
func items(d *manifest.Document) []*manifest.Document {
	if d.Root.Kind != yaml.SequenceNode {
		return []*manifest.Document{d}
	}
	var parts []*manifest.Document
	for _, n := range d.Root.Content {
		parts = append(parts, &manifest.Document{File: d.File, Line: n.Line, Root: n})
	}
	return parts
}

func (g *graph) checkReplacement(at reference, r types.Replacement) {
	g.replacements = append(g.replacements, replacement{at, r})
	if (r.Source == nil) == (r.SourceValue == nil) {
		g.at(at, "want either source or sourceValue")
	}
	if len(r.Targets) == 0 {
		g.at(at, "want targets")
	}
	for _, t := range r.Targets {
		if t == nil || t.Select == nil {
			g.at(at, "every target needs select")
			continue
		}
		g.checkSelector(at, t.Select)
	}
}

// checkSelector tries the expressions of a selector.
func (g *graph) checkSelector(at reference, s *types.Selector) {
	for _, e := range []struct{ field, text string }{
		{"group", s.Group}, {"version", s.Version}, {"kind", s.Kind}, {"name", s.Name}, {"namespace", s.Namespace},
	} {
		if _, err := regexp.Compile(e.text); err != nil {
			g.at(reference{at.doc, at.field + "." + e.field}, "%q is not a regular expression: %s", e.text, err)
		}
	}
	for _, e := range []struct{ field, text string }{{"labelSelector", s.LabelSelector}, {"annotationSelector", s.AnnotationSelector}} {
		if _, err := labels.Parse(e.text); err != nil {
			g.at(reference{at.doc, at.field + "." + e.field}, "%q is not a selector: %s", e.text, err)
		}
	}
}

// serve puts a checked kustomization where kustomize will find it.
func (g *graph) serve(n *node) {
	// Kustomize takes none that says nothing: an overlay that waits for its
	// first patch, as init writes it. Options that are empty change nothing.
	if n.fields.GeneratorOptions == nil {
		n.fields.GeneratorOptions = &types.GeneratorOptions{}
	}
	text, err := encode(n.fields)
	if err != nil {
		g.add(n.doc.Errorf("", "%s", err))
		return
	}
	g.served[path.Join(n.dir, kustomizationFiles[0])] = text
}
