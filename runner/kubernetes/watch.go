package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Watch calls changed with a job's key whenever one of its pods changed, and with
// none when the server has been away, until ctx ends. It mends its own
// connections: while the server is away it is silent.
func (b *Backend) Watch(ctx context.Context, changed func(repo.Key)) error {
	return b.changes.Watch(ctx, changed)
}

// seen tells of a pod that is new or has changed.
func (b *Backend) seen(o any) {
	if pod, ok := o.(*corev1.Pod); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.recovered(b.watched(pod.Namespace))
		if _, known := b.forced[pod.UID]; !known && isForced(pod) {
			b.forced[pod.UID] = time.Now()
		}
		b.changes.Tell(keyOf(pod))
	}
}

// gone tells of a pod that the server does not have any more.
func (b *Backend) gone(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.output, pod.UID)
	delete(b.stuck, pod.UID)
	b.changes.Tell(keyOf(pod))
}

// stale is how long after its last word a trouble is taken for over: watches
// are tried again more often than that.
const stale = 2 * time.Minute

// trouble is why pods could not be watched, and when that was so last.
type trouble struct {
	err error
	at  time.Time
}

// watched is the namespace whose watch tells of a namespace's pods.
func (b *Backend) watched(namespace string) string {
	if len(b.options.Namespaces) == 0 {
		return corev1.NamespaceAll
	}
	return namespace
}

// troubled notes that the pods of a namespace cannot be watched, and logs it
// once: its watch is tried again every few seconds.
func (b *Backend) troubled(namespace string, err error) {
	b.mu.Lock()
	last, known := b.trouble[namespace]
	b.trouble[namespace] = trouble{err: err, at: time.Now()}
	b.mu.Unlock()
	if !known || time.Since(last.at) > stale {
		b.options.Log.Warn().Err(err).Msg("the cluster's pods cannot be watched; they run on")
	}
}

// began notes whether a watch of a namespace could begin. The library tells
// nobody of a server that does not answer: it tries again for as long as that takes.
func (b *Backend) began(ctx context.Context, namespace string, err error) {
	switch {
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err): // all is listed again
	case err != nil:
		b.troubled(namespace, err)
	default:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.recovered(namespace)
	}
}

// recovered notes that the pods of a namespace are heard of. b.mu is held.
func (b *Backend) recovered(namespace string) {
	if _, over := b.trouble[namespace]; over {
		delete(b.trouble, namespace)
		b.changes.Tell(repo.Key{})
		b.options.Log.Info().Msg("the cluster's pods are watched again")
	}
}

// away is the error of who has to know the pods and cannot.
func (b *Backend) away() error {
	if err := b.Healthy(); err != nil {
		return fmt.Errorf("the cluster's pods are not known: %w", err)
	}
	return errors.New("the cluster's pods are not known yet")
}

// synced waits until all pods are known.
func (b *Backend) synced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, informer := range b.informers() {
		for !informer.HasSynced() {
			select {
			case <-ctx.Done():
				return b.away()
			case <-tick.C:
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.trouble)
	return nil
}
