package runner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// PodState is where a pod stands, as far as Decide needs to know.
type PodState int

// The states of a pod.
const (
	PodPending PodState = iota
	PodRunning
	PodSucceeded
	PodFailed
)

// Pod is what Decide is told of a pod: facts, already read from the backend's
// own form, without a judgement.
type Pod struct {
	Name      string
	UID       string
	Job       string // its name
	Run       string
	Attempt   repo.TaskAttempt
	State     PodState
	Held      bool // by the record's finalizer
	CreatedAt time.Time
	StartedAt time.Time // zero until a container ran
	EndedAt   time.Time // zero unless Succeeded or Failed
	DeletedAt time.Time // zero unless somebody asked for its end
	OutputAt  time.Time // last output, zero when unknown
	PlacedAt  time.Time // when it got its node, zero when unknown
	Node      string
	Gang      *repo.Gang // with whom it starts, nil for nobody
	GangBy    string     // what sees to that
	Waiting   string     // why it has not started
	Restarts  int32
	Address   string // where people reach it, of a task that outlives its run
	Failure   Failure
	Tail      string // the end of the log of a failed pod
}

// Ended says whether no container of the pod will run any more.
func (p *Pod) Ended() bool { return p.State == PodSucceeded || p.State == PodFailed }

// Failure is what a failed pod tells about its end.
type Failure struct {
	Reason     string   // of the pod alone
	Reasons    []string // of the pod and its disruption condition
	Message    string
	Containers []string // names of all
	Ends       []End    // containers that terminated, init containers first
}

// End is how a container terminated.
type End struct {
	Container string
	ExitCode  int32
	Signal    int32
	Reason    string
	Message   string
	At        time.Time
}

// podFacts reads a pod. ok is false for one that no run of ours made.
func podFacts(pod *corev1.Pod) (p Pod, ok bool) {
	run, attempt, ok := repo.AttemptOf(pod)
	if !ok {
		return Pod{}, false
	}
	p = Pod{
		Name: pod.Name, UID: string(pod.UID), Job: pod.Labels[repo.LabelJob], Run: run, Attempt: attempt,
		Held:      slices.Contains(pod.Finalizers, repo.Finalizer),
		CreatedAt: pod.CreationTimestamp.Time,
		Node:      pod.Spec.NodeName,
		Address:   pod.Annotations[repo.AnnotationAddress],
		Gang:      repo.GangOf(pod), GangBy: pod.Annotations[repo.AnnotationGangBy],
	}
	if pod.DeletionTimestamp != nil {
		p.DeletedAt = pod.DeletionTimestamp.Time
		if g := pod.DeletionGracePeriodSeconds; g != nil {
			p.DeletedAt = p.DeletedAt.Add(-time.Duration(*g) * time.Second)
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, pod.Annotations[repo.AnnotationOutput]); err == nil {
		p.OutputAt = t
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			p.PlacedAt = c.LastTransitionTime.Time
		}
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		p.State = PodSucceeded
	case corev1.PodFailed:
		p.State = PodFailed
	case corev1.PodRunning:
		p.State = PodRunning
	}
	p.containers(pod)
	if p.State == PodPending {
		p.Waiting = waiting(pod)
	}
	if p.State == PodFailed {
		p.Failure.Reason, p.Failure.Message = pod.Status.Reason, pod.Status.Message
		p.Failure.Reasons = reasons(pod)
	}
	return p, true
}

// containers reads when containers ran and how they ended.
func (p *Pod) containers(pod *corev1.Pod) {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			p.Failure.Containers = append(p.Failure.Containers, s.Name)
			p.Restarts += s.RestartCount
			if r := s.State.Running; r != nil {
				p.started(r.StartedAt.Time)
			}
			if l := s.LastTerminationState.Terminated; l != nil {
				p.started(l.StartedAt.Time)
			}
			t := s.State.Terminated
			if t == nil {
				continue
			}
			p.started(t.StartedAt.Time)
			if p.Ended() && t.FinishedAt.After(p.EndedAt) {
				p.EndedAt = t.FinishedAt.Time
			}
			p.Failure.Ends = append(p.Failure.Ends, End{
				Container: s.Name, ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason, Message: t.Message, At: t.FinishedAt.Time,
			})
		}
	}
	if !p.Ended() || !p.EndedAt.IsZero() {
		return
	}
	for _, c := range pod.Status.Conditions { // no container ever ran
		if c.LastTransitionTime.After(p.EndedAt) {
			p.EndedAt = c.LastTransitionTime.Time
		}
	}
	if p.EndedAt.IsZero() {
		p.EndedAt = p.CreatedAt
	}
}

func (p *Pod) started(at time.Time) {
	if !at.IsZero() && (p.StartedAt.IsZero() || at.Before(p.StartedAt)) {
		p.StartedAt = at
	}
}

// reasons of a failed pod: its own, and the reason of a disruption.
func reasons(pod *corev1.Pod) []string {
	var out []string
	if pod.Status.Reason != "" {
		out = append(out, pod.Status.Reason)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			out = append(out, string(corev1.DisruptionTarget), c.Reason)
		}
	}
	return out
}

// waiting says why a pending pod has not started, in the backend's words.
func waiting(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return sentence(c.Reason, c.Message)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				return sentence(w.Reason, w.Message)
			}
		}
	}
	return sentence(pod.Status.Reason, pod.Status.Message)
}

func sentence(reason, message string) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%s: %s", reason, message), ": "), ": ")
}
