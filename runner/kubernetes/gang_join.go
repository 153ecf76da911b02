package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// gangsFor is how long the server's answer to what it offers is good.
const gangsFor = time.Minute

// gangs remembers what the server offers. Who waits for somebody else's question
// to be answered may leave.
type gangs struct {
	asking chan struct{} // holds one token: who has it may ask, and look
	offers offers
	until  time.Time
}

func newGangs() gangs { return gangs{asking: make(chan struct{}, 1)} }

// party is a run whose pods start together, and how.
type party struct {
	run *repo.Run
	choice
	mu   sync.Mutex
	made string // the gang whose object is there
}

// offered asks the server what it has for gangs, now and then.
func (b *Backend) offered(ctx context.Context) (offers, error) {
	g := &b.gangs
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	case <-ctx.Done():
		return offers{}, ctx.Err()
	}
	if time.Now().Before(g.until) {
		return g.offers, nil
	}
	found, err := detectGang(answers{ctx, b.client.Discovery().RESTClient()})
	if err != nil {
		return offers{}, err
	}
	g.offers, g.until = found, time.Now().Add(gangsFor)
	return found, nil
}

// Gang says how the pods of a job would start together, and why, in a sentence.
func (b *Backend) Gang(ctx context.Context, job *repo.Job) (string, error) {
	o, err := b.offered(ctx)
	if err != nil {
		return "", err
	}
	return o.choose(job, b.options.Gang, b.options.GangScheduler).String(), nil
}

// gather decides how a run's pods start together; nil if it does not matter.
// What was decided for a run holds, also for the next daemon, which reads it
// from the pods that there are.
func (b *Backend) gather(ctx context.Context, run *repo.Run) (*party, error) {
	if !run.Job.Gang {
		return nil, nil
	}
	b.mu.Lock()
	known := b.runs[run.ID].gang
	b.mu.Unlock()
	if known != nil {
		return &party{run: run, choice: known.choice}, nil
	}
	o, err := b.offered(ctx)
	if err != nil {
		return nil, err
	}
	c := o.choose(&run.Job, b.options.Gang, b.options.GangScheduler)
	if kind, why, ok := b.gathered(run); ok && kind != c.kind && (kind == GangNone || o.has(kind)) {
		c = o.pick(asked(&run.Job), b.options.GangScheduler, kind, why)
	}
	return &party{run: run, choice: c}, nil
}

// gathered is what was decided for a run before this daemon was there.
func (b *Backend) gathered(run *repo.Run) (kind Gang, why string, ok bool) {
	for _, informer := range b.informers() {
		found, err := informer.GetIndexer().ByIndex(byJob, run.Job.Key.String())
		if err != nil {
			continue
		}
		for _, o := range found {
			pod, is := o.(*corev1.Pod)
			if !is || pod.Labels[repo.LabelRun] != run.ID {
				continue
			}
			if by, why, ok := strings.Cut(pod.Annotations[repo.AnnotationGangBy], ": "); ok && Gang(by) != "" && Gang(by).Known() {
				return Gang(by), why, true
			}
		}
	}
	return "", "", false
}

// join makes a pod one of its gang, after the object that the gang needs.
func (b *Backend) join(ctx context.Context, pod *corev1.Pod) error {
	b.mu.Lock()
	known := b.runs[pod.Labels[repo.LabelRun]]
	b.mu.Unlock()
	p, g := known.gang, repo.GangOf(pod)
	switch {
	case p == nil && g == nil:
		return nil
	case p == nil:
		return fmt.Errorf("pod %s/%s: its run is not prepared, and it is of a gang", pod.Namespace, pod.Name)
	}
	if role := p.run.Job.Role(pod.Labels[repo.LabelRole]); role == nil || !role.InGang() {
		return nil
	}
	if g != nil && !g.Late {
		if err := b.assemble(ctx, p, *g, known); err != nil {
			return fmt.Errorf("gang %s: %w", g.Name, err)
		}
	}
	p.member(p.run, pod, g)
	return nil
}

// assemble makes the object of a gang, once for all its pods.
func (b *Backend) assemble(ctx context.Context, p *party, g repo.Gang, known knownRun) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	object := p.group(p.run, b.repository(), g)
	if object == nil || p.made == g.Name {
		return nil
	}
	object.SetOwnerReferences([]metav1.OwnerReference{ownerReference(p.run.ID, known.owner)})
	groups := b.dynamic.Resource(p.version.WithResource("podgroups")).Namespace(object.GetNamespace())
	if _, err := groups.Create(ctx, object, metav1.CreateOptions{FieldManager: manager}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	p.made = g.Name
	return nil
}
