package render

import (
	"encoding/json"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// section is a part of docs/formats.md: the kinds that it is about and the
// fields that have a row in its tables.
type section struct {
	title, parent string
	kinds, rows   []string
}

var (
	kindOnPage  = regexp.MustCompile("`([a-z0-9.-]+/v[a-z0-9]+ [A-Z][A-Za-z]+)`")
	fieldOnPage = regexp.MustCompile("`([^`]+)`")
)

func formatsPage(t *testing.T) (sections []*section) {
	text, err := os.ReadFile("../docs/formats.md")
	require.NoError(t, err)
	top, table := "", ""
	current := &section{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "## "):
			top, table = line[3:], ""
			current = &section{title: top}
			sections = append(sections, current)
		case strings.HasPrefix(line, "### "):
			table = ""
			current = &section{title: line[4:], parent: top}
			sections = append(sections, current)
		case strings.HasPrefix(line, "Kinds: "):
			for _, m := range kindOnPage.FindAllStringSubmatch(line, -1) {
				current.kinds = append(current.kinds, m[1])
			}
		case len(cells) < 3:
			table = ""
		case table == "":
			table = strings.TrimSpace(cells[1])
		case table == "field":
			for _, m := range fieldOnPage.FindAllStringSubmatch(cells[1], -1) {
				current.rows = append(current.rows, m[1])
			}
		}
	}
	return sections
}

// TestFormatsPage: every field of every format has its row in docs/formats.md,
// and no row is about a field that is not there.
func TestFormatsPage(t *testing.T) {
	sections := formatsPage(t)
	titles := map[string]bool{}
	for _, s := range sections {
		assert.False(t, titles[s.title], "two sections are called %s", s.title)
		titles[s.title] = true
	}
	used := map[string]map[string]bool{} // rows of a section that some format has
	var specs []reflect.Type             // whose fields stand in a section of their own
	for _, format := range known() {
		specs = append(specs, reflect.TypeOf(format.Spec))
	}
	for _, format := range known() {
		kind := func(i int) string { return format.Kinds[i].GroupVersion().String() + " " + format.Kinds[i].Kind }
		require.NotNil(t, format.Spec, kind(0))
		at := slices.IndexFunc(sections, func(s *section) bool { return slices.Contains(s.kinds, kind(0)) })
		if !assert.GreaterOrEqual(t, at, 0, "%s has no section", kind(0)) {
			continue
		}
		s := sections[at]
		for i := range format.Kinds {
			assert.Contains(t, s.kinds, kind(i), s.title)
		}
		assert.Len(t, s.kinds, len(format.Kinds), "%s: %v", s.title, s.kinds)
		spec := reflect.TypeOf(format.Spec)
		var rows []string
		for _, of := range sections {
			if of != s && of.title != s.parent {
				continue
			}
			rows = append(rows, of.rows...)
			if used[of.title] == nil {
				used[of.title] = map[string]bool{}
			}
			for _, row := range of.rows {
				if has(spec, strings.Split(row, ".")) {
					used[of.title][row] = true
				}
			}
		}
		for _, field := range leaves(spec, "", specs) {
			covered := slices.ContainsFunc(rows, func(row string) bool { return covers(row, field) })
			assert.True(t, covered, "%s: %s has no row", s.title, field)
		}
	}
	for _, s := range sections {
		for _, row := range s.rows {
			assert.True(t, used[s.title][row] || row == "metadata.name", "%s: %s is no field", s.title, row)
		}
	}
}

// covers says whether a row is about a field. A star in the row stands for a
// part of a name.
func covers(row, field string) bool {
	r, f := strings.Split(row, "."), strings.Split(field, ".")
	if len(r) > len(f) {
		return false
	}
	for i := range r {
		if !like(r[i], f[i]) {
			return false
		}
	}
	return len(r) == len(f)
}

func like(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "[]", "()"), strings.ReplaceAll(name, "[]", "()"))
	return ok && err == nil
}

var ownJSON = reflect.TypeFor[json.Unmarshaler]()

// structOfOurs says whether a type is a struct of this project, and its fields so part of the format.
func structOfOurs(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(ownJSON) && strings.HasPrefix(t.PkgPath(), "github.com/trainyard/")
}

// plain is the type of a value without pointers, and how its path goes on: [] for lists, .* for mappings.
func plain(t reflect.Type) (reflect.Type, string) {
	switch t.Kind() {
	case reflect.Pointer:
		return plain(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return t, ""
		}
		inner, suffix := plain(t.Elem())
		return inner, "[]" + suffix
	case reflect.Map:
		inner, suffix := plain(t.Elem())
		return inner, ".*" + suffix
	}
	return t, ""
}

// leaves are the paths of all fields that have no fields of ours below them;
// known are types that are not looked into.
func leaves(t reflect.Type, at string, known []reflect.Type) (paths []string) {
	for _, f := range fields(t) {
		inner, suffix := plain(f.Type)
		if structOfOurs(inner) && !slices.Contains(known, inner) {
			paths = append(paths, leaves(inner, at+f.Name+suffix+".", append(known, t))...)
			continue
		}
		paths = append(paths, at+f.Name)
	}
	return paths
}

// fields are those of a struct by their names in JSON, with those of embedded structs.
func fields(t reflect.Type) (all []reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			inner, _ := plain(f.Type)
			if !structOfOurs(inner) { // a volume of Kubernetes, as a whole
				f.Name = "*"
				all = append(all, f)
				continue
			}
			all = append(all, fields(inner)...)
		case name == "" || name == "-": // within a type of Kubernetes
		default:
			f.Name = name
			all = append(all, f)
		}
	}
	return all
}

// has says whether a path leads to a field.
func has(t reflect.Type, steps []string) bool {
	inner, suffix := plain(t)
	if suffix != "" && strings.HasPrefix(suffix, ".*") { // a key of a mapping
		return len(steps) == 0 || steps[0] == "*" && has(inner, steps[1:])
	}
	if len(steps) == 0 {
		return true
	}
	if inner.Kind() != reflect.Struct {
		return false
	}
	for _, f := range fields(inner) {
		next, suffix := plain(f.Type)
		lists := strings.Count(suffix, "[]")
		name := f.Name
		if strings.HasSuffix(steps[0], "[]") {
			name += strings.Repeat("[]", lists)
		}
		if !like(steps[0], name) {
			continue
		}
		rest := steps[1:]
		if strings.Contains(suffix, ".*") {
			if len(rest) == 0 {
				return true
			}
			if rest[0] != "*" && rest[0] != "*[]" {
				continue
			}
			rest = rest[1:]
		}
		if len(rest) == 0 || next.Kind() == reflect.Struct && has(next, rest) {
			return true
		}
	}
	return false
}
