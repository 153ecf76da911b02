package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// byJob is the index of pods by namespace/job.
const byJob = "job"

// informer keeps the environment's pods of a namespace in memory. Its first
// list is never an old one: a pod that is missing from it is taken for lost.
func (b *Backend) informer(namespace, selector string) (cache.SharedIndexInformer, error) {
	pods := b.client.CoreV1().Pods(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			if o.ResourceVersion == "0" {
				o.ResourceVersion = ""
			}
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = selector
			changes, err := pods.Watch(ctx, o)
			b.began(ctx, namespace, err)
			return changes, err
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, b.client), &corev1.Pod{}, 0, cache.Indexers{
		byJob: func(o any) ([]string, error) {
			pod, ok := o.(*corev1.Pod)
			if !ok {
				return nil, nil
			}
			return []string{keyOf(pod).String()}, nil
		},
	})
	if err := informer.SetTransform(slim); err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { b.troubled(namespace, err) }); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    b.seen,
		UpdateFunc: func(_, now any) { b.seen(now) },
		DeleteFunc: b.gone,
	})
	return informer, err
}

// slim keeps of a pod what anybody asks for, so that many fit into memory.
func slim(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
		DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds, Finalizers: pod.Finalizers,
		Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for _, m := range []struct{ to, from map[string]string }{{out.Labels, pod.Labels}, {out.Annotations, pod.Annotations}} {
		for k, v := range m.from {
			if strings.HasPrefix(k, "trainyard.dev/") || k == repo.LabelManagedBy {
				m.to[k] = v
			}
		}
	}
	out.Spec.NodeName, out.Spec.SchedulerName, out.Spec.SchedulingGates = pod.Spec.NodeName, pod.Spec.SchedulerName, pod.Spec.SchedulingGates
	out.Spec.RestartPolicy = pod.Spec.RestartPolicy
	for _, list := range []struct {
		to   *[]corev1.Container
		from []corev1.Container
	}{{&out.Spec.InitContainers, pod.Spec.InitContainers}, {&out.Spec.Containers, pod.Spec.Containers}} {
		for _, c := range list.from {
			*list.to = append(*list.to, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
		}
	}
	out.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, Conditions: pod.Status.Conditions,
		InitContainerStatuses: slimStatuses(pod.Status.InitContainerStatuses, pod.Status.Phase), ContainerStatuses: slimStatuses(pod.Status.ContainerStatuses, pod.Status.Phase),
	}
	return out, nil
}

// slimStatuses keep which containers have been made of a pod that has not started.
func slimStatuses(all []corev1.ContainerStatus, phase corev1.PodPhase) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, len(all))
	for i, s := range all {
		out[i] = corev1.ContainerStatus{Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, RestartCount: s.RestartCount}
		if phase == corev1.PodPending {
			out[i].ContainerID = s.ContainerID
		}
	}
	return out
}

// Jobs are those that have pods or runs on the cluster.
func (b *Backend) Jobs(context.Context) ([]repo.Key, error) {
	found := map[repo.Key]struct{}{}
	for _, informer := range b.informers() {
		for _, o := range informer.GetStore().List() {
			if pod, ok := o.(*corev1.Pod); ok && pod.Labels[repo.LabelJob] != "" {
				found[keyOf(pod)] = struct{}{}
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runs {
		found[r.key] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b repo.Key) int { return cmp.Compare(a.String(), b.String()) }), nil
}

// Pods of a job as they were last heard of, by name.
func (b *Backend) Pods(_ context.Context, key repo.Key) ([]corev1.Pod, error) {
	if err := b.served(key.Namespace); err != nil {
		return nil, err // none to be seen is not the same as none
	}
	if b.owned.Load() == nil {
		return nil, b.away()
	}
	var out []corev1.Pod
	now := time.Now()
	for _, informer := range b.informers() {
		if !informer.HasSynced() {
			return nil, b.away()
		}
		found, err := informer.GetIndexer().ByIndex(byJob, key.String())
		if err != nil {
			return nil, fmt.Errorf("pods of %s: %w", key, err)
		}
		for _, o := range found {
			out = append(out, *b.view(o.(*corev1.Pod), now))
		}
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// find is a pod as it was last heard of, nil if there is none.
func (b *Backend) find(namespace, name string) *corev1.Pod {
	for _, informer := range b.informers() {
		if o, ok, _ := informer.GetStore().GetByKey(namespace + "/" + name); ok {
			return o.(*corev1.Pod)
		}
	}
	return nil
}

// forceGrace is how long a node may take to confirm the end of a pod that
// somebody deleted by force.
const forceGrace = time.Minute

// view is a pod with what the API server does not say of it: its last output,
// why it does not start, and that it has ended where no node will ever say so.
func (b *Backend) view(cached *corev1.Pod, now time.Time) *corev1.Pod {
	pod := cached.DeepCopy()
	b.mu.Lock()
	at, written := b.output[pod.UID]
	why, trouble := b.stuck[pod.UID], b.runs[pod.Labels[repo.LabelRun]].trouble
	lost := b.lost(pod, now)
	if !written && b.wantsProgress(pod) {
		at, written = now, true // nobody has asked yet: a new daemon takes no job for stuck
	}
	b.mu.Unlock()
	if written {
		pod.Annotations[repo.AnnotationOutput] = at.UTC().Format(time.RFC3339Nano)
	}
	if trouble != "" {
		pod.Annotations[repo.AnnotationTrouble] = trouble
	}
	if pod.Status.Phase == corev1.PodPending && why != "" && pod.Status.Message == "" {
		pod.Status.Message = why
	}
	if neverRuns(pod) || lost {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: "trainyard.dev/Ended", Status: corev1.ConditionTrue, LastTransitionTime: *pod.DeletionTimestamp,
		})
	}
	return pod
}

// neverRuns says whether a pod was deleted before it got a node: the API
// server lets no scheduler bind it any more, and no kubelet knows of it.
func neverRuns(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending
}

// isForced says whether somebody deleted a pod without waiting for its node,
// which has not said yet that it has ended.
func isForced(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && grace != nil && *grace == 0 && !ended(pod)
}

// lost says that a pod was deleted by force, and that its node has not said
// anything since. One that lives would have. The time is measured by our clock
// alone: the server's may be another. b.mu is held.
func (b *Backend) lost(pod *corev1.Pod, now time.Time) bool {
	at, seen := b.forced[pod.UID]
	return seen && isForced(pod) && now.Sub(at) > forceGrace
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func held(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, repo.Finalizer) }

// keyOf is the job that a pod belongs to.
func keyOf(pod *corev1.Pod) repo.Key {
	return repo.Key{Namespace: pod.Namespace, Name: pod.Labels[repo.LabelJob]}
}
