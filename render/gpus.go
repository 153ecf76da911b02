package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// gpusField is what the settings say of devices.
type gpusField struct {
	// Rename gives resources of containers other names, in every job.
	Rename map[string]string `json:"rename"`
}

func (f *gpusField) read(o *manifest.Object) map[corev1.ResourceName]corev1.ResourceName {
	var names map[corev1.ResourceName]corev1.ResourceName
	for _, from := range slices.Sorted(maps.Keys(f.Rename)) {
		to, at := f.Rename[from], manifest.Join("gpus.rename", from)
		switch {
		case !ofVendor(from):
			o.Errorf(at, "%q is no name of a vendor's resource, as alpha.kubernetes.io/nvidia-gpu is", shorten(from))
		case !ofVendor(to) || strings.Contains(to, "kubernetes.io/") && !repo.IsGPU(corev1.ResourceName(to)):
			o.Errorf(at, "%q is no name of a vendor's resource, as nvidia.com/gpu is", shorten(to))
		case f.Rename[to] != "":
			o.Errorf(at, "%s is renamed itself: name the last of them", to)
		default:
			if names == nil {
				names = map[corev1.ResourceName]corev1.ResourceName{}
			}
			names[corev1.ResourceName(from)] = corev1.ResourceName(to)
		}
	}
	return names
}

func ofVendor(name string) bool {
	return strings.Contains(name, "/") && len(validation.IsQualifiedName(name)) == 0
}

// renameAccelerators has an operator's configuration speak of resources as
// containers do. What it has for the new name already stays as it is.
func renameAccelerators(s *repo.Settings) {
	for _, from := range slices.Sorted(maps.Keys(s.Rename)) {
		a, ok := s.Accelerators[string(from)]
		if _, there := s.Accelerators[string(s.Rename[from])]; ok && !there {
			s.Accelerators[string(s.Rename[from])] = a
		}
		delete(s.Accelerators, string(from))
	}
}

// renamed are those of the names that a document has as keys: a part of what runs.
func renamed(document any, names map[corev1.ResourceName]corev1.ResourceName) map[string]string {
	found := map[string]string{}
	var look func(any)
	look = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, below := range v {
				if to, ok := names[corev1.ResourceName(k)]; ok {
					found[k] = string(to)
				}
				look(below)
			}
		case []any:
			for _, item := range v {
				look(item)
			}
		}
	}
	if len(names) > 0 {
		look(document)
	}
	return found
}

// unknownClass warns of a GPU class that the environment's overlay does not
// know, while it knows others: pods of it could run on any GPU. An overlay that
// knows none has no classes.
func (o *overlay) unknownClass(job *repo.Job, role *repo.Role, source *manifest.Document) *repo.Error {
	class, ok := role.Template.Labels[repo.LabelGPUClass]
	if !ok || !o.exists() {
		return nil
	}
	var known []string
	for _, p := range o.graph.patches {
		if p.target == nil {
			continue
		}
		selector, err := labels.Parse(p.target.LabelSelector)
		if err != nil {
			continue
		}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			if r.Key() != repo.LabelGPUClass || r.Operator() == selection.NotIn || r.Operator() == selection.NotEquals || r.Operator() == selection.DoesNotExist {
				continue
			}
			if r.Matches(labels.Set{repo.LabelGPUClass: class}) {
				return nil
			}
			known = append(known, r.ValuesUnsorted()...)
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return about(job, role, source, "gpus.class", fmt.Sprintf("%s has no GPU class %q, so that the pods can run on any GPU; it has %s%s",
		o.dir, class, strings.Join(known, ", "), manifest.Nearest(class, known...)))
}

// uncounted warns of devices that no number in a plan or a record has.
func uncounted(job *repo.Job, role *repo.Role, source *manifest.Document) *repo.Error {
	if !repo.UncountedDevices(&role.Template.Spec) {
		return nil
	}
	return about(job, role, source, "template.spec.resourceClaims", "what resource claims bring is not known before it is allocated: it is in no number of GPUs and in no GPU hours")
}

// about is a warning of a role, at a field of it where the job's format is our
// own, and at the job else.
func about(job *repo.Job, role *repo.Role, source *manifest.Document, field, message string) *repo.Error {
	if source == nil || job.Kind != "TrainingJob" {
		return &repo.Error{File: job.Source.File, Line: job.Source.Line, Message: "role " + role.Name + ": " + message, Warning: true}
	}
	at := slices.IndexFunc(job.Roles, func(r repo.Role) bool { return r.Name == role.Name })
	e := source.Errorf(manifest.Item("spec.roles", at)+"."+field, "%s", message)
	e.Warning = true
	return e
}
