package render

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// What kustomize says, and where in it the names are.
var (
	quotedDirectory = regexp.MustCompile(`accumulateDirectory: ("(?:[^"\\]|\\.)*")`)
	recursed        = regexp.MustCompile(`recursed (?:accumulation of|merging from) path '/?([^']*)': `)
	noMatch         = regexp.MustCompile(`no matches for Id ([^;\s]+)`)
	twice           = regexp.MustCompile(`(?:may not add resource with an already registered id|found multiple possible [a-z ]*): ([^\s/]+)/([^\s."']+)`)
	jsonPatchFails  = regexp.MustCompile(`(add|replace|remove|test|copy|move) operation does not apply: (.*)`)
	pointerIn       = regexp.MustCompile(`(?:path|key):? "?(/[^"\s:]*)`)
	copyLimit       = regexp.MustCompile(`Unable to complete the copy`)
	generated       = regexp.MustCompile(`merging from generator .*\bName:"([^"]*)".* (exists|does not exist);`)
	selectsNothing  = regexp.MustCompile(`nothing selected by (\S+)`)
	noField         = regexp.MustCompile(`unable to find field "([^"]*)" in replacement target`)
	headless        = regexp.MustCompile(`missing (kind|metadata\.name) in object`)
	otherNode       = regexp.MustCompile(`(?:wrong node kind: )?expected (\w+?)(?:Node)? (?:but|node but|, but)? ?got (\w+?)(?:Node)?\b`)
	ours            = regexp.MustCompile(`0x[0-9a-f]{6,}|(?:internal\.config\.kubernetes\.io|trainyard\.dev)/[^\s\]]+`)
	blanks          = regexp.MustCompile(`\s+`)
)

// translate says where an error of kustomize is, which names neither file nor
// line, in the words of the person who wrote it.
func translate(err error, u *graph, o *overlay, fallback *repo.Error) *repo.Error {
	text := err.Error()
	for {
		m := quotedDirectory.FindStringSubmatch(text)
		if m == nil {
			break
		}
		inner, unquoteErr := strconv.Unquote(m[1])
		if unquoteErr != nil {
			break
		}
		text = inner
	}
	if all := recursed.FindAllStringIndex(text, -1); all != nil {
		text = text[all[len(all)-1][1]:]
	}
	at := *fallback
	if !fromPatches(&at, text, allPatches(u, o)) && !fromFields(&at, text, u, o) {
		text = ours.ReplaceAllString(text, "…") // an address differs each time
		at.Message = "kustomize: " + shortenTo(blanks.ReplaceAllString(text, " "), 500)
	}
	return &at
}

func allPatches(u *graph, o *overlay) []patch {
	if !o.exists() {
		return u.patches
	}
	return append(append([]patch{}, u.patches...), o.graph.patches...)
}

// fromPatches translates an error of a patch.
func fromPatches(at *repo.Error, text string, patches []patch) bool {
	only := func(patch) bool { return len(patches) == 1 }
	switch {
	case noMatch.MatchString(text):
		id := noMatch.FindStringSubmatch(text)[1]
		at.Message = "the patch is for " + readableID(id) + ", which the unit does not have (patches see the names of before prefixes and suffixes)"
		place(at, patches, func(p patch) bool {
			for _, object := range p.objects {
				if p.target == nil && object.String() == id {
					return true
				}
			}
			return false
		})
	case jsonPatchFails.MatchString(text):
		m := jsonPatchFails.FindStringSubmatch(text)
		at.Message = "the JSON patch does not fit: " + m[1] + ": " + strings.TrimSuffix(m[2], ": missing value")
		if p := pointerIn.FindStringSubmatch(m[2]); p != nil {
			place(at, patches, func(q patch) bool {
				for _, operation := range q.operations {
					if operation == p[1] || strings.HasSuffix(operation, p[1]) {
						return true
					}
				}
				return false
			})
		}
	case copyLimit.MatchString(text):
		at.Message = "a JSON patch copies too much"
		place(at, patches, func(p patch) bool { return p.copies > 0 })
	case headless.MatchString(text):
		at.Message = "a patch leaves an object without " + headless.FindStringSubmatch(text)[1]
		place(at, patches, only)
	case otherNode.MatchString(text) && len(patches) > 0:
		m := otherNode.FindStringSubmatch(text)
		at.Message = "a patch does not fit: it has " + nodeKind(m[2]) + " where the object has " + nodeKind(m[1]) + ", or the other way round"
		place(at, patches, only)
	default:
		return false
	}
	return true
}

