package render

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// Bounds of one build. Directories that are reached on several ways count for
// each of them: that is how few small files become a build without end.
const (
	maxBuilds  = 64
	maxObjects = 256
	// maxWork bounds objects times what is done to each of them.
	maxWork = 20000
)

// graph is all that a build may read, checked before kustomize sees it: the
// kustomizations that are reached from one directory, and their files.
type graph struct {
	reader  *reader
	formats formats
	// overlay is set for the environment's overlay: it is applied to every
	// unit, so its patches have to say what they are for.
	overlay      bool
	served       map[string][]byte // what kustomize is given, by path
	sources      map[string]*manifest.Document
	nodes        map[string]*node
	contents     map[string]resource
	patches      []patch
	replacements []replacement
	problems     []*repo.Error
}

// node is one directory with a kustomization.
type node struct {
	dir      string
	doc      *manifest.Document
	fields   types.Kustomization
	children []*node
	listed   int  // of its resources, those named under resources and not under bases
	open     bool // its children are being looked at
	own      int  // objects of its own files and generators
	changes  int  // patches and other things done to every object

	// With everything below, counted as often as it is reached.
	builds, objects, work int
}

// resource is a checked file of objects.
type resource struct {
	documents int
	ok        bool
}

func newGraph(r *reader, f formats) *graph {
	return &graph{
		reader: r, formats: f,
		served: map[string][]byte{}, sources: map[string]*manifest.Document{}, nodes: map[string]*node{}, contents: map[string]resource{},
	}
}

func (g *graph) add(e ...*repo.Error) { g.problems = append(g.problems, e...) }

// reference is where a path is named, for problems with it.
type reference struct {
	doc   *manifest.Document
	field string
}

func (g *graph) at(r reference, format string, args ...any) {
	g.add(r.doc.Errorf(r.field, format, args...))
}

// directory checks a directory with a kustomization and all that it refers to.
// nil means that there was a problem.
func (g *graph) directory(dir string, component bool, from reference) *node {
	if n := g.nodes[dir]; n != nil {
		if n.open {
			g.at(from, "%q is a cycle: it is built from itself", dir)
			return nil
		}
		return g.asked(n, component, from)
	}
	if len(g.nodes) >= maxBuilds {
		g.at(from, "more than %d directories are built into one unit", maxBuilds)
		return nil
	}
	n := &node{dir: dir, open: true}
	g.nodes[dir] = n
	defer func() { n.open = false }()
	if n.doc = g.kustomization(dir, from); n.doc == nil {
		return nil
	}
	before := len(g.problems)
	g.decode(n)
	g.references(n)
	n.sum()
	if n.builds > maxBuilds || n.objects > maxObjects || n.work > maxWork {
		g.add(n.doc.Errorf("", "the unit is too large: more than %d directories, %d objects or %d changes to objects are built into it, counting each as often as it is used", maxBuilds, maxObjects, maxWork))
	}
	if len(g.problems) > before {
		return nil
	}
	g.serve(n)
	return g.asked(n, component, from)
}

func (g *graph) asked(n *node, component bool, from reference) *node {
	switch is := n.fields.Kind == types.ComponentKind; {
	case n.doc == nil:
		return nil
	case component && !is:
		if g.overlay && from.doc == nil {
			g.add(n.doc.Errorf("kind", "an environment's overlay is applied to every unit, so it must be a Component: write \"apiVersion: %s\" and \"kind: %s\"", types.ComponentVersion, types.ComponentKind))
		} else {
			g.at(from, "%q is no Component, but a Kustomization: name it under resources", n.dir)
		}
		return nil
	case !component && is && from.doc == nil:
		g.add(n.doc.Errorf("kind", "a Component is no unit of its own; another kustomization names it under components"))
		return nil
	case !component && is:
		g.at(from, "%q is a Component: name it under components", n.dir)
		return nil
	}
	return n
}

// sum counts what a build of the node does.
func (n *node) sum() {
	n.builds, n.objects = 1, n.own
	for _, c := range n.children {
		n.builds, n.objects, n.work = capped(n.builds+c.builds), capped(n.objects+c.objects), capped(n.work+c.work)
	}
	n.work = capped(n.work + n.objects*(1+n.changes))
}

func capped(n int) int { return min(n, 1<<30) }

