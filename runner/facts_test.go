package runner

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func at(seconds int) metav1.Time {
	return metav1.NewTime(day.Add(time.Duration(seconds) * time.Second))
}

// ourPod is a pod as Stamp makes it, just created.
func ourPod(t *testing.T) *corev1.Pod {
	job := trainJob("mnist", "d1", 2, 0)
	run := repo.Run{ID: "mnist-abcdefghij", Environment: "default", Job: job}
	pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: "main", Index: 1}, RunAttempt: 2, Attempt: 3}, func(repo.Task) repo.Address { return repo.Address{} })
	require.NoError(t, err)
	pod.UID, pod.CreationTimestamp, pod.Spec.NodeName = "u1", at(0), "node-7"
	return pod
}

func terminated(name string, code int32, from, to int) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, StartedAt: at(from), FinishedAt: at(to), Reason: "Error", Message: "m",
	}}}
}

// TestCutOffPods: which pods never start any more, by what their kubelet says.
func TestCutOffPods(t *testing.T) {
	made, none := []corev1.ContainerStatus{{Name: "a", ContainerID: "containerd://1"}}, []corev1.ContainerStatus{{Name: "a"}}
	for _, row := range []struct {
		rule   string
		change func(*corev1.Pod)
		want   time.Time
	}{
		{"its container was made, and its sandbox is gone", func(*corev1.Pod) {}, at(9).Time},
		{"an init container was made", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = made, none
		}, at(9).Time},
		{"no container was made: its kubelet makes another sandbox", func(p *corev1.Pod) { p.Status.ContainerStatuses = none }, time.Time{}},
		{"it is restarted", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }, time.Time{}},
		{"it has its sandbox", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }, time.Time{}},
		{"an old kubelet does not say", func(p *corev1.Pod) { p.Status.Conditions = nil }, time.Time{}},
		{"it has started", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, time.Time{}},
		{"it has ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, time.Time{}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			pod := ourPod(t)
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: made, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse, LastTransitionTime: at(9)},
			}}
			row.change(pod)
			p, ok := podFacts(pod)
			require.True(t, ok)
			assert.Equal(t, row.want, p.CutOffAt)
		})
	}
}

