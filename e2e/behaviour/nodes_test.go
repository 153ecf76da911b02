package behaviour

import (
	"cmp"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	node             = "node-1"
	rowLabel         = "behaviour.trainyard.dev/row"
	refuseAnnotation = "behaviour.trainyard.dev/refuse" // ,worker-0,ps-1,
)

// staged is done once: the node, and the policy that refuses pods.
var staged sync.Once

// stage is a control plane without scheduler and kubelets.
func stage(t *testing.T) *cluster.Cluster {
	c := cluster.SharedBare(t)
	staged.Do(func() {
		now := metav1.Now()
		has := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100000")}
		_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: corev1.NodeStatus{Capacity: has, Allocatable: has, Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now},
			}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		refusePods(t, c)
	})
	return c
}

// refusePods has the API server refuse pods of tasks that their namespace names.
func refusePods(t *testing.T, c *cluster.Cluster) {
	fail, invalid := admissionv1.Fail, metav1.StatusReasonInvalid
	rows := &metav1.LabelSelector{MatchLabels: map[string]string{rowLabel: "true"}}
	task := fmt.Sprintf(`","+object.metadata.labels[%q]+"-"+object.metadata.labels[%q]+","`, repo.LabelRole, repo.LabelIndex)
	admission := c.Client().AdmissionregistrationV1()
	_, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{NamespaceSelector: rows, ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf(`!namespaceObject.metadata.annotations[%q].contains(%s)`, refuseAnnotation, task),
				Message:    "this pod is not wanted here", Reason: &invalid,
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "refuse", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{repo.LabelRole: "worker", repo.LabelIndex: "0"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i:1"}}},
	}
	space, err := c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "probe-", Labels: rows.MatchLabels, Annotations: map[string]string{refuseAnnotation: ",worker-0,"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // when the server has taken the policy up
		_, err := c.Client().CoreV1().Pods(space.Name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err)
	}, time.Minute, 50*time.Millisecond)
}

// nodes does what the scheduler and the kubelets have to do: pods get a node
// and start, pods that were asked to end do. It says whether there was anything to do.
func (s *server) nodes(w *world, pods []corev1.Pod) (busy bool) {
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil:
			busy = s.confirm(w, &p) || busy
		case p.Spec.NodeName == "":
			s.run(w, &p)
			busy = true
		}
	}
	return busy
}

// run binds a pod, and its containers start.
func (s *server) run(w *world, p *corev1.Pod) {
	require.Equal(s.t, corev1.RestartPolicyNever, p.Spec.RestartPolicy, "a kubelet would start its containers again")
	pods := s.client.CoreV1().Pods(s.namespace)
	require.NoError(s.t, pods.Bind(s.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
	bound, err := pods.Get(s.ctx, p.Name, metav1.GetOptions{})
	require.NoError(s.t, err)
	at := metav1.NewTime(w.now)
	st := &bound.Status
	st.Phase, st.StartTime, st.HostIP, st.PodIP = corev1.PodRunning, &at, "10.0.0.1", "10.244.0.1"
	st.HostIPs, st.PodIPs = []corev1.HostIP{{IP: st.HostIP}}, []corev1.PodIP{{IP: st.PodIP}}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		setCondition(st, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	started := true
	for _, c := range p.Spec.InitContainers {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + c.Name, Ready: true, Started: &started}
		if c.RestartPolicy != nil {
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
		} else {
			status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at, ContainerID: status.ContainerID}
		}
		st.InitContainerStatuses = append(st.InitContainerStatuses, status)
	}
	for _, c := range p.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + c.Name, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	s.update(bound)
}

func (s *server) update(p *corev1.Pod) {
	s.t.Helper()
	now, err := s.client.CoreV1().Pods(s.namespace).UpdateStatus(s.ctx, p, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	*p = *now
}

// confirm ends a pod that was asked to end, and tells the server that it has.
func (s *server) confirm(w *world, p *corev1.Pod) (busy bool) {
	if p.Spec.NodeName == "" {
		return false // no kubelet knows of it
	}
	if !over(p) {
		s.stop(p, w.now, fate{code: 143, reason: "Error"}, 143)
		busy = true
	}
	if grace := p.DeletionGracePeriodSeconds; grace != nil && *grace > 0 {
		s.delete(p, new(int64))
		busy = true
	}
	return busy
}

func (s *server) delete(p *corev1.Pod, grace *int64) {
	options := metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{UID: &p.UID}}
	err := s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, p.Name, options)
	if !apierrors.IsNotFound(err) {
		require.NoError(s.t, err)
	}
}

