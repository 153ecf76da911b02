package render

import (
	"path"
	"strings"

	"github.com/trainyard/trainyard/render/manifest"
)

// configurationFile tells kustomize where job kinds hold names of other
// objects, labels and annotations. It lies beside a kustomization, in the file
// system of a build only.
const configurationFile = ".trainyard-configuration.json"

// fieldSpec is where kustomize finds a field.
type fieldSpec struct {
	Group  string `json:"group,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Path   string `json:"path"`
	Create bool   `json:"create,omitempty"`
}

type nameReference struct {
	Group      string      `json:"group,omitempty"`
	Version    string      `json:"version"`
	Kind       string      `json:"kind"`
	FieldSpecs []fieldSpec `json:"fieldSpecs"`
}

type configuration struct {
	NameReference     []nameReference `json:"nameReference"`
	CommonLabels      []fieldSpec     `json:"commonLabels"`
	TemplateLabels    []fieldSpec     `json:"templateLabels"`
	CommonAnnotations []fieldSpec     `json:"commonAnnotations"`
}

// references to other objects, from a pod's spec.
var references = map[string][]string{
	"ConfigMap": {
		"volumes/configMap/name", "volumes/projected/sources/configMap/name",
		"containers/env/valueFrom/configMapKeyRef/name", "containers/envFrom/configMapRef/name",
		"initContainers/env/valueFrom/configMapKeyRef/name", "initContainers/envFrom/configMapRef/name",
	},
	"PersistentVolumeClaim": {"volumes/persistentVolumeClaim/claimName"},
	"ResourceClaimTemplate": {"resourceClaims/resourceClaimTemplateName"},
}

// configuration of the kinds that are given; nil when it would say nothing.
func (f formats) configuration(kinds map[string]bool) ([]byte, error) {
	var c configuration
	refs := map[string][]fieldSpec{}
	for _, format := range f {
		for _, k := range format.Kinds {
			if !kinds[k.Kind] {
				continue
			}
			for _, t := range format.Templates {
				template := strings.ReplaceAll(strings.ReplaceAll(t, "[*]", ""), ".", "/")
				at := func(below string, create bool) fieldSpec {
					return fieldSpec{Group: k.Group, Kind: k.Kind, Path: path.Join(template, below), Create: create}
				}
				c.CommonLabels = append(c.CommonLabels, at("metadata/labels", true))
				c.TemplateLabels = append(c.TemplateLabels, at("metadata/labels", true))
				c.CommonAnnotations = append(c.CommonAnnotations, at("metadata/annotations", true))
				for kind, below := range references {
					for _, b := range below {
						refs[kind] = append(refs[kind], at("spec/"+b, false))
					}
					if strings.HasPrefix(below[0], "volumes/") { // a role's own, where the format has them
						refs[kind] = append(refs[kind], at("../"+below[0], false))
					}
				}
			}
		}
	}
	if len(c.CommonLabels) == 0 {
		return nil, nil
	}
	for _, k := range objects {
		if refs[k.Kind] != nil {
			c.NameReference = append(c.NameReference, nameReference{Group: k.Group, Version: k.Version, Kind: k.Kind, FieldSpecs: refs[k.Kind]})
		}
	}
	return encode(c)
}

// kinds of the documents that a graph builds.
func kinds(sources map[string]*manifest.Document) map[string]bool {
	m := map[string]bool{}
	for _, d := range sources {
		m[d.Kind()] = true
	}
	return m
}
