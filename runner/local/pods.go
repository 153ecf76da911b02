package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Reasons of pods that this backend gives an outcome itself.
const (
	ReasonShimLost         = "ShimLost"         // the shim was killed
	ReasonMachineRestarted = "MachineRestarted" // everything was
	ReasonDeleted          = "Deleted"          // asked to end before it was started
)

// Pods of one job, in any state, with status as Kubernetes would fill it, sorted by name.
func (b *Backend) Pods(ctx context.Context, key repo.Key) ([]corev1.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkName(key.Namespace, "pod"); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", key, err)
	}
	all, err := b.listOnly(key.Namespace, func(p *corev1.Pod) bool { return keyOf(p) == key && b.ours(p) })
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", key, err)
	}
	pods := []corev1.Pod{}
	for _, e := range all {
		pod, err := b.view(e)
		if err != nil {
			return nil, fmt.Errorf("list pods of %s: %w", key, err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// view puts a pod together from its files.
func (b *Backend) view(e *entry) (corev1.Pod, error) {
	pod := *e.pod.DeepCopy()
	pod.Spec.NodeName = b.node
	if !e.held() {
		pod.Finalizers = without(pod.Finalizers, repo.Finalizer)
	}
	if r := e.deletion; r != nil {
		at := metav1.NewTime(r.deadline())
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &r.Grace
	}
	if t := lastOutput(e.dir); !t.IsZero() {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[repo.AnnotationOutput] = t.UTC().Format(time.RFC3339Nano)
	}
	if e.outcome != nil {
		pod.Status = *e.outcome.DeepCopy()
		return pod, nil
	}
	if err := readOptional(filepath.Join(e.dir, statusFile), &pod.Status); err != nil && !errors.Is(err, errDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return pod, err
	}
	if pod.Status.Phase == "" {
		pod.Status = b.pending(e)
	}
	return pod, nil
}

// pending is the status of a pod that no shim has spoken for yet.
func (b *Backend) pending(e *entry) corev1.PodStatus {
	b.mu.Lock()
	why := b.waiting[e.dir]
	b.mu.Unlock()
	s := corev1.PodStatus{Phase: corev1.PodPending}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: e.pod.CreationTimestamp}
	if exists(filepath.Join(e.dir, admittedFile)) {
		scheduled.Status, scheduled.Message = corev1.ConditionTrue, why
		blank(&s, e.pod, "ContainerCreating", why)
		s.HostIP = loopback
	} else {
		scheduled.Reason, scheduled.Message = corev1.PodReasonUnschedulable, why
	}
	s.Conditions = []corev1.PodCondition{scheduled}
	return s
}

// blank gives every container the same waiting state.
func blank(s *corev1.PodStatus, pod *corev1.Pod, reason, message string) {
	state := func(c *corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(bool),
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for i := range pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, state(&pod.Spec.InitContainers[i]))
	}
	for i := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, state(&pod.Spec.Containers[i]))
	}
}

// lastOutput is when a container last wrote output: its log is written for nothing else.
func lastOutput(dir string) time.Time {
	var last time.Time
	logs, _ := os.ReadDir(filepath.Join(dir, logsDir))
	for _, l := range logs {
		if info, err := l.Info(); err == nil && info.Size() > 0 && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// condition sets a condition of a status.
func condition(s *corev1.PodStatus, kind corev1.PodConditionType, value bool, reason, message string) {
	status := corev1.ConditionFalse
	if value {
		status = corev1.ConditionTrue
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != kind {
			continue
		}
		if c.Status != status {
			c.LastTransitionTime = metav1.Now()
		}
		c.Status, c.Reason, c.Message = status, reason, message
		return
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()})
}

func without(list []string, s string) []string {
	var out []string
	for _, x := range list {
		if x != s {
			out = append(out, x)
		}
	}
	return out
}

func compareText(a, b string) int { return cmp.Compare(a, b) }