// stop ends a pod's containers: one as f says, the others with a code.
func (s *server) stop(p *corev1.Pod, at time.Time, f fate, others int32) {
	s.t.Helper()
	main := f.container
	if main == "" {
		main = s.main(p)
	}
	st := &p.Status
	st.Phase = corev1.PodSucceeded
	end := func(c *corev1.ContainerStatus) {
		if c.State.Running == nil {
			return
		}
		t := &corev1.ContainerStateTerminated{ExitCode: others, Reason: "Error", ContainerID: c.ContainerID, StartedAt: c.State.Running.StartedAt, FinishedAt: metav1.NewTime(at)}
		switch {
		case c.Name == main:
			t.ExitCode, t.Reason, t.Message = f.code, f.reason, f.said
		case others == 0:
			t.Reason = "Completed"
		}
		c.State, c.Ready, c.Started = corev1.ContainerState{Terminated: t}, false, new(bool)
	}
	for i := range st.InitContainerStatuses {
		c := &st.InitContainerStatuses[i]
		end(c)
		if c.Name == f.container && c.State.Terminated.ExitCode == 0 { // it is that one which fails: the others have not begun
			st.Phase, c.State.Terminated.ExitCode, c.State.Terminated.Reason, c.State.Terminated.Message = corev1.PodFailed, f.code, f.reason, f.said
			for j := range st.ContainerStatuses {
				st.ContainerStatuses[j].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
			}
		}
	}
	for i := range st.ContainerStatuses {
		end(&st.ContainerStatuses[i])
		if t := st.ContainerStatuses[i].State.Terminated; t != nil && t.ExitCode != 0 {
			st.Phase = corev1.PodFailed
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		setCondition(st, corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "Pod" + string(st.Phase), LastTransitionTime: metav1.NewTime(at)})
	}
	s.update(p)
}

func (s *server) end(w *world, task string, f fate) bool {
	s.t.Helper()
	p := s.running(task)
	if p == nil {
		return false
	}
	killed := fate{container: f.container, code: 137, reason: "Error"}
	switch f.how {
	case exits:
		s.stop(p, w.now, f, 0)
	case evicted: // by its kubelet
		p.Status.Reason, p.Status.Message = "Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."
		disrupt(p, w.now, corev1.PodReasonTerminationByKubelet, p.Status.Message)
		s.stop(p, w.now, killed, 137)
	case preempted: // by the scheduler, which deletes it
		disrupt(p, w.now, corev1.PodReasonPreemptionByScheduler, "default-scheduler: preempting to accommodate a higher priority pod")
		s.update(p)
		s.deleteAndEnd(w, p, killed)
	case losesNode: // the taint manager deletes it, nobody answers, and the garbage collector gives it up
		disrupt(p, w.now, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
		s.update(p)
		s.delete(p, nil)
		*p = *s.get(p.Name)
		disrupt(p, w.now, "DeletionByPodGC", "PodGC: node no longer exists")
		p.Status.Phase = corev1.PodFailed
		s.update(p)
		s.delete(p, new(int64))
	case fails:
		p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, nil
		s.update(p)
	case isDeleted:
		killed.code = 143
		s.deleteAndEnd(w, p, killed)
	case vanishes:
		s.exempt[p.Name] = true
		_, err := s.client.CoreV1().Pods(s.namespace).Patch(s.ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(s.t, err)
		s.delete(p, new(int64))
	}
	s.caughtUp(s.pods())
	return true
}

func (s *server) deleteAndEnd(w *world, p *corev1.Pod, f fate) {
	s.delete(p, nil)
	*p = *s.get(p.Name)
	s.stop(p, w.now, f, f.code)
	s.delete(p, new(int64))
}

func (s *server) get(name string) *corev1.Pod {
	p, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	require.NoError(s.t, err)
	return p
}

// running is the pod of a task that runs.
func (s *server) running(task string) *corev1.Pod {
	for _, p := range s.pods() {
		if taskOf(&p) == task && !over(&p) {
			return &p
		}
	}
	return nil
}

// main is the container that a fate without one is about.
func (s *server) main(p *corev1.Pod) string {
	return cmp.Or(s.mains[p.Labels[repo.LabelRole]], p.Spec.Containers[0].Name)
}

func taskOf(p *corev1.Pod) string { return p.Labels[repo.LabelRole] + "-" + p.Labels[repo.LabelIndex] }

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func disrupt(p *corev1.Pod, at time.Time, reason, message string) {
	setCondition(&p.Status, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at),
	})
}

func setCondition(st *corev1.PodStatus, c corev1.PodCondition) {
	for i := range st.Conditions {
		if st.Conditions[i].Type == c.Type {
			st.Conditions[i] = c
			return
		}
	}
	st.Conditions = append(st.Conditions, c)
}
