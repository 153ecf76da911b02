package render

import (
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// remote matches what kustomize, and git below it, take for something that is
// not a file of this repository.
var remote = regexp.MustCompile(`(?i)(^[a-z][a-z0-9+.-]*::|://|^[^/]*@[^/]*:|^git@|^(www\.)?github\.com[/:]|^gh:|[?&](ref|version|timeout|submodules)=|^[a-z0-9.-]+:)`)

const maxPath = 1024

// plainPath joins a path that a kustomization names to the directory of that
// kustomization. Only plain relative paths that stay inside the repository
// pass; why is what is wrong with the others.
func plainPath(dir, ref string) (name, why string) {
	switch {
	case strings.TrimSpace(ref) == "":
		return "", "is empty"
	case len(ref) > maxPath:
		return "", "is longer than 1024 bytes"
	case !utf8.ValidString(ref) || strings.ContainsFunc(ref, unicode.IsControl):
		return "", "has characters that no path may have"
	case remote.MatchString(ref):
		return "", "is a URL or a Git address; only files of this repository are read: copy what it names into it"
	case strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "~"):
		return "", "is an absolute path; only relative paths inside this repository are read"
	case strings.ContainsAny(ref, `\:?*%"<>|`):
		return "", `has one of \ : ? * % " < > |, which no path here may have`
	case strings.Contains(ref, "//"):
		return "", "has an empty part (//)"
	case strings.Contains(ref, "github.com/"):
		return "", "looks like a Git address; only files of this repository are read"
	}
	name = path.Join(dir, ref)
	if name == ".." || strings.HasPrefix(name, "../") {
		return "", "leads out of the repository"
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return "", "leads into .git"
		}
	}
	return name, ""
}

// relative is the path from a directory to a name, both from the repository's
// root, in a form that can be taken for nothing but a path.
func relative(dir, name string) string {
	up := "./"
	for !inside(dir, name) {
		if up == "./" {
			up = ""
		}
		up += "../"
		dir = path.Dir(dir)
	}
	rest := strings.TrimPrefix(name, dir)
	if dir == "." {
		rest = name
	}
	rest = strings.TrimPrefix(rest, "/")
	if rest == "." {
		rest = ""
	}
	return strings.TrimSuffix(up+rest, "/")
}

// inside says whether a name is a directory or lies below it.
func inside(dir, name string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}
