package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// ReasonForceDeleted is the reason of a pod that was given up without its
// node's word for its end.
const ReasonForceDeleted = "ForceDeleted"

// Delete asks a pod to end. One that ended meanwhile is a Conflict while its
// end is not recorded. With a grace of 0 the pod is given up: it is marked as
// failed first, as no node may ever do that, and its end could not be recorded.
func (b *Backend) Delete(ctx context.Context, namespace, name, uid string, grace *int64) error {
	ctx, free, err := b.write(ctx)
	if err != nil {
		return err
	}
	defer free()
	force := grace != nil && *grace == 0
	last, err := b.lastSeen(ctx, namespace, name)
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	known := last != nil && string(last.UID) == uid
	options := metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{}}
	if uid != "" {
		u := types.UID(uid)
		options.Preconditions.UID = &u
	}
	switch {
	case force:
		err = b.giveUp(ctx, namespace, name, uid)
	case known && ended(last) && held(last) && last.DeletionTimestamp == nil:
		return apierrors.NewConflict(podResource, name, errors.New("it has ended by itself, and its record is not written yet"))
	case known && held(last):
		// What ends between our last look and this call is not deleted.
		options.Preconditions.ResourceVersion = &last.ResourceVersion
	}
	if err == nil {
		err = b.client.CoreV1().Pods(namespace).Delete(ctx, name, options)
	}
	if err = b.unlessGone(ctx, namespace, name, uid, err); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// lastSeen is a pod as it was last heard of; nil when there is none. One of which
// the watch has not told yet is looked for: Find may have told of it.
func (b *Backend) lastSeen(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if pod := b.find(namespace, name); pod != nil {
		return pod, nil
	}
	pod, err := b.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// giveUp marks a pod as failed that has not ended.
func (b *Backend) giveUp(ctx context.Context, namespace, name, uid string) error {
	pod, err := b.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || uid != "" && string(pod.UID) != uid || ended(pod) {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}, // what ends meanwhile has ended by itself
		"status": map[string]any{
			"phase": corev1.PodFailed, "reason": ReasonForceDeleted,
			"message": fmt.Sprintf("node %s did not confirm the end of the pod in time", pod.Spec.NodeName),
			"conditions": []corev1.PodCondition{{
				Type: "trainyard.dev/Ended", Status: corev1.ConditionTrue, Reason: ReasonForceDeleted, LastTransitionTime: metav1.NewTime(time.Now()),
			}},
		},
	})
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "status")
	return err
}

// Release takes the record's finalizer off, and leaves those of others.
func (b *Backend) Release(ctx context.Context, namespace, name, uid string) error {
	ctx, free, err := b.write(ctx)
	if err != nil {
		return err
	}
	defer free()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "$deleteFromPrimitiveList/finalizers": []string{repo.Finalizer},
	}})
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if err = b.unlessGone(ctx, namespace, name, uid, err); err != nil {
		return fmt.Errorf("release pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// unlessGone is err, or nil when that very pod is not there any more: that is
// what was asked for. The server calls a UID that does not fit a conflict, or invalid.
func (b *Backend) unlessGone(ctx context.Context, namespace, name, uid string, err error) error {
	if (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) && uid != "" {
		now, gerr := b.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if gerr == nil && string(now.UID) != uid {
			return nil
		}
		err = errors.Join(gerr, err)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