// nodeKind is what a person calls a kind of YAML node.
func nodeKind(name string) string {
	switch strings.ToLower(name) {
	case "sequence":
		return "a list"
	case "mapping":
		return "a map"
	}
	return "a single value"
}

// fromFields translates an error of another field of a kustomization.
func fromFields(at *repo.Error, text string, u *graph, o *overlay) bool {
	graphs := []*graph{u}
	if o.exists() {
		graphs = append(graphs, o.graph)
	}
	switch {
	case twice.MatchString(text):
		m := twice.FindStringSubmatch(text)
		at.Message = readableID(m[1]+"/"+m[2]) + " is there twice"
		placeTwice(at, u, m[2])
	case generated.MatchString(text):
		m := generated.FindStringSubmatch(text)
		at.Message = "ConfigMap " + strconv.Quote(m[1]) + " is there already; to add to it or to replace it, give behavior: merge or replace"
		if m[2] != "exists" {
			at.Message = "there is no ConfigMap " + strconv.Quote(m[1]) + " yet that could be merged with or replaced"
		}
		placeGenerator(at, graphs, m[1])
	case selectsNothing.MatchString(text):
		id := selectsNothing.FindStringSubmatch(text)[1]
		at.Message = "the replacement's source selects nothing"
		placeReplacement(at, graphs, func(r types.Replacement) bool { return r.Source != nil && r.Source.ResId.String() == id })
	case noField.MatchString(text):
		field := noField.FindStringSubmatch(text)[1]
		at.Message = "the replacement's target has no field " + strconv.Quote(field) + " (options: {create: true} makes it)"
		placeReplacement(at, graphs, func(r types.Replacement) bool {
			return slices.ContainsFunc(r.Targets, func(t *types.TargetSelector) bool { return slices.Contains(t.FieldPaths, field) })
		})
	default:
		return false
	}
	return true
}

// placeGenerator moves a problem to the last generator of a name, in the order of directories.
func placeGenerator(e *repo.Error, graphs []*graph, name string) {
	for _, g := range graphs {
		for _, dir := range slices.Sorted(maps.Keys(g.nodes)) {
			n := g.nodes[dir]
			for i := range n.fields.ConfigMapGenerator {
				if n.fields.ConfigMapGenerator[i].Name == name {
					*e = *n.doc.Errorf(manifest.Item("configMapGenerator", i), "%s", e.Message)
				}
			}
		}
	}
}

// placeReplacement moves a problem to the replacement that it is with.
func placeReplacement(e *repo.Error, graphs []*graph, is func(types.Replacement) bool) {
	for _, g := range graphs {
		for _, r := range g.replacements {
			if is(r.of) {
				*e = *r.at.doc.Errorf(r.at.field, "%s", e.Message)
				return
			}
		}
	}
}

// place moves a problem to the patch that it is with.
func place(e *repo.Error, patches []patch, is func(patch) bool) {
	for _, p := range patches {
		if is(p) {
			found := p.at.doc.Errorf(p.at.field, "%s", e.Message)
			*e = *found
			return
		}
	}
}

// placeTwice moves a problem to the second of two objects of the same name.
func placeTwice(e *repo.Error, u *graph, name string) {
	var found *repo.Error
	for _, d := range u.sources {
		if d.Name() != name {
			continue
		}
		here := d.Errorf("metadata.name", "%s", e.Message)
		if found == nil || here.File > found.File || here.File == found.File && here.Line > found.Line {
			found = here
		}
	}
	if found != nil {
		*e = *found
	}
}

// readableID writes Kind.version.group/name.namespace as a person would.
func readableID(id string) string {
	kind, name, _ := strings.Cut(id, "/")
	kind, _, _ = strings.Cut(kind, ".")
	name = strings.TrimSuffix(name, ".[noNs]")
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	return kind + " " + strconv.Quote(name)
}

func shortenTo(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
