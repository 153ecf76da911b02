package behaviour

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

// inStep is the backend with the clock of the script. An API server stamps a few
// things by its own, which goes on while a busy machine plays: that a pod was
// made, bound, asked to end, or ended without a node's word. They are told as of
// the step in which they came about. Who asks for logs is told by the nodes here
// that nothing was written. All other times are the test's own.
type inStep struct {
	*kubernetes.Backend
	now   *time.Time
	first map[string]time.Time // when something was seen first, by pod and what it is
}

// Pods implements runner.Backend. The scene calls it within each step.
func (b *inStep) Pods(ctx context.Context, key repo.Key) ([]corev1.Pod, error) {
	pods, err := b.Backend.Pods(ctx, key)
	for i := range pods {
		b.translate(&pods[i])
	}
	return pods, err
}

func (b *inStep) translate(p *corev1.Pod) {
	p.CreationTimestamp = b.at(p, "created")
	if p.Annotations[repo.AnnotationOutput] != "" {
		p.Annotations[repo.AnnotationOutput] = time.Time{}.Format(time.RFC3339Nano)
	}
	if p.DeletionTimestamp != nil {
		by := b.at(p, "deleted")
		if g := p.DeletionGracePeriodSeconds; g != nil {
			by.Time = by.Add(time.Duration(*g) * time.Second)
		}
		p.DeletionTimestamp = &by
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled || c.Type == "trainyard.dev/Ended" {
			c.LastTransitionTime = b.at(p, string(c.Type)+string(c.Status))
		}
	}
}

// at is the step in which something was seen first, as a server would write it.
func (b *inStep) at(p *corev1.Pod, what string) metav1.Time {
	what = string(p.UID) + what
	if _, known := b.first[what]; !known {
		b.first[what] = *b.now
	}
	return metav1.NewTime(b.first[what].Truncate(time.Second))
}
