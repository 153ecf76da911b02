package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Reader looks at the pods of an environment for a command that looks once: it
// watches nothing, makes nothing, and needs no more rights than its calls.
type Reader struct{ backend Backend }

// Open prepares a reader; it asks the server for nothing.
func Open(o Options) (*Reader, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = -1, -1
	config.UserAgent = "trainyard"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes runner: %w", err)
	}
	return &Reader{Backend{options: o, client: client, writes: make(chan struct{}, inFlight), gangs: newGangs()}}, nil
}

// Jobs are those that have pods.
func (r *Reader) Jobs(ctx context.Context) ([]repo.Key, error) {
	found := map[repo.Key]struct{}{}
	for _, n := range r.backend.options.namespaces() {
		pods, err := r.list(ctx, n, r.backend.ours())
		if err != nil {
			return nil, err
		}
		for i := range pods {
			found[keyOf(&pods[i])] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b repo.Key) int { return cmp.Compare(a.String(), b.String()) }), nil
}

// Pods of a job.
func (r *Reader) Pods(ctx context.Context, key repo.Key) ([]corev1.Pod, error) {
	return r.list(ctx, key.Namespace, r.backend.ours()+","+repo.LabelJob+"="+key.Name)
}

// list reads pods page by page, and keeps of them what an informer would.
func (r *Reader) list(ctx context.Context, namespace, selector string) (pods []corev1.Pod, err error) {
	options := metav1.ListOptions{LabelSelector: selector, Limit: 500}
	for {
		list, err := r.backend.client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			small, err := slim(&list.Items[i])
			if err != nil {
				return nil, err
			}
			pods = append(pods, *small.(*corev1.Pod))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}

// Log is Backend's, but for containers that have not started: with follow they
// are waited for, else their log is empty.
func (r *Reader) Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error) {
	for {
		stream, err := r.backend.Log(ctx, namespace, name, container, tail, follow)
		if !apierrors.IsBadRequest(err) {
			return stream, err
		}
		pod, gerr := r.backend.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if gerr != nil || !waits(pod, container) {
			return nil, errors.Join(err, gerr)
		}
		if !follow {
			return io.NopCloser(bytes.NewReader(nil)), nil
		}
		again := time.NewTimer(time.Second)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		}
	}
}

// waits says whether a container of a pod, or its first one, has yet to start.
func waits(pod *corev1.Pod, container string) bool {
	statuses := slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
	for _, s := range statuses {
		if container == "" || s.Name == container {
			return s.State.Waiting != nil
		}
	}
	return !ended(pod) && (container == "" || slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers),
		func(c corev1.Container) bool { return c.Name == container }))
}

// Rehearse is Backend's.
func (r *Reader) Rehearse(ctx context.Context, pods []*corev1.Pod) error {
	return r.backend.Rehearse(ctx, pods)
}

// Gang is Backend's.
func (r *Reader) Gang(ctx context.Context, job *repo.Job) (string, error) {
	return r.backend.Gang(ctx, job)
}

// Close ends the reader, which has nothing to end.
func (r *Reader) Close() error { return nil }
