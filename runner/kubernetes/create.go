package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Create starts a pod, owned by its run. Its name is the lock: a second one of
// the same name is AlreadyExists, in the server's own answer.
func (b *Backend) Create(ctx context.Context, pod *corev1.Pod) error {
	ctx, free, err := b.write(ctx)
	if err != nil {
		return err
	}
	defer free()
	run := pod.Labels[repo.LabelRun]
	owner, err := b.owner(ctx, pod.Namespace, run)
	if err != nil {
		return err
	}
	pod = pod.DeepCopy()
	if id := b.repository(); id != "" {
		pod.Labels[repo.LabelRepository] = id
	}
	pod.OwnerReferences = []metav1.OwnerReference{ownerReference(run, owner)}
	if err := b.join(ctx, pod); err != nil {
		return err
	}
	_, err = b.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		return b.sameAs(ctx, pod, err)
	}
	return err
}

// sameAs is there, the server's answer that a pod of this name exists, when that
// is the one that was to be made. Anybody else's pod would be waited for in
// vain: no list of ours has it.
func (b *Backend) sameAs(ctx context.Context, pod *corev1.Pod, there error) error {
	found, err := b.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if why := b.alien(found.Labels); why != "" && found.Labels[repo.LabelManagedBy] == repo.ManagedBy {
		return apierrors.NewConflict(podResource, pod.Name, fmt.Errorf("its name is taken: the pod of this name %s", why))
	}
	for _, label := range []string{repo.LabelManagedBy, repo.LabelRepository, repo.LabelEnvironment, repo.LabelJob, repo.LabelRun, repo.LabelRole, repo.LabelIndex, repo.LabelRunAttempt, repo.LabelAttempt} {
		if found.Labels[label] != pod.Labels[label] {
			return apierrors.NewConflict(podResource, pod.Name, fmt.Errorf("a pod of this name is there that is somebody else's (its label %s is %q): remove it, and the task starts", label, found.Labels[label]))
		}
	}
	return there
}

// Rehearse asks the server whether it would take pods, one after another,
// without making any: its answer to the first that it refuses.
func (b *Backend) Rehearse(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if err := b.rehearse(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func (b *Backend) rehearse(ctx context.Context, pod *corev1.Pod) error {
	ctx, free, err := b.write(ctx)
	if err != nil {
		return err
	}
	defer free()
	_, err = b.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
	return err
}

// ownerGood is how long the config map of a run is taken for being there still.
const ownerGood = 10 * time.Second

// owner is the UID of a run's config map. It is NotFound when the run has to be
// prepared again, as somebody deleted what was made: the cluster would collect a
// pod of an owner that is gone as soon as it is made, and its retry, for ever.
func (b *Backend) owner(ctx context.Context, namespace, run string) (types.UID, error) {
	b.mu.Lock()
	known := b.runs[run]
	b.mu.Unlock()
	if known.owner != "" && time.Since(known.checked) < ownerGood {
		return known.owner, nil
	}
	m, err := b.client.CoreV1().ConfigMaps(namespace).Get(ctx, run, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("the run's config map: %w", err)
	}
	if m.DeletionTimestamp != nil || known.owner != "" && m.UID != known.owner {
		return "", fmt.Errorf("the run's config map: %w", apierrors.NewNotFound(corev1.Resource("configmaps"), run))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now, ok := b.runs[run]; ok && now.owner == m.UID {
		now.checked = time.Now()
		b.runs[run] = now
	}
	return m.UID, nil
}

// ownerReference makes a run's config map the owner of an object: what a run
// needs goes when that goes.
func ownerReference(run string, uid types.UID) metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: run, UID: uid, Controller: &controller}
}

// served says whether the backend may work in a namespace.
func (b *Backend) served(namespace string) error {
	if len(b.options.Namespaces) == 0 || slices.Contains(b.options.Namespaces, namespace) {
		return nil
	}
	return apierrors.NewForbidden(podResource, "", fmt.Errorf("this daemon does not serve namespace %s", namespace))
}
