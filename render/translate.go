package render

import (
	"regexp"
	"strconv"
	"strings"

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
	patches := u.patches
	if o.exists() {
		patches = append(append([]patch{}, patches...), o.graph.patches...)
	}
	at := *fallback
	switch {
	case noMatch.MatchString(text):
		id := noMatch.FindStringSubmatch(text)[1]
		at.Message = "the patch is for " + readableID(id) + ", which the unit does not have (patches see the names of before prefixes and suffixes)"
		place(&at, patches, func(p patch) bool {
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
			place(&at, patches, func(q patch) bool {
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
		place(&at, patches, func(p patch) bool { return p.copies > 0 })
	case twice.MatchString(text):
		m := twice.FindStringSubmatch(text)
		at.Message = readableID(m[1]+"/"+m[2]) + " is there twice"
		placeTwice(&at, u, m[2])
	default:
		at.Message = "kustomize: " + shortenTo(text, 500)
	}
	return &at
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