func TestPodFacts(t *testing.T) {
	grace := int64(30)
	deleted := at(60) // 30 seconds after it was asked for
	for _, row := range []struct {
		rule   string
		change func(*corev1.Pod)
		want   func(*Pod)
	}{
		{"fresh", func(*corev1.Pod) {}, func(*Pod) {}},
		{"no finalizer: not held", func(p *corev1.Pod) { p.Finalizers = []string{"other"} }, func(p *Pod) { p.Held = false }},
		{"phase unknown is not an end", func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }, func(*Pod) {}},
		{"asked to end: when, not until when", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deleted, &grace
		}, func(p *Pod) { p.DeletedAt, p.DeleteBy = at(30).Time, at(60).Time }},
		{"running", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "a", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(9)}}},
				{Name: "b", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(5)}}},
			}
		}, func(p *Pod) { p.State, p.StartedAt, p.Restarts = PodRunning, at(5).Time, 3 }},
		{"restarted in place: since its first start", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "a", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(9)}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: at(3), FinishedAt: at(8)}},
			}}
		}, func(p *Pod) { p.State, p.StartedAt, p.Restarts = PodRunning, at(3).Time, 1 }},
		{"last output", func(p *corev1.Pod) {
			p.Annotations[repo.AnnotationOutput] = "2026-03-02T09:00:07Z"
		}, func(p *Pod) { p.OutputAt = at(7).Time }},
		{"trouble around the pod", func(p *corev1.Pod) { p.Annotations[repo.AnnotationTrouble] = "service: quota" }, func(p *Pod) { p.Waiting = "service: quota" }},
		{"last output that is no time", func(p *corev1.Pod) { p.Annotations[repo.AnnotationOutput] = "soon" }, func(*Pod) {}},
		{"succeeded: ended with its last container", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{terminated("init", 0, 1, 2)}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("a", 0, 3, 8), terminated("b", 0, 3, 5)}
		}, func(p *Pod) {
			p.State, p.StartedAt, p.EndedAt = PodSucceeded, at(1).Time, at(8).Time
			p.Failure.Ends = []End{
				{Container: "init", Init: true, Reason: "Error", Message: "m", At: at(2).Time}, {Container: "a", Reason: "Error", Message: "m", At: at(8).Time},
				{Container: "b", Reason: "Error", Message: "m", At: at(5).Time},
			}
		}},
		{"failed, with a reason", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory", ContainerStatuses: []corev1.ContainerStatus{terminated("a", 137, 3, 8)}}
		}, func(p *Pod) {
			p.State, p.StartedAt, p.EndedAt = PodFailed, at(3).Time, at(8).Time
			p.Failure = Failure{Reasons: []string{"Evicted"}, Message: "low on memory", Ends: []End{{Container: "a", ExitCode: 137, Reason: "Error", Message: "m", At: at(8).Time}}}
		}},
		{"disrupted", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: at(4)},
			}}
		}, func(p *Pod) {
			p.State, p.EndedAt = PodFailed, at(4).Time
			p.Failure.Reasons = []string{"DisruptionTarget", "PreemptionByScheduler"}
		}},
		{"disruption that did not come", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, Reason: "x", LastTransitionTime: at(4)}}}
		}, func(p *Pod) { p.State, p.EndedAt = PodFailed, at(4).Time }},
		{"failed without any trace: when it was created", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, func(p *Pod) { p.State, p.EndedAt = PodFailed, at(0).Time }},
		{"cannot be scheduled", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes"}}
		}, func(p *Pod) { p.Waiting = "Unschedulable: 0/3 nodes" }},
		{"cannot be pulled", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
				{Name: "b", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}},
			}
		}, func(p *Pod) { p.Waiting = "ImagePullBackOff: no such image" }},
		{"waits for the machine", func(p *corev1.Pod) { p.Status.Reason = "2 GPUs asked for and none free" }, func(p *Pod) { p.Waiting = "2 GPUs asked for and none free" }},
	} {
		t.Run(row.rule, func(t *testing.T) {
			pod := ourPod(t)
			want := Pod{
				Name: "mnist-abcdefghij-main-1-2-3", UID: "u1", Job: "mnist", Run: "mnist-abcdefghij", Held: true, CreatedAt: day, Node: "node-7",
				Attempt: repo.TaskAttempt{Task: repo.Task{Role: "main", Index: 1}, RunAttempt: 2, Attempt: 3},
			}
			row.change(pod)
			row.want(&want)
			for _, s := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
				want.Failure.Containers = append(want.Failure.Containers, s.Name)
			}
			if want.State == PodFailed {
				want.Failure.Reason = pod.Status.Reason
			}
			before := pod.DeepCopy()
			got, ok := podFacts(pod)
			require.True(t, ok)
			assert.Equal(t, want, got)
			assert.Equal(t, before, pod)
		})
	}
}

func TestPodFactsOfOthers(t *testing.T) {
	for _, change := range []func(*corev1.Pod){
		func(p *corev1.Pod) { p.Labels = nil },
		func(p *corev1.Pod) { p.Labels[repo.LabelManagedBy] = "somebody" },
		func(p *corev1.Pod) { delete(p.Labels, repo.LabelRun) },
		func(p *corev1.Pod) { delete(p.Labels, repo.LabelRole) },
		func(p *corev1.Pod) { p.Labels[repo.LabelIndex] = "-1" },
		func(p *corev1.Pod) { p.Labels[repo.LabelAttempt] = "one" },
		func(p *corev1.Pod) { p.Labels[repo.LabelRunAttempt] = "99999999999" },
	} {
		pod := ourPod(t)
		change(pod)
		_, ok := podFacts(pod)
		assert.False(t, ok, pod.Labels)
	}
}
