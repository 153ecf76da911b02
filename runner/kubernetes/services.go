package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	// tending is how often somebody looks whether every run has its service.
	tending = 15 * time.Second
	// breath is how long nothing is to be written before services of new runs are
	// made, and yielding how long they wait for that: with each service come
	// objects of the cluster's own, and pods need their names only once they run.
	breath   = 50 * time.Millisecond
	yielding = 10 * time.Second
)

// serviceOf is the service that an attempt of a run is to have.
func (b *Backend) serviceOf(id string, run knownRun) *corev1.Service {
	selector := map[string]string{
		repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: b.options.Environment, repo.LabelRun: id,
		repo.LabelRunAttempt: strconv.Itoa(int(run.attempt)),
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: id, Namespace: run.key.Namespace, Labels: b.runLabels(id, run.key),
			OwnerReferences: []metav1.OwnerReference{ownerReference(id, run.owner)},
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: selector},
	}
}

// service makes the headless service of a run, or turns it to a new attempt:
// names then lead to pods of this attempt alone, ready or not.
func (b *Backend) service(ctx context.Context, want *corev1.Service) error {
	for {
		_, err := b.client.CoreV1().Services(want.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: manager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := b.turn(ctx, want); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		} // it went, or was turned, in between
	}
}

// turn makes a run's service that is there lead to what is wanted now. It is
// never turned back to an earlier attempt.
func (b *Backend) turn(ctx context.Context, want *corev1.Service) error {
	services := b.client.CoreV1().Services(want.Namespace)
	there, err := services.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case b.others(there.Labels, want.Labels) != "":
		return fmt.Errorf("its name is taken: %s %s", want.Name, b.others(there.Labels, want.Labels))
	case there.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted", want.Name)
	case attemptOf(there) > attemptOf(want):
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": there.UID, "resourceVersion": there.ResourceVersion, "ownerReferences": want.OwnerReferences, "labels": want.Labels},
		"spec":     map[string]any{"selector": want.Spec.Selector},
	})
	if err != nil {
		return err
	}
	_, err = services.Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return err
}

// attemptOf is the attempt that a service leads to, -1 if it is none of ours.
func attemptOf(s *corev1.Service) int32 {
	n, err := strconv.ParseInt(s.Spec.Selector[repo.LabelRunAttempt], 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// tend makes the services of new runs when there is time for it, and of those
// that have none although they have pods: because somebody deleted it, or an
// earlier daemon did not come to it.
func (b *Backend) tend(ctx context.Context) {
	tick := time.NewTicker(tending)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.bare:
		case <-tick.C:
			b.look(ctx)
		}
		b.serveAll(ctx)
	}
}

// serveAll makes the services that are to be made, one after another: what is
// written meanwhile comes first.
func (b *Backend) serveAll(ctx context.Context) {
	for rested := false; ctx.Err() == nil; rested = true {
		id, run := b.nextBare()
		if id == "" {
			return
		}
		if !rested || len(b.writes) > 0 {
			b.rest(ctx, run.prepared.Add(yielding))
		}
		b.serve(ctx, id, run)
	}
}

func (b *Backend) wakeTender() {
	select {
	case b.bare <- struct{}{}:
	default:
	}
}

// rest returns when nothing was written for a breath, or at a time.
func (b *Backend) rest(ctx context.Context, until time.Time) {
	const looks = 5
	tick := time.NewTicker(breath / looks)
	defer tick.Stop()
	for quiet := 0; quiet < looks && time.Now().Before(until); quiet++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if len(b.writes) > 0 {
			quiet = -1
		}
	}
}

// nextBare is the run that has waited longest for its service, "" if none does.
func (b *Backend) nextBare() (id string, run knownRun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range b.runs {
		if r.bare && (id == "" || r.prepared.Before(run.prepared)) {
			id, run = i, r
		}
	}
	return id, run
}

// serve makes the service of a run. What keeps it from being is told with the
// run's pods, until it is there.
func (b *Backend) serve(ctx context.Context, id string, run knownRun) {
	inner, free, err := b.write(ctx)
	if err == nil {
		err = b.service(inner, b.serviceOf(id, run))
		free()
	}
	trouble := ""
	if err != nil {
		trouble = "service: " + err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, ok := b.runs[id]
	if !ok || ctx.Err() != nil || now.attempt != run.attempt {
		return
	}
	changed := now.trouble != trouble
	now.bare, now.trouble = false, trouble // what failed is seen by the next look
	b.runs[id] = now
	if changed {
		b.changes.Tell(now.key)
	}
	if changed && err != nil {
		b.options.Log.Warn().Err(err).Stringer("job", now.key).Str("run", id).Msg("the run's service cannot be made; its tasks cannot find each other")
	}
}

// look finds runs that have pods and no service that leads to them.
func (b *Backend) look(ctx context.Context) {
	b.mu.Lock()
	idle := len(b.runs) == 0
	b.mu.Unlock()
	if idle {
		return
	}
	there := map[string]int32{} // attempts by run
	for _, n := range b.options.namespaces() {
		if err := b.services(ctx, n, there); err != nil {
			if !b.degrades("services cannot be listed: one that is deleted is not made again before the next attempt", err) {
				b.options.Log.Debug().Err(err).Msg("services cannot be listed")
			}
			return
		}
	}
	attempts := map[string]int32{} // that have pods which have not ended
	for _, informer := range b.informers() {
		for _, o := range informer.GetStore().List() {
			if pod, ok := o.(*corev1.Pod); ok && !ended(pod) {
				if run, a, ok := repo.AttemptOf(pod); ok {
					attempts[run] = max(attempts[run], a.RunAttempt)
				}
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, attempt := range attempts {
		run, known := b.runs[id]
		if led, ok := there[id]; known && !run.bare && (!ok || led < attempt) {
			run.bare, run.attempt = true, max(run.attempt, attempt)
			b.runs[id] = run
		}
	}
}

// services adds to there which attempts the services of a namespace lead to.
func (b *Backend) services(ctx context.Context, namespace string, there map[string]int32) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	options := metav1.ListOptions{LabelSelector: b.ours() + "," + repo.LabelRun, ResourceVersion: "0"} // one that is a little old does no harm
	list, err := b.client.CoreV1().Services(namespace).List(ctx, options)
	if err != nil {
		return err
	}
	for i := range list.Items {
		if s := &list.Items[i]; s.DeletionTimestamp == nil {
			there[s.Name] = attemptOf(s)
		}
	}
	return nil
}
