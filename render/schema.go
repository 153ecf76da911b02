package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// podTemplate is Kubernetes' own schema of a pod template: with it, containers,
// env, volumes and ports in our kinds merge as they do in a Pod.
const podTemplate = "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"

// maxCopied bounds what the copies of one JSON patch add to an object.
const maxCopied = 256 << 10

// warm is done once in a process, because kyaml's schema belongs to the
// process and not to a build.
var warm sync.Once

// Warm teaches kustomize the kinds of job files, so that patches merge their
// lists by key, and has it load its own schema. New calls it; a program may
// call it earlier, while it waits for something else.
func Warm() {
	warm.Do(func() {
		jsonpatch.AccumulatedCopySizeLimit = maxCopied
		if err := openapi.AddSchema(known().schema()); err != nil {
			panic(fmt.Sprintf("schema of job kinds: %v", err)) // made from constants
		}
		openapi.SchemaForResourceType(yaml.TypeMeta{APIVersion: "v1", Kind: "Pod"})
		definitions := openapi.Schema().Definitions
		maps.Copy(definitions[podSpec].Properties, definitions[sincePod].Properties)
	})
}

// podSpec is the pod of kustomize's own schema, which is that of Kubernetes
// 1.21; sincePod has what came since and merges by a key: without it, a patch
// that adds a resource claim would take away those that are there.
const (
	podSpec  = "io.k8s.api.core.v1.PodSpec"
	sincePod = "trainyard.PodSpec"
)

func sinceThatPod() *property {
	return &property{Type: "object", Properties: map[string]*property{
		"resourceClaims":  {Type: "array", Items: &property{Type: "object"}, Strategy: "merge,retainKeys", MergeKey: "name"},
		"schedulingGates": {Type: "array", Items: &property{Type: "object"}, Strategy: "merge", MergeKey: "name"},
	}}
}

// property is a part of an OpenAPI schema.
type property struct {
	Ref        string               `json:"$ref,omitempty"`
	Type       string               `json:"type,omitempty"`
	Properties map[string]*property `json:"properties,omitempty"`
	Items      *property            `json:"items,omitempty"`
	Strategy   string               `json:"x-kubernetes-patch-strategy,omitempty"`
	MergeKey   string               `json:"x-kubernetes-patch-merge-key,omitempty"`
	Kinds      []gvk                `json:"x-kubernetes-group-version-kind,omitempty"`
}

type gvk struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// schema is the OpenAPI document of all formats: where their pod templates are
// and by which keys their lists merge.
func (f formats) schema() []byte {
	definitions := map[string]*property{sincePod: sinceThatPod()}
	for _, format := range f {
		for _, k := range format.Kinds {
			root := &property{Type: "object", Kinds: []gvk{{k.Group, k.Version, k.Kind}}}
			for _, path := range format.Templates {
				*root.at(path) = property{Ref: podTemplate}
			}
			for path, key := range format.MergeKeys {
				list := root.at(path)
				list.Type, list.Strategy, list.MergeKey = "array", "merge", key
				list.item()
			}
			definitions[definition(k)] = root
		}
	}
	text, err := json.Marshal(map[string]any{"definitions": definitions})
	if err != nil {
		panic(err) // a tree of strings
	}
	return text
}

func definition(k schema.GroupVersionKind) string {
	return strings.Join([]string{"trainyard", k.Group, k.Version, k.Kind}, ".")
}

// at is the property at a path like spec.roles[*].template, made if missing.
func (p *property) at(path string) *property {
	for part := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(part, "[*]")
		if p.Properties == nil {
			p.Properties = map[string]*property{}
		}
		next := p.Properties[name]
		if next == nil {
			next = &property{Type: "object"}
			p.Properties[name] = next
		}
		if list {
			next = next.item()
		}
		p = next
	}
	return p
}

// item is what a list consists of.
func (p *property) item() *property {
	p.Type = "array"
	if p.Items == nil {
		p.Items = &property{Type: "object"}
	}
	return p.Items
}
