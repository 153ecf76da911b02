package kubernetes

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// resourceOf is the server's word for a kind of objects that may stand beside
// jobs, "" for others.
func resourceOf(kind schema.GroupVersionKind) string {
	switch kind {
	case corev1.SchemeGroupVersion.WithKind("ConfigMap"):
		return "configmaps"
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return "services"
	case corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"):
		return "persistentvolumeclaims"
	case resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"):
		return "resourceclaimtemplates"
	}
	return ""
}

// apply brings an object of the job's unit to the server, by server-side apply
// under a name of the run: several runs can own one object, which goes with the
// last. What is there already is changed only if a unit of this environment
// of this repository brought it: a repository may not take over what others, or a run, depend on.
func (b *Backend) apply(ctx context.Context, run *repo.Run, owner types.UID, o repo.Object) error {
	gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
	resource := resourceOf(gvk)
	if resource == "" {
		return fmt.Errorf("objects of kind %s are not applied", o.Kind)
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(o.Raw); err != nil {
		return err
	}
	labels, annotations := repo.WithoutReserved(object.GetLabels()), repo.WithoutReserved(object.GetAnnotations())
	labels[repo.LabelManagedBy], labels[repo.LabelEnvironment] = repo.ManagedBy, run.Environment
	if id := b.repository(); id != "" {
		labels[repo.LabelRepository] = id
	}
	object.Object["metadata"] = map[string]any{"name": o.Name, "namespace": run.Job.Namespace} // no finalizers, no other owners
	object.SetLabels(labels)
	if len(annotations) > 0 {
		object.SetAnnotations(annotations)
	}
	if gvk.Kind != "PersistentVolumeClaim" { // data outlives every run
		reference := ownerReference(run.ID, owner)
		reference.Controller = nil
		object.SetOwnerReferences([]metav1.OwnerReference{reference})
	}
	objects := b.dynamic.Resource(gvk.GroupVersion().WithResource(resource)).Namespace(run.Job.Namespace)
	there, err := objects.Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	default:
		if why := b.foreign(there.GetLabels()); why != "" {
			return apierrors.NewBadRequest(fmt.Sprintf("%s %s is in namespace %s already, and %s: give the unit's object another name, leave it out of the unit, or hand it over with the labels %s=%s and %s=%s",
				o.Kind, o.Name, run.Job.Namespace, why, repo.LabelManagedBy, repo.ManagedBy, repo.LabelEnvironment, run.Environment))
		}
		object.SetUID(there.GetUID()) // another one of the name that comes meanwhile is a conflict
	}
	_, err = objects.Apply(ctx, o.Name, &object, metav1.ApplyOptions{FieldManager: fieldManager(run), Force: true})
	return err
}

// foreign says why an object is none that a unit of this environment brought,
// "" if it is.
func (b *Backend) foreign(labels map[string]string) string {
	if why := b.alien(labels); why != "" {
		return why
	}
	if labels[repo.LabelRun] != "" {
		return "belongs to run " + labels[repo.LabelRun]
	}
	return ""
}

// fieldManager names a run in at most 128 characters.
func fieldManager(run *repo.Run) string { return strings.Join([]string{manager, run.ID}, "-") }
