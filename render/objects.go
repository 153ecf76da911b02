package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// sourceAnnotation carries an object's document through a build, for the
// positions of its problems. No pod and no digest has it.
const sourceAnnotation = "trainyard.dev/source"

// object checks one document that is to be built and gives its JSON for kustomize.
func (g *graph) object(d *manifest.Document, index int) (string, []*repo.Error) {
	problems := d.CheckObject()
	if len(problems) > 0 {
		return "", problems
	}
	if why := g.formats.refuse(d.APIVersion(), d.Kind()); why != "" {
		return "", []*repo.Error{d.Errorf("kind", "%s", why)}
	}
	if d.Name() == "" {
		return "", []*repo.Error{d.Errorf("metadata.name", "required: a job's name is part of its identity")}
	}
	key := fmt.Sprintf("%s#%d", d.File, index)
	v, err := content(d.Root)
	if err != nil {
		return "", []*repo.Error{d.Errorf("", "%s", err)}
	}
	object := v.(map[string]any)
	if problems := checkMetadata(d, object); len(problems) > 0 {
		return "", problems
	}
	mark(object, key)
	text, err := encode(object)
	if err != nil {
		return "", []*repo.Error{d.Errorf("", "%s", err)}
	}
	g.sources[key] = d
	return string(text), nil
}

func mark(object map[string]any, source string) {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[sourceAnnotation] = source
}

// unmark takes the mark away again and says what it was.
func unmark(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	source, _ := annotations[sourceAnnotation].(string)
	delete(annotations, sourceAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	return source
}

// checkMetadata refuses labels and annotations that are no text, and
// annotations that would make kustomize do more than build: run functions, or
// trust marks of its own.
func checkMetadata(d *manifest.Document, object map[string]any) []*repo.Error {
	var problems []*repo.Error
	metadata, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		at := "metadata." + field
		values, ok := metadata[field].(map[string]any)
		if !ok && metadata[field] != nil {
			problems = append(problems, d.Errorf(at, "want a map of texts"))
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, ok := values[key].(string); !ok {
				problems = append(problems, d.WantText(manifest.Join(at, key)))
			}
			if field == "annotations" && reserved(key) {
				problems = append(problems, d.Errorf(manifest.Join(at, key), "annotation %s is refused: functions are not run, and kustomize's own marks are not taken from files", key))
			}
		}
	}
	if _, ok := metadata["namespace"].(string); !ok && metadata["namespace"] != nil {
		problems = append(problems, d.WantText("metadata.namespace"))
	}
	return problems
}

func reserved(annotation string) bool {
	prefix, name, _ := strings.Cut(annotation, "/")
	switch prefix {
	case "internal.config.kubernetes.io", "alpha.config.kubernetes.io", "config.kubernetes.io", "config.k8s.io":
		return name != "local-config"
	}
	return false
}
