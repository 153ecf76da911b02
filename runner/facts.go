package runner

import (
	"cmp"
	"slices"
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
	DeleteBy  time.Time // when it should have ended then
	OutputAt  time.Time // last output, zero when unknown
	PlacedAt  time.Time // when it got its node, zero when unknown
	Node      string
	Gang      *repo.Gang // with whom it starts, nil for nobody
	GangBy    string     // what sees to that
	Waiting   string     // why it has not started, or does not go on
	CutOffAt  time.Time  // when it lost its sandbox before it had started, zero if it may start
	Restarts  int32
	Address   string // where people reach it, of a task that outlives its run
	Failure   Failure
	Tail      string // the end of the log of a pod that failed, or whose log goes with it
}

// Ended says whether no container of the pod will run any more.
func (p *Pod) Ended() bool { return p.State == PodSucceeded || p.State == PodFailed }

// ObeyedDeletion says whether the pod ended after somebody had asked it to.
// Backends tell ends in whole seconds, rounded down.
func (p *Pod) ObeyedDeletion() bool {
	return p.Ended() && !p.DeletedAt.IsZero() && !p.EndedAt.Before(p.DeletedAt.Truncate(time.Second))
}

// LosesLog says whether a pod ended by itself, and goes with its log all the
// same: it was asked to end before anybody had seen that it had.
func (p *Pod) LosesLog() bool { return p.Ended() && !p.DeletedAt.IsZero() && !p.ObeyedDeletion() }

// Failure is what a pod that has ended tells about its end.
type Failure struct {
	Reason     string   // of the pod alone
	Reasons    []string // of the pod and its disruption condition
	Message    string
	Disruption string   // message of the disruption condition
	Containers []string // names of all
	Ends       []End    // containers that terminated, init containers first
}

// End is how a container terminated.
type End struct {
	Container string
	Init      bool // it had to end before the others began
	Sidecar   bool // it runs beside the others, and its end says nothing of them
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
		p.DeletedAt, p.DeleteBy = pod.DeletionTimestamp.Time, pod.DeletionTimestamp.Time
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
	if pod.Status.Phase == corev1.PodUnknown && !p.StartedAt.IsZero() {
		p.State = PodRunning // as far as anybody knows
	}
	if !p.Ended() {
		p.Waiting, p.CutOffAt = cmp.Or(waiting(pod, p.State), pod.Annotations[repo.AnnotationTrouble]), cutOff(pod)
		return p, true
	}
	p.EndedAt = p.end(pod)
	p.askedBefore(pod)
	p.Failure.Reason, p.Failure.Message = pod.Status.Reason, pod.Status.Message
	p.Failure.disruption(pod)
	return p, true
}

// containers reads when containers ran and how they ended.
func (p *Pod) containers(pod *corev1.Pod) {
	read := func(s *corev1.ContainerStatus, init, sidecar bool) {
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
			return
		}
		p.started(t.StartedAt.Time)
		p.Failure.Ends = append(p.Failure.Ends, End{
			Container: s.Name, Init: init, Sidecar: sidecar, ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason, Message: t.Message, At: t.FinishedAt.Time,
		})
	}
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		sidecar := isSidecar(pod, s.Name)
		read(s, !sidecar, sidecar)
	}
	for i := range pod.Status.ContainerStatuses {
		read(&pod.Status.ContainerStatuses[i], false, false)
	}
}

// isSidecar says whether an init container is one that goes on beside the others.
func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// end is when an ended pod ended: with its last container but for sidecars. Of
// one that was given up on a node that does not answer nobody knows; then it is
// when that was last heard of, and not before somebody asked for its end.
func (p *Pod) end(pod *corev1.Pod) (at time.Time) {
	unknown := false
	for _, e := range p.Failure.Ends {
		if !e.Sidecar && e.At.After(at) {
			at = e.At
		}
		unknown = unknown || e.At.IsZero() && !e.Sidecar
	}
	unknown = unknown || slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
	if !at.IsZero() && !unknown {
		return at
	}
	for _, c := range pod.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	refused := pod.Status.Reason != "" && pod.Status.Reason != reasonNodeLost // by its node, before it ran
	if p.DeletedAt.After(at) && !refused {
		at = p.DeletedAt
	}
	if at.IsZero() {
		return p.CreatedAt
	}
	return at
}

// started takes note of a container's start. A kubelet gives the beginning of
// 1970 for one that could not be started.
func (p *Pod) started(at time.Time) {
	if at.Unix() > 0 && (p.StartedAt.IsZero() || at.Before(p.StartedAt)) {
		p.StartedAt = at
	}
}

// kubeletDone is how long after a pod's end its kubelet removes it, at most.
const kubeletDone = 10 * time.Second

// askedBefore puts right when an ended pod was asked to end. Its kubelet removes
// it with a grace of 0 when all is done, and as the finalizer holds it the API
// server then gives that time, not the one at which somebody first asked. A pod
// that had ended by itself before is removed by nobody so soon.
func (p *Pod) askedBefore(pod *corev1.Pod) {
	grace := pod.DeletionGracePeriodSeconds
	if grace != nil && *grace == 0 && p.DeletedAt.After(p.EndedAt) && p.DeletedAt.Sub(p.EndedAt) <= kubeletDone {
		p.DeletedAt = p.EndedAt
	}
}

// disruption reads why the cluster took a pod away: reasons, its own first.
func (f *Failure) disruption(pod *corev1.Pod) {
	if pod.Status.Reason != "" {
		f.Reasons = append(f.Reasons, pod.Status.Reason)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			f.Reasons = append(f.Reasons, string(corev1.DisruptionTarget), c.Reason)
			f.Disruption = c.Message
		}
	}
}
