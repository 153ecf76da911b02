package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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

// service makes the headless service of a run, or turns it to a new attempt:
// names then lead to pods of this attempt alone, ready or not.
func (b *Backend) service(ctx context.Context, run *repo.Run, attempt int32, owner types.UID) error {
	selector := map[string]string{
		repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: run.Environment, repo.LabelRun: run.ID,
		repo.LabelRunAttempt: strconv.Itoa(int(attempt)),
	}
	services := b.client.CoreV1().Services(run.Job.Namespace)
	_, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: run.ID, Namespace: run.Job.Namespace, Labels: runLabels(run), OwnerReferences: []metav1.OwnerReference{ownerReference(run.ID, owner)},
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: selector},
	}, metav1.CreateOptions{FieldManager: manager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{ownerReference(run.ID, owner)}},
		"spec":     map[string]any{"selector": selector},
	})
	if err != nil {
		return err
	}
	_, err = services.Patch(ctx, run.ID, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return err
}

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
// under a name of the run: several runs can own one object, which goes with the last.
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
	object.SetNamespace(run.Job.Namespace)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[repo.LabelManagedBy], labels[repo.LabelEnvironment] = repo.ManagedBy, run.Environment
	object.SetLabels(labels)
	if gvk.Kind != "PersistentVolumeClaim" { // data outlives every run
		reference := ownerReference(run.ID, owner)
		reference.Controller = nil
		object.SetOwnerReferences([]metav1.OwnerReference{reference})
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager(run), Force: true}
	_, err := b.dynamic.Resource(gvk.GroupVersion().WithResource(resource)).Namespace(run.Job.Namespace).Apply(ctx, o.Name, &object, options)
	return err
}

// fieldManager names a run in at most 128 characters.
func fieldManager(run *repo.Run) string { return strings.Join([]string{manager, run.ID}, "-") }
