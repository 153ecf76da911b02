package render

import (
	"slices"
	"strings"

	"github.com/trainyard/trainyard/render/manifest"
)

// restoreOrder puts lists that kustomize merged by name back into the order
// that their file has, with new items behind. Kustomize puts new items first,
// but the first container of a template is the one that a role is about, and
// a sidecar of an overlay must not take its place.
func restoreOrder(object map[string]any, source *manifest.Document, f *manifest.Format) {
	if source == nil {
		return
	}
	was, err := content(source.Root)
	if err != nil {
		return
	}
	by := sorter{"name"}
	for _, key := range f.MergeKeys {
		by = append(by, key)
	}
	for path, key := range f.MergeKeys {
		by.reorder(object, was, strings.Split(path, "."), key)
	}
	for _, template := range f.Templates {
		by.reorder(object, was, strings.Split(template+".spec.containers", "."), "name")
	}
}

// sorter are the keys by which items of lists are told apart.
type sorter []string

// reorder goes down a path like spec.roles[*].template in two values at once.
// Items of lists on the way belong together when they have the same name.
func (by sorter) reorder(is, was any, path []string, key string) {
	a, _ := is.(map[string]any)
	b, _ := was.(map[string]any)
	if a == nil || b == nil {
		return
	}
	name, each := strings.CutSuffix(path[0], "[*]")
	if !each && len(path) > 1 {
		by.reorder(a[name], b[name], path[1:], key)
		return
	}
	now, _ := a[name].([]any)
	before, _ := b[name].([]any)
	if len(path) == 1 {
		sortAs(now, before, key)
		return
	}
	for i, item := range now {
		if same := by.counterpart(item, before, i); same != nil {
			by.reorder(item, same, path[1:], key)
		}
	}
}

// counterpart is the item of the list that has the same name, or the same place.
func (by sorter) counterpart(item any, list []any, place int) any {
	for _, key := range by {
		value := keyOf(item, key)
		if value == "" {
			continue
		}
		for _, other := range list {
			if keyOf(other, key) == value {
				return other
			}
		}
		return nil
	}
	if place < len(list) {
		return list[place]
	}
	return nil
}

// sortAs gives a list the order of another, by a key; what only it has goes last.
func sortAs(list, as []any, key string) {
	place := make(map[string]int, len(as))
	for i, item := range as {
		if k := keyOf(item, key); k != "" {
			place[k] = i
		}
	}
	at := func(item any) int {
		if i, ok := place[keyOf(item, key)]; ok {
			return i
		}
		return len(as)
	}
	slices.SortStableFunc(list, func(a, b any) int { return at(a) - at(b) })
}

func keyOf(item any, key string) string {
	m, _ := item.(map[string]any)
	value, _ := m[key].(string)
	return value
}
