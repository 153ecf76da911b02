package simulation

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// cluster is what really is: pods, and what was prepared for runs.
type cluster struct {
	pods   []*pod // in the order of their creation
	runs   []*prepared
	nodes  [nodes]node
	uids   int
	quota  bool // no pod is taken until it is lifted
	coarse bool // times are told in whole seconds
}

const nodes = 3

type node struct{ silent bool }

// prepared is what Prepare has made for a run, under a UID of its own.
type prepared struct {
	uid  int
	run  repo.Run
	late bool // by a request that nobody waited for any more
}

// pod is one on the cluster. api is how the server shows it: replaced with each
// change, never changed.
type pod struct {
	*fate
	api      *corev1.Pod
	version  int
	node     int // from 1; 0 is none yet
	stubborn bool
}

func (p *pod) held() bool     { return len(p.api.Finalizers) > 0 }
func (p *pod) deleting() bool { return p.api.DeletionTimestamp != nil }
func (p *pod) ended() bool {
	return p.api.Status.Phase == corev1.PodSucceeded || p.api.Status.Phase == corev1.PodFailed
}
func (p *pod) running() bool { return p.api.Status.Phase == corev1.PodRunning }

func (c *cluster) find(name string) *pod {
	for _, p := range c.pods {
		if p.name == name {
			return p
		}
	}
	return nil
}

func (c *cluster) run(id string) *prepared {
	for _, r := range c.runs {
		if r.run.ID == id {
			return r
		}
	}
	return nil
}

// told is the time as the cluster tells it.
func (w *world) told() metav1.Time {
	if w.cluster.coarse {
		return metav1.NewTime(w.now.Truncate(time.Second))
	}
	return metav1.NewTime(w.now)
}

// update changes a pod and lets every daemon know, sooner or later.
func (w *world) update(p *pod, change func(*corev1.Pod)) {
	api := *p.api
	change(&api)
	p.api = &api
	p.version++
	w.tell(p.name, p)
}

// create is the server taking a pod.
func (w *world) create(api *corev1.Pod, owner int) *pod {
	c := &w.cluster
	c.uids++
	api.UID, api.CreationTimestamp = uid(c.uids), w.told()
	api.Status.Phase = corev1.PodPending
	run, attempt, _ := repo.AttemptOf(api)
	p := &pod{api: api, fate: w.laws.born(w, api, run, attempt)}
	p.stubborn = w.chance(10)
	c.pods = append(c.pods, p)
	w.tell(p.name, p)
	if r := c.run(run); r == nil || r.uid != owner { // its owner is gone: the cluster collects it
		p.byOthers = true
		w.askToEnd(p)
	}
	return p
}

// place gives a pod its node.
func (w *world) place(p *pod, node int) {
	p.node = node
	w.update(p, func(api *corev1.Pod) {
		api.Spec.NodeName = "node-" + strconv.Itoa(node)
		api.Status.Conditions = append(clip(api.Status.Conditions), corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: w.told(),
		})
	})
}

// start lets a pod's container run.
func (w *world) start(p *pod) {
	w.update(p, func(api *corev1.Pod) {
		api.Status.Phase = corev1.PodRunning
		api.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.told()}},
		}}
	})
}

// cutOff takes the sandbox of a pod away between the creation of its container
// and its start. Its kubelet makes no other one.
func (w *world) cutOff(p *pod) {
	p.cutOff = true
	w.update(p, func(api *corev1.Pod) {
		api.Spec.RestartPolicy = corev1.RestartPolicyNever
		api.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "made"}}
		api.Status.Conditions = append(clip(api.Status.Conditions), corev1.PodCondition{
			Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse, LastTransitionTime: w.told(),
		})
	})
}

// end lets a pod end with an exit code.
func (w *world) end(p *pod, code int32) {
	if p.ended() {
		return
	}
	p.fate.end(code, p.deleting())
	p.endedAt = w.now
	if w.tracing() {
		w.say("pod %s ends with %d", p.name, code)
	}
	w.update(p, func(api *corev1.Pod) {
		api.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			api.Status.Phase = corev1.PodFailed
		}
		t := &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: w.told()}
		if s := api.Status.ContainerStatuses; len(s) > 0 && s[0].State.Running != nil {
			t.StartedAt = s[0].State.Running.StartedAt
		} else {
			t.StartedAt = api.CreationTimestamp
		}
		api.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: t}}}
	})
	w.collect(p)
}

// disrupt marks a pod as taken by the cluster, before it ends.
func (w *world) disrupt(p *pod, reason string) {
	p.taken = true
	w.update(p, func(api *corev1.Pod) {
		api.Status.Conditions = append(clip(api.Status.Conditions), corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: w.told(),
		})
	})
}

const grace = 30

// askToEnd is the server taking the deletion of a pod.
func (w *world) askToEnd(p *pod) {
	if !p.deleting() {
		p.leaving = true
		p.unclear = p.ended() && w.now.Sub(p.endedAt) <= 11*time.Second
		seconds := int64(grace)
		at := metav1.NewTime(w.told().Add(grace * time.Second))
		if p.node == 0 || p.ended() {
			seconds, at = 0, w.told()
		}
		w.update(p, func(api *corev1.Pod) { api.DeletionTimestamp, api.DeletionGracePeriodSeconds = &at, &seconds })
		if p.node == 0 && !p.ended() { // no kubelet knows of it: it will never run
			w.neverRan(p)
		}
	}
	w.collect(p)
}

// neverRan is the end of a pod that nothing ran of.
func (w *world) neverRan(p *pod) {
	p.fate.end(-1, true)
	w.update(p, func(api *corev1.Pod) {
		api.Status.Phase = corev1.PodFailed
		api.Status.Conditions = append(clip(api.Status.Conditions), corev1.PodCondition{
			Type: "trainyard.dev/Ended", Status: corev1.ConditionTrue, LastTransitionTime: w.told(),
		})
	})
}

// giveUp ends a pod without a word from its node.
func (w *world) giveUp(p *pod) {
	if !p.ended() {
		w.neverRan(p)
	}
	w.askToEnd(p)
}

// release takes the finalizer off.
func (w *world) release(p *pod) {
	if !p.held() {
		return
	}
	w.laws.released(w, p)
	w.update(p, func(api *corev1.Pod) { api.Finalizers = nil })
	w.collect(p)
}

// collect removes a pod that has ended, is to go and is held by nobody.
func (w *world) collect(p *pod) {
	if !p.ended() || !p.deleting() || p.held() {
		return
	}
	for i, q := range w.cluster.pods {
		if q == p {
			w.cluster.pods = append(w.cluster.pods[:i:i], w.cluster.pods[i+1:]...)
			w.tell(p.name, nil)
			return
		}
	}
}

// forget removes what was prepared for a run, and with it all that it owns.
func (w *world) forget(r *prepared) {
	for i, q := range w.cluster.runs {
		if q == r {
			w.cluster.runs = append(w.cluster.runs[:i:i], w.cluster.runs[i+1:]...)
		}
	}
	for _, p := range append([]*pod(nil), w.cluster.pods...) {
		if p.run == r.run.ID {
			p.byOthers = true
			w.askToEnd(p)
		}
	}
}

func clip(c []corev1.PodCondition) []corev1.PodCondition { return c[:len(c):len(c)] }