// kustomization reads the directory's kustomization file; nil after a problem.
func (g *graph) kustomization(dir string, from reference) *manifest.Document {
	var found []string
	for _, name := range kustomizationFiles {
		if g.reader.kind(path.Join(dir, name)) == regular {
			found = append(found, path.Join(dir, name))
		}
	}
	switch {
	case len(found) == 0 && from.doc == nil:
		g.add(&repo.Error{File: dir, Message: "there is no kustomization.yaml in it"})
		return nil
	case len(found) == 0:
		g.at(from, "directory %q has no kustomization.yaml", dir)
		return nil
	case len(found) > 1:
		g.add(&repo.Error{File: found[1], Message: fmt.Sprintf("the directory has a %s too; only one of them can hold", path.Base(found[0]))})
		return nil
	}
	docs := g.parse(found[0])
	if docs == nil {
		return nil
	}
	switch {
	case len(docs) == 0:
		g.add(&repo.Error{File: found[0], Line: 1, Message: "the file is empty; a kustomization is a map of fields, resources among them"})
		return nil
	case len(docs) > 1:
		g.add(&repo.Error{File: found[0], Line: 1, Message: fmt.Sprintf("a kustomization is one document, found %d", len(docs))})
		return nil
	}
	return docs[0]
}

// parse reads and checks a YAML file; nil after a problem, which is reported.
func (g *graph) parse(name string) []*manifest.Document {
	data, err := g.reader.file(name)
	if err != nil {
		g.add(&repo.Error{File: name, Message: err.Error()})
		return nil
	}
	docs, problems := manifest.Parse(name, data)
	g.add(problems...)
	if errs, _ := repo.Split(problems); len(errs) > 0 {
		return nil
	}
	if docs == nil {
		docs = []*manifest.Document{}
	}
	return docs
}

// path checks a path that a kustomization names, and looks what is there.
func (g *graph) path(n *node, ref string, from reference) (string, kind) {
	name, why := plainPath(n.dir, ref)
	if why != "" {
		g.at(from, "%q %s", shorten(ref), why)
		return "", absent
	}
	k := g.reader.kind(name)
	switch {
	case k == absent:
		g.at(from, "%q: no such file or directory in this repository (symbolic links are not followed)", shorten(ref))
		return "", absent
	case k == directory && inside(name, n.dir):
		g.at(from, "%q is a cycle: it is the directory of this file, or one above it", shorten(ref))
		return "", absent
	case k == regular && !inside(n.dir, name):
		g.at(from, "%q lies outside of the directory of this kustomization, which kustomize does not allow: give its directory a kustomization and name that", shorten(ref))
		return "", absent
	}
	return name, k
}

// file checks a path that must be a file.
func (g *graph) file(n *node, ref string, from reference) (string, bool) {
	name, k := g.path(n, ref, from)
	if k == directory {
		g.at(from, "%q is a directory; want a file", shorten(ref))
	}
	return name, k == regular
}

// references checks all that a kustomization names: resources and components.
func (g *graph) references(n *node) {
	for i, ref := range n.fields.Resources {
		from := reference{n.doc, manifest.Item("resources", i)}
		if i >= n.listed {
			from.field = manifest.Item("bases", i-n.listed)
		}
		name, k := g.path(n, ref, from)
		switch k {
		case directory:
			if c := g.directory(name, false, from); c != nil {
				n.children = append(n.children, c)
				n.fields.Resources[i] = relative(n.dir, name)
			}
		case regular:
			n.own += g.resources(name)
			n.fields.Resources[i] = relative(n.dir, name)
		}
	}
	for i, ref := range n.fields.Components {
		from := reference{n.doc, manifest.Item("components", i)}
		name, k := g.path(n, ref, from)
		switch k {
		case regular:
			g.at(from, "%q is a file; a component is a directory", shorten(ref))
		case directory:
			if c := g.directory(name, true, from); c != nil {
				n.children = append(n.children, c)
				n.fields.Components[i] = relative(n.dir, name)
			}
		}
	}
}

// resources checks a file of objects and returns their number.
func (g *graph) resources(name string) int {
	if r, ok := g.contents[name]; ok {
		return r.documents
	}
	docs := g.parse(name)
	r := resource{documents: len(docs), ok: docs != nil}
	var texts []string
	for i, d := range docs {
		text, problems := g.object(d, i)
		g.add(problems...)
		texts = append(texts, text)
	}
	if docs != nil && len(docs) == 0 {
		g.add(&repo.Error{File: name, Line: 1, Message: "the file is empty"})
	}
	g.served[name] = []byte(strings.Join(texts, "---\n"))
	g.contents[name] = r
	return r.documents
}

var userInfo = regexp.MustCompile(`://[^/@\s]*@`)

// shorten cuts what a message quotes, and leaves out the password of a URL.
func shorten(s string) string {
	s = userInfo.ReplaceAllString(s, "://…@")
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
