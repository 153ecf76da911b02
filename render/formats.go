package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/render/manifest"
)

// formats are the kinds of job files that are read.
type formats []manifest.Format

// find is the format of a kind, or nil.
func (f formats) find(apiVersion, kind string) *manifest.Format {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	for i := range f {
		if slices.Contains(f[i].Kinds, gvk) {
			return &f[i]
		}
	}
	return nil
}

// objects are the kinds that go with a job.
var objects = [...]schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaimTemplate"},
}

// stands says whether a document is of a kind that goes with a job.
func stands(d *manifest.Document) bool {
	return slices.Contains(objects[:], schema.FromAPIVersionAndKind(d.APIVersion(), d.Kind()))
}

// refuse says why objects of a kind are not taken, or "".
func (f formats) refuse(apiVersion, kind string) string {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if f.find(apiVersion, kind) != nil || slices.Contains(objects[:], gvk) {
		return ""
	}
	switch {
	case kind == "Secret" && gvk.Group == "":
		return "secrets are never read from a repository: create the Secret in the cluster and name it in the job"
	case kind == "List" || strings.HasSuffix(kind, "List"):
		return "lists are not read: write each item as a document of its own, with --- between them"
	case gvk.Group == "trainer.kubeflow.org" && strings.HasSuffix(kind, "TrainingRuntime"):
		return "a runtime is an object of the cluster and not read from a repository: write what its template says as a JobSet"
	case kind == "CronJob" && gvk.Group == "batch":
		return "a CronJob is not read: write a TrainingJob with spec.schedule, which has its fields"
	case kind == "Kustomization" || kind == "Component":
		return fmt.Sprintf("a %s is read from a file named kustomization.yaml only", kind)
	}
	var kinds []string
	for _, known := range f.kinds() {
		if known.Kind == kind {
			return fmt.Sprintf("%s of apiVersion %q is not known; the apiVersion of %s is %s", kind, apiVersion, kind, f.versions(kind))
		}
		if !slices.Contains(kinds, known.Kind) {
			kinds = append(kinds, known.Kind)
		}
	}
	return fmt.Sprintf("%s %s is not a kind that is read%s (jobs are of kind %s; %s may stand beside them)",
		apiVersion, kind, manifest.Nearest(kind, kinds...), strings.Join(kinds[:len(kinds)-len(objects)], ", "), strings.Join(kinds[len(kinds)-len(objects):], ", "))
}

// kinds are those of the formats and then those that go with a job.
func (f formats) kinds() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, format := range f {
		all = append(all, format.Kinds...)
	}
	return append(all, objects[:]...)
}

func (f formats) versions(kind string) string {
	var list []string
	for _, k := range f.kinds() {
		if k.Kind == kind {
			list = append(list, k.GroupVersion().String())
		}
	}
	return strings.Join(list, " or ")
}
