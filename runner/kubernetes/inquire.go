package kubernetes

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	// inquiry is how often the server is asked what pods do not say themselves.
	inquiry = 15 * time.Second
	// slow is how long a pod with a node may take to start before somebody asks why.
	slow = 20 * time.Second
	// most pods are asked for in one inquiry, a few of them at once.
	most   = 200
	atOnce = 8
	// answer is how long one answer is waited for: it comes from the pod's node,
	// which may be gone.
	answer = 5 * time.Second
)

// question is a pod about which the server is to be asked.
type question struct {
	pod   *corev1.Pod
	first bool      // before all others
	asked time.Time // when it was asked last
}

// inquire asks, now and then, for what the pods' own status does not say: when
// pods last wrote something whose run asks for progress, and why pods do not
// start that have a node (a volume that cannot be mounted, a sandbox that
// cannot be made): only events tell.
func (b *Backend) inquire(ctx context.Context) {
	tick := time.NewTicker(inquiry)
	defer tick.Stop()
	asked := map[types.UID]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			var group errgroup.Group
			group.SetLimit(atOnce)
			for _, q := range b.questions(now, asked) {
				asked[q.pod.UID] = now
				group.Go(func() error {
					b.ask(ctx, q.pod)
					return nil
				})
			}
			_ = group.Wait()
		}
	}
}

// questions are the pods to ask about now: of each run the one that wrote last,
// as often one task speaks for all, and of the others those that were not asked
// about for longest. What is known of pods that are gone is dropped.
func (b *Backend) questions(now time.Time, asked map[types.UID]time.Time) []question {
	var all []question
	present := map[types.UID]bool{}
	speaks := map[string]int{} // by run, the index of the pod that wrote last
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, informer := range b.informers() {
		for _, o := range informer.GetStore().List() {
			pod, ok := o.(*corev1.Pod)
			if !ok {
				continue
			}
			present[pod.UID] = true
			q := question{pod: pod, asked: asked[pod.UID]}
			switch run := pod.Labels[repo.LabelRun]; {
			case b.wantsProgress(pod):
				if best, ok := speaks[run]; !ok || b.output[pod.UID].After(b.output[all[best].pod.UID]) {
					speaks[run] = len(all)
				}
				all = append(all, q)
			case startsSlowly(pod, now):
				all = append(all, q)
			case b.lost(pod, now):
				b.changes.Tell(keyOf(pod))
			}
		}
	}
	for _, i := range speaks {
		all[i].first = true
	}
	maps.DeleteFunc(asked, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	maps.DeleteFunc(b.output, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	maps.DeleteFunc(b.forced, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	maps.DeleteFunc(b.stuck, func(uid types.UID, _ string) bool { return !present[uid] })
	slices.SortFunc(all, func(x, y question) int {
		switch {
		case x.first && !y.first:
			return -1
		case y.first && !x.first:
			return 1
		}
		return x.asked.Compare(y.asked)
	})
	return all[:min(len(all), most)]
}

func startsSlowly(pod *corev1.Pod, now time.Time) bool {
	return pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && now.Sub(pod.CreationTimestamp.Time) > slow
}

// ask asks the server about one pod.
func (b *Backend) ask(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	if pod.Status.Phase != corev1.PodRunning {
		why := b.warning(ctx, pod)
		b.mu.Lock()
		defer b.mu.Unlock()
		if why != "" && b.stuck[pod.UID] != why {
			b.stuck[pod.UID] = why
			b.changes.Tell(keyOf(pod))
		}
		return
	}
	at, known := b.lastOutput(ctx, pod)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !known {
		delete(b.output, pod.UID)
		return
	}
	if _, before := b.output[pod.UID]; !before {
		b.changes.Tell(keyOf(pod)) // what was taken for now is known
	}
	b.output[pod.UID] = at
}

// wantsProgress says whether it matters when a pod last wrote something; b.mu is held.
func (b *Backend) wantsProgress(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && b.runs[pod.Labels[repo.LabelRun]].progress > 0
}

// lastOutput is the time of the last line of a pod's first container, zero if
// there is none. It is not known when nobody could be asked: a job is not taken
// for stuck because the server, or a node, does not answer.
func (b *Backend) lastOutput(ctx context.Context, pod *corev1.Pod) (at time.Time, known bool) {
	one, limit := int64(1), int64(4096)
	text, err := b.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: decisive(pod), TailLines: &one, LimitBytes: &limit, Timestamps: true,
	}).DoRaw(ctx)
	if err != nil {
		b.degrades("logs of pods cannot be read: nobody knows of their progress", err)
		return time.Time{}, apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)
	}
	stamp, _, _ := bytes.Cut(text, []byte(" "))
	at, _ = time.Parse(time.RFC3339Nano, string(stamp))
	return at, true
}

// warning is the newest warning among a pod's events.
func (b *Backend) warning(ctx context.Context, pod *corev1.Pod) string {
	selector := fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}
	list, err := b.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String(), Limit: 50})
	if err != nil {
		b.degrades("events of pods cannot be read: nobody knows why they do not start", err)
		return ""
	}
	var newest time.Time
	why := ""
	for i := range list.Items {
		e := &list.Items[i]
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if e.InvolvedObject.UID == types.UID(pod.UID) && !at.Before(newest) {
			newest, why = at, e.Reason+": "+e.Message
		}
	}
	return why
}
