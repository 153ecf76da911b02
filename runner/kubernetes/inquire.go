package kubernetes

import (
	"bytes"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// most pods are asked for in one inquiry.
	most = 200
)

// inquire asks, now and then, for what the pods' own status does not say: when
// pods last wrote something whose run asks for progress, and why pods do not
// start that have a node (a volume that cannot be mounted, a sandbox that
// cannot be made): only events tell.
func (b *Backend) inquire(ctx context.Context) {
	tick := time.NewTicker(inquiry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			asked := 0
			for _, informer := range b.informers {
				for _, o := range informer.GetStore().List() {
					pod, ok := o.(*corev1.Pod)
					if !ok || asked == most || ctx.Err() != nil {
						continue
					}
					if b.ask(ctx, pod, now) {
						asked++
					}
				}
			}
		}
	}
}

// ask says whether the server was asked anything about a pod.
func (b *Backend) ask(ctx context.Context, pod *corev1.Pod, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case pod.Status.Phase == corev1.PodRunning && b.wantsProgress(pod):
		if at, ok := b.lastOutput(ctx, pod); ok {
			b.mu.Lock()
			b.output[pod.UID] = at
			b.mu.Unlock()
		}
		return true
	case pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && now.Sub(pod.CreationTimestamp.Time) > slow:
		if why := b.warning(ctx, pod); why != "" {
			b.mu.Lock()
			if b.stuck[pod.UID] != why {
				b.stuck[pod.UID] = why
				b.tell(keyOf(pod))
			}
			b.mu.Unlock()
		}
		return true
	case forced(pod, now):
		b.mu.Lock()
		b.tell(keyOf(pod))
		b.mu.Unlock()
	}
	return false
}

func (b *Backend) wantsProgress(pod *corev1.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[pod.Labels[repo.LabelRun]].progress > 0
}

// lastOutput is the time of the last line of a pod's first container.
func (b *Backend) lastOutput(ctx context.Context, pod *corev1.Pod) (time.Time, bool) {
	one, limit := int64(1), int64(4096)
	text, err := b.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: decisive(pod), TailLines: &one, LimitBytes: &limit, Timestamps: true,
	}).DoRaw(ctx)
	if err != nil {
		return time.Time{}, false
	}
	stamp, _, _ := bytes.Cut(text, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	return at, err == nil
}

// warning is the newest warning among a pod's events.
func (b *Backend) warning(ctx context.Context, pod *corev1.Pod) string {
	selector := fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}
	list, err := b.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String(), Limit: 50})
	if err != nil {
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
