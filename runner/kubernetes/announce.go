package kubernetes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// announcement is an event to be.
type announcement struct {
	namespace, pod, uid, reason, message string
	warning                              bool
	at                                   time.Time
}

// Announce writes an event for a pod, so that who looks at the cluster reads
// what was decided about it. It does not wait, and when the server has no time
// for it, the event is lost: the record is what counts.
func (b *Backend) Announce(_ context.Context, namespace, pod, uid, reason, message string, warning bool) {
	select {
	case b.news <- announcement{namespace: namespace, pod: pod, uid: uid, reason: reason, message: message, warning: warning, at: time.Now()}:
	default:
	}
}

func (b *Backend) announceAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-b.news:
			one, cancel := context.WithTimeout(ctx, patience)
			_, err := b.client.CoreV1().Events(a.namespace).Create(one, a.event(), metav1.CreateOptions{FieldManager: manager})
			cancel()
			if err != nil && !apierrors.IsAlreadyExists(err) && !b.degrades("events of pods cannot be written", err) {
				b.options.Log.Debug().Err(err).Str("pod", a.pod).Msg("an event cannot be written")
			}
		}
	}
}

// event has a name that a second announcement of the same has too.
func (a *announcement) event() *corev1.Event {
	kind, at := corev1.EventTypeNormal, metav1.NewTime(a.at)
	if a.warning {
		kind = corev1.EventTypeWarning
	}
	digest := sha256.Sum256([]byte(a.uid + "\x00" + a.reason + "\x00" + a.message))
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%.200s.%x", a.pod, digest[:8]), Namespace: a.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: a.namespace, Name: a.pod, UID: types.UID(a.uid)},
		Reason:         a.reason, Message: fmt.Sprintf("%.1000s", a.message), Type: kind, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: manager}, ReportingController: "trainyard.dev/daemon",
	}
}
