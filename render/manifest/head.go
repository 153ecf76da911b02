package manifest

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// annotationPrefix begins the annotations that are ours.
const annotationPrefix = "trainyard.dev/"

// Job begins the job of an object: what its metadata, its annotations and the
// repository's defaults say, which is the same for every format.
func (o *Object) Job(opts Options) *repo.Job {
	var meta metav1.ObjectMeta
	o.metadata(&meta, opts)
	job := &repo.Job{
		Key:    repo.Key{Namespace: meta.Namespace, Name: meta.Name},
		Labels: meta.Labels, OnChange: repo.Finish,
		Deadline: o.settings.Defaults.Deadline, Success: repo.AllRoles,
		Cleanup: repo.Cleanup{Pods: repo.CleanupAll},
	}
	job.APIVersion, _ = o.built["apiVersion"].(string)
	job.Kind, _ = o.built["kind"].(string)
	if job.Namespace == "" {
		job.Namespace = o.settings.Defaults.Namespace
	}
	if job.Namespace == "" {
		job.Namespace = repo.DefaultNamespace
	}
	if d := o.settings.Defaults.OnChange; d != "" {
		job.OnChange = d
	}
	if d := o.settings.Defaults.Cleanup; d != nil {
		job.Cleanup = *d
	}
	o.names(job)
	o.annotations(job, meta.Annotations)
	return job
}

// metadata reads what a file may say of its object. What only a server sets,
// in files that were read back from one, is ignored with one warning.
func (o *Object) metadata(meta *metav1.ObjectMeta, opts Options) {
	content, _ := o.built["metadata"].(map[string]any)
	kept, ignored := map[string]any{}, ""
	for _, k := range slices.Sorted(maps.Keys(content)) {
		switch k {
		case "name", "namespace", "labels", "annotations":
			kept[k] = content[k]
		case "uid", "resourceVersion", "selfLink", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
			"clusterName", "managedFields", "ownerReferences", "finalizers", "initializers":
			if content[k] != nil {
				ignored = "metadata." + k
			}
		case "generateName":
			o.Errorf("metadata.generateName", "a job needs a name of its own: metadata.name")
		default:
			kept[k] = content[k]
		}
	}
	switch status := o.built["status"]; {
	case status != nil && ignored != "":
		o.Warnf("status", "status and server-set metadata ignored")
	case status != nil:
		o.Warnf("status", "status ignored")
	case ignored != "":
		o.Warnf(ignored, "server-set metadata ignored")
	}
	d := Object{built: map[string]any{"metadata": kept}, source: o.source}
	d.Decode("metadata", meta, opts)
	o.problems, o.unread = append(o.problems, d.problems...), append(o.unread, d.unread...)
	o.errors += d.errors
}

// names checks that the job's names can become labels and host names.
func (o *Object) names(job *repo.Job) {
	if job.Name == "" {
		o.Errorf("metadata.name", "required")
	} else {
		o.Label("metadata.name", job.Name)
	}
	o.Label("metadata.namespace", job.Namespace)
	for _, k := range slices.Sorted(maps.Keys(job.Labels)) {
		at := Join("metadata.labels", k)
		for _, why := range validation.IsQualifiedName(k) {
			o.Errorf(at, "not a label's name: %s", brief(why))
		}
		for _, why := range validation.IsValidLabelValue(job.Labels[k]) {
			o.Errorf(at, "not a label's value: %s", brief(why))
		}
	}
}

// brief is what Kubernetes says of a name, without its examples and regular expressions.
func brief(why string) string {
	why, _, _ = strings.Cut(why, " (e.g. ")
	return why
}

// Label reports text that is no DNS label: at most 63 lower-case letters,
// digits and dashes. Names of jobs and roles become parts of host names.
func (o *Object) Label(field, name string) {
	switch {
	case len(name) > validation.DNS1123LabelMaxLength:
		o.Errorf(field, "%q has %d characters; %d are the most that fit into a label or a host name", short(name), len(name), validation.DNS1123LabelMaxLength)
	case len(validation.IsDNS1123Label(name)) > 0:
		hint := ""
		lower := strings.NewReplacer("_", "-", ".", "-", " ", "-").Replace(strings.ToLower(name))
		if len(validation.IsDNS1123Label(lower)) == 0 {
			hint = "; " + lower + " would do"
		}
		o.Errorf(field, "%q may have only lower-case letters, digits and dashes, with a letter or digit at both ends%s", name, hint)
	}
}

// annotations reads the ones that work for jobs of every format.
func (o *Object) annotations(job *repo.Job, annotations map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(k, annotationPrefix) {
			continue
		}
		v, at := annotations[k], Join("metadata.annotations", k)
		switch k {
		case repo.AnnotationRerun:
			job.Rerun = v
		case repo.AnnotationSuspend:
			job.Suspend = o.flag(at, v)
		case repo.AnnotationStop:
			job.Stop = o.flag(at, v)
		case repo.AnnotationOnChange:
			job.OnChange = OneOf(o, at, repo.OnChange(v), job.OnChange, repo.Finish, repo.Restart, repo.Ignore)
		default:
			o.Warnf(at, "unknown annotation ignored%s", Nearest(k, repo.AnnotationRerun, repo.AnnotationSuspend, repo.AnnotationStop, repo.AnnotationOnChange))
		}
	}
}

func (o *Object) flag(field, value string) bool {
	if value != "true" && value != "false" {
		o.Errorf(field, `want "true" or "false", not the text %q`, short(value))
	}
	return value == "true"
}

// OneOf is value when it is one of allowed, or fallback when it is empty. It
// reports any other.
func OneOf[T ~string](o *Object, field string, value, fallback T, allowed ...T) T {
	if value == "" {
		return fallback
	}
	if slices.Contains(allowed, value) {
		return value
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	o.Errorf(field, "%q is not one of %s%s", short(string(value)), strings.Join(words, ", "), Nearest(string(value), words...))
	return fallback
}

// Neutral adds to a format's own paths those of every object that do not
// change what a run does.
func Neutral(paths ...string) []string { return append([]string{"metadata", "status"}, paths...) }
