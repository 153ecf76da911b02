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

// unknownClasses warns of GPU classes that the environment's overlay does not
// know, while it knows others: pods of them could run on any GPU. An overlay
// that knows none has no classes.
func (o *overlay) unknownClasses(job *repo.Job, source *manifest.Document) {
	known := o.classes()
	if len(known) == 0 {
		return
	}
	var names []string
	for _, r := range known {
		names = append(names, r.ValuesUnsorted()...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for i := range job.Roles {
		class, ok := job.Roles[i].Template.Labels[repo.LabelGPUClass]
		if !ok || slices.ContainsFunc(known, func(r labels.Requirement) bool { return r.Matches(labels.Set{repo.LabelGPUClass: class}) }) {
			continue
		}
		warn(job, i, source, "gpus.class", fmt.Sprintf("%s has no GPU class %q, so that its pods can run on any GPU; it has %s%s",
			o.dir, class, strings.Join(names, ", "), manifest.Nearest(class, names...)))
	}
}

// classes are the conditions under which the overlay's patches are for pods of
// a GPU class.
func (o *overlay) classes() (known []labels.Requirement) {
	if !o.exists() {
		return nil
	}
	for _, p := range o.graph.patches {
		if p.target == nil {
			continue
		}
		selector, err := labels.Parse(p.target.LabelSelector)
		if err != nil { // said with the overlay
			continue
		}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			if op := r.Operator(); r.Key() == repo.LabelGPUClass && op != selection.NotIn && op != selection.NotEquals && op != selection.DoesNotExist {
				known = append(known, r)
			}
		}
	}
	return known
}

// uncounted warns of devices that no number in a plan or a record has.
func uncounted(job *repo.Job, source *manifest.Document) {
	for i := range job.Roles {
		if repo.UncountedDevices(&job.Roles[i].Template.Spec) {
			warn(job, i, source, "template.spec.resourceClaims", "what resource claims bring is not known before the cluster has allocated it: it is in no number of GPUs, and in no GPU hours")
		}
	}
}

// warn adds a warning of a role, at a field of it where the job's format is our
// own, and at the job else.
func warn(job *repo.Job, role int, source *manifest.Document, field, message string) {
	e := &repo.Error{File: job.Source.File, Line: job.Source.Line, Message: "role " + job.Roles[role].Name + ": " + message}
	if source != nil && job.Kind == "TrainingJob" {
		e = source.Errorf(manifest.Item("spec.roles", role)+"."+field, "%s", message)
	}
	e.Warning = true
	job.Warnings = repo.SortErrors(append(job.Warnings, e))
}
