package runner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reasonNodeLost is what older control planes say of a pod on a node that does
// not answer.
const reasonNodeLost = "NodeLost"

// waiting says in the cluster's own words why a pod has not started, or what
// keeps one from going on; "" when there is nothing to say.
func waiting(pod *corev1.Pod, state PodState) string {
	var scheduled *corev1.PodCondition
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			scheduled = c
		}
	}
	switch {
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse && len(pod.Spec.SchedulingGates) > 0:
		return sentence(scheduled.Reason, "held back by "+gates(pod))
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return sentence(scheduled.Reason, scheduled.Message)
	case silent(pod, state) != "":
		return silent(pod, state)
	case !cutOff(pod).IsZero():
		return "its sandbox is gone, and its kubelet makes no other one"
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				return sentence(w.Reason, w.Message)
			}
		}
	}
	custom := pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName
	switch {
	case state == PodRunning:
		return ""
	case pod.Status.Reason+pod.Status.Message != "":
		return sentence(pod.Status.Reason, pod.Status.Message)
	case custom && scheduled == nil && pod.Spec.NodeName == "":
		return fmt.Sprintf("scheduler %q has not said anything yet", pod.Spec.SchedulerName)
	}
	return ""
}

func gates(pod *corev1.Pod) string {
	names := make([]string, 0, len(pod.Spec.SchedulingGates))
	for _, g := range pod.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return strings.Join(names, ", ")
}

// silent says that a pod's node does not answer. The node lifecycle controller
// then takes the pod's readiness away and gives no reason; a kubelet that does
// so gives one.
func silent(pod *corev1.Pod, state PodState) string {
	if state != PodRunning {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == "" && pod.Spec.NodeName != "" {
			return fmt.Sprintf("node %s does not answer since %s", pod.Spec.NodeName, clock(c.LastTransitionTime.Time))
		}
	}
	if pod.Status.Reason == reasonNodeLost || pod.Status.Phase == corev1.PodUnknown {
		return sentence(pod.Status.Reason, pod.Status.Message)
	}
	return ""
}

// cutOff is when a pod that has not started lost its sandbox, in which a
// container had been made: mostly its node was lost at that moment. If nothing of
// it is to be restarted its kubelet makes no other one, whether that container
// ever ran or not, and the pod waits for ever (kubernetes/kubernetes#118321).
// Zero for every other pod.
func cutOff(pod *corev1.Pod) (at time.Time) {
	made := func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }
	if pod.Status.Phase != corev1.PodPending || pod.Spec.RestartPolicy != corev1.RestartPolicyNever ||
		!slices.ContainsFunc(pod.Status.ContainerStatuses, made) && !slices.ContainsFunc(pod.Status.InitContainerStatuses, made) {
		return at
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 MST") }

func sentence(reason, message string) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%s: %s", reason, message), ": "), ": ")
}
