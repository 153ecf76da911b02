package render

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// dropHusks takes away pod templates that kustomize made only to hang labels or
// annotations on: a kind has more places for templates than a job uses, the more
// so in all its versions, a role may do without one, and a transformer that
// reaches all of them makes those that are missing.
func (f formats) dropHusks(object map[string]any) {
	for _, format := range f {
		if !slices.ContainsFunc(format.Kinds, func(k schema.GroupVersionKind) bool { return k.Kind == object["kind"] }) {
			continue
		}
		for _, t := range format.Templates {
			dropHusk(object, strings.Split(t, "."))
		}
	}
}

// dropHusk says whether it left nothing of a map.
func dropHusk(m map[string]any, path []string) (nothing bool) {
	key, _ := strings.CutSuffix(path[0], "[*]")
	v, ok := m[key]
	switch below, isMap := v.(map[string]any); {
	case !ok:
		return false
	case len(path) == 1:
		if !isMap || !isHusk(below) {
			return false
		}
		delete(m, key)
	case isMap: // where a list is missing, kustomize makes a map
		if !dropHusk(below, path[1:]) {
			return false
		}
		delete(m, key)
	default:
		items, _ := v.([]any)
		for _, item := range items {
			if below, ok := item.(map[string]any); ok {
				dropHusk(below, path[1:])
			}
		}
		return false
	}
	return len(m) == 0
}

// isHusk says whether a template has nothing but labels and annotations.
func isHusk(template map[string]any) bool {
	metadata, ok := template["metadata"].(map[string]any)
	if !ok || len(template) > 1 || len(metadata) == 0 {
		return false
	}
	for key := range metadata {
		if key != "labels" && key != "annotations" {
			return false
		}
	}
	return true
}
