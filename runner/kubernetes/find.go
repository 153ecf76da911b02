package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Find is a pod as the API server has it now: Pods has it as it was last heard
// of, which may be before it was created. NotFound also if the pod of that name
// is somebody else's.
func (b *Backend) Find(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if err := b.served(namespace); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pod, err := b.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find pod %s/%s: %w", namespace, name, err)
	}
	if b.alien(pod.Labels) != "" {
		return nil, fmt.Errorf("find pod %s/%s: %w", namespace, name, apierrors.NewNotFound(podResource, name))
	}
	o, err := slim(pod)
	if err != nil {
		return nil, err
	}
	return b.view(o.(*corev1.Pod), time.Now()), nil
}
