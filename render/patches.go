package render

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// Bounds of JSON patches, whose copies can double an object each time.
const (
	maxOperations = 2000
	maxCopies     = 4
)

// patch is what a patch does, for problems that kustomize finds with it.
type patch struct {
	at     reference
	target *types.Selector
	// objects are what a strategic merge patch is for, when it has no target.
	objects    []resid.ResId
	operations []string // the paths of a JSON patch
	copies     int
}

// replacement is one that was checked, for problems that kustomize finds with it.
type replacement struct {
	at reference
	of types.Replacement
}

// operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// normalizePatches turns every way of writing patches into one: inline, as
// JSON, in kustomize's own order.
func (g *graph) normalizePatches(n *node, merge []string, json []types.Patch) {
	var all []types.Patch
	for i, text := range merge {
		at := reference{n.doc, manifest.Item("patchesStrategicMerge", i)}
		inline := types.Patch{Path: text}
		if strings.ContainsAny(text, "\n{") {
			inline = types.Patch{Patch: text}
		}
		all = g.patch(all, n, at, inline)
	}
	for i, p := range n.fields.Patches {
		all = g.patch(all, n, reference{n.doc, manifest.Item("patches", i)}, p)
	}
	for i, p := range json {
		all = g.patch(all, n, reference{n.doc, manifest.Item("patchesJson6902", i)}, p)
	}
	n.fields.Patches = all
}

// patch checks one patch and appends it to what kustomize is given.
func (g *graph) patch(all []types.Patch, n *node, at reference, p types.Patch) []types.Patch {
	before := len(g.problems)
	docs := g.patchDocuments(n, at, p)
	if len(g.problems) > before {
		return all
	}
	known := patch{at: at, target: p.Target}
	if p.Target != nil {
		g.checkSelector(reference{at.doc, at.field + ".target"}, p.Target)
	} else if g.overlay {
		g.at(at, "a patch of an environment's overlay needs a target, because the overlay is applied to every unit: target: {kind: TrainingJob}, or for the pods {kind: Pod, labelSelector: %s=worker}", repo.LabelRole)
	}
	var text string
	if len(docs) == 1 && docs[0].Root.Kind == yaml.SequenceNode {
		text = g.jsonPatch(docs[0], at, &known)
	} else {
		text = g.mergePatch(docs, at, &known)
	}
	if len(g.problems) > before {
		return all
	}
	g.patches = append(g.patches, known)
	return append(all, types.Patch{Patch: text, Target: p.Target, Options: p.Options})
}

// patchDocuments reads a patch, from its file or from the kustomization.
func (g *graph) patchDocuments(n *node, at reference, p types.Patch) []*manifest.Document {
	switch {
	case (p.Path == "") == (p.Patch == ""):
		g.at(at, "want either path or patch")
	case p.Path != "":
		field := at.field
		if strings.HasPrefix(field, "patches[") || strings.HasPrefix(field, "patchesJson") {
			field += ".path"
		}
		if name, ok := g.file(n, p.Path, reference{at.doc, field}); ok {
			docs := g.parse(name)
			if docs != nil && len(docs) == 0 {
				g.add(&repo.Error{File: name, Line: 1, Message: "the patch is empty"})
			}
			return docs
		}
	default:
		docs, problems := manifest.Parse(n.doc.File, []byte(p.Patch))
		for _, e := range problems {
			g.at(at, "line %d of the patch: %s", e.Line, e.Message)
		}
		if len(problems) == 0 && len(docs) == 0 {
			g.at(at, "the patch is empty")
		}
		return docs
	}
	return nil
}

// where a problem of a patch's document is: in its own file, or, for an inline
// patch, in the kustomization.
func (g *graph) patchProblem(d *manifest.Document, at reference, field, format string, args ...any) {
	if d.File != at.doc.File {
		g.add(d.Errorf(field, format, args...))
		return
	}
	line, _ := d.Position(field)
	g.at(at, "line %d of the patch: %s", line, fmt.Sprintf(format, args...))
}

// mergePatch checks a strategic merge patch.
func (g *graph) mergePatch(docs []*manifest.Document, at reference, known *patch) string {
	if known.target != nil && len(docs) > 1 {
		g.at(at, "a patch with a target is one document, found %d", len(docs))
		return ""
	}
	var texts []string
	for _, d := range docs {
		v, err := content(d.Root)
		if err != nil {
			g.patchProblem(d, at, "", "%s", err)
			continue
		}
		object, ok := v.(map[string]any)
		if !ok || d.APIVersion() == "" || d.Kind() == "" || d.Name() == "" {
			g.patchProblem(d, at, "", "a merge patch needs apiVersion, kind and metadata.name (with a target, their values do not matter), and a JSON patch is a list of operations")
			continue
		}
		for _, e := range checkMetadata(d, object) {
			g.patchProblem(d, at, e.Field, "%s: %s", e.Field, e.Message)
		}
		text, err := encode(object)
		if err != nil {
			g.patchProblem(d, at, "", "%s", err)
			continue
		}
		group, version := resid.ParseGroupVersion(d.APIVersion())
		known.objects = append(known.objects, resid.NewResIdWithNamespace(resid.NewGvk(group, version, d.Kind()), d.Name(), d.Namespace()))
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "---\n")
}

// jsonPatch checks a JSON patch.
func (g *graph) jsonPatch(d *manifest.Document, at reference, known *patch) string {
	if known.target == nil && !g.overlay {
		g.at(at, "a JSON patch needs a target")
	}
	before := len(g.problems)
	for i, part := range items(d) {
		var o operation
		inner := &graph{}
		inner.fields(part, &o, nil)
		for _, e := range inner.problems {
			g.patchProblem(d, at, manifest.Item("", i), "operation %d: %s: %s", i, e.Field, e.Message)
		}
		if why := o.wrong(); len(inner.problems) == 0 && why != "" {
			g.patchProblem(d, at, manifest.Item("", i), "operation %d: %s", i, why)
		}
		known.operations = append(known.operations, o.Path)
		if o.Op == "copy" {
			known.copies++
		}
	}
	total, copies := len(known.operations), known.copies
	for _, p := range g.patches {
		total, copies = total+len(p.operations), copies+p.copies
	}
	if total > maxOperations || copies > maxCopies {
		g.at(at, "too many operations: at most %d, and %d of them copies, are taken in JSON patches", maxOperations, maxCopies)
	}
	if len(g.problems) > before {
		return ""
	}
	v, err := content(d.Root)
	if err != nil {
		g.patchProblem(d, at, "", "%s", err)
		return ""
	}
	text, err := encode(v)
	if err != nil {
		g.patchProblem(d, at, "", "%s", err)
	}
	return string(text)
}

// wrong says what is wrong with an operation, or "".
func (o operation) wrong() string {
	pointer := func(s string) bool { return s == "" || strings.HasPrefix(s, "/") }
	switch o.Op {
	case "add", "replace", "remove", "test":
	case "copy", "move":
		if !pointer(o.From) {
			return fmt.Sprintf("from must begin with /, not %q", o.From)
		}
	default:
		return fmt.Sprintf("op must be add, replace, remove, test, copy or move, not %q", o.Op)
	}
	if !pointer(o.Path) {
		return fmt.Sprintf("path must begin with /, not %q", o.Path)
	}
	if o.Path == "" && o.Op != "test" {
		return "path is empty, which is the whole object: name a field of it, as in /spec"
	}
	return ""
}
