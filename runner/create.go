package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// createAll makes the pods of one attempt of a run. The policy is asked here
// too: a record can be pushed by anybody, and must not bring a run into being
// that could not have been started.
func (l *Loop) createAll(ctx context.Context, now time.Time, e *entry, run *repo.Run, creations []Action) error {
	if why := l.forbidden(&run.Job); why != "" {
		l.refuse(now, e, creations, "the policy forbids it: "+why)
		return nil
	}
	addr, err := l.prepare(ctx, e, run, creations)
	switch {
	case err != nil && isFinal(err):
		l.refuse(now, e, creations, refusal(err))
		return nil
	case err != nil:
		l.hold(e, creations, refusal(err))
		return err
	}
	return l.createEach(ctx, now, e, run, creations, addr)
}

func (l *Loop) forbidden(job *repo.Job) string {
	if l.opts.Forbidden == nil {
		return ""
	}
	return l.opts.Forbidden(job)
}

// refuse notes why pods will never be, and has the job looked at again.
func (l *Loop) refuse(now time.Time, e *entry, creations []Action, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range creations {
		e.refused[a.Pod] = why
	}
	l.queue.add(e.key, now)
}

// hold notes why pods are not there yet.
func (l *Loop) hold(e *entry, creations []Action, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range creations {
		e.troubles[a.Pod] = why
	}
}

// prepare makes what an attempt needs and rehearses it, once for each process
// and each change of its run.
func (l *Loop) prepare(ctx context.Context, e *entry, run *repo.Run, creations []Action) (repo.Addresses, error) {
	attempt := creations[0].Attempt.RunAttempt
	id := repo.PodName(run.ID+run.Job.Digest, repo.TaskAttempt{RunAttempt: attempt})
	l.mu.Lock()
	addr := e.prepared[id]
	l.mu.Unlock()
	if addr != nil {
		return addr, nil
	}
	l.mu.Lock() // before the answer, which may get lost: what was made has to be forgotten too
	e.runs = slices.DeleteFunc(slices.Clone(e.runs), func(r repo.Run) bool { return r.ID == run.ID })
	e.runs = append(e.runs, *run)
	l.mu.Unlock()
	addr, err := l.backend.Prepare(ctx, run, attempt)
	if err != nil {
		return nil, err
	}
	if err := l.rehearse(ctx, run, creations, addr); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.prepared = map[string]repo.Addresses{id: addr}
	return addr, nil
}

// unprepare has what a job's pods need made again before the next ones.
func (l *Loop) unprepare(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.prepared = map[string]repo.Addresses{}
}

// rehearse asks whether the backend would take a pod of each role, before
// there is any. Of a single role the first pod tells as much.
func (l *Loop) rehearse(ctx context.Context, run *repo.Run, creations []Action, addr repo.Addresses) error {
	to, ok := l.backend.(Rehearser)
	if !ok {
		return nil
	}
	roles := map[string]bool{}
	var pods []*corev1.Pod
	for _, a := range creations {
		if roles[a.Attempt.Role] {
			continue
		}
		roles[a.Attempt.Role] = true
		pod, err := stamped(run, a, addr)
		if err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	if len(pods) < 2 {
		return nil
	}
	err := to.Rehearse(ctx, pods)
	if apierrors.IsAlreadyExists(err) || isNoRehearsal(err) {
		return nil
	}
	return err
}

// stamped is the pod of a creation.
func stamped(run *repo.Run, a Action, addr repo.Addresses) (*corev1.Pod, error) {
	pod, err := run.Pod(a.Attempt, addr)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	a.Avoid.Apply(&pod.Spec)
	if a.Gang != nil {
		a.Gang.Mark(pod)
	}
	return pod, nil
}

// createEach makes pods side by side, few at first. When one meets trouble the
// rest is not tried in this pass: five hundred pods over a quota would all be
// told the same.
func (l *Loop) createEach(ctx context.Context, now time.Time, e *entry, run *repo.Run, creations []Action, addr repo.Addresses) error {
	w := l.window(e.key.Namespace)
	rest := creations
	var group errgroup.Group
	for len(rest) > 0 && w.enter() {
		a := rest[0]
		rest = rest[1:]
		if w.most == 1 { // nothing goes on beside it: the order of effects is that of the actions
			w.leave(l.create(ctx, now, e, run, a, addr))
			continue
		}
		group.Go(func() error {
			w.leave(l.create(ctx, now, e, run, a, addr))
			return nil
		})
	}
	_ = group.Wait()
	if w.trouble != nil {
		l.hold(e, rest, refusal(w.trouble))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widths[e.key.Namespace] = w.width
	return w.trouble
}

// errRefused says that a pod was refused for good; it is noted already.
var errRefused = errors.New("refused")

func (l *Loop) create(ctx context.Context, now time.Time, e *entry, run *repo.Run, a Action, addr repo.Addresses) error {
	pod, err := stamped(run, a, addr)
	if err == nil {
		l.asks(e, pod.Name)
		err = l.backend.Create(ctx, pod)
		l.answered(now, e, pod.Name, err)
	}
	switch {
	case err == nil:
		if l.opts.Hooks.Created != nil {
			l.opts.Hooks.Created()
		}
	case apierrors.IsAlreadyExists(err):
	case isFinal(err):
		l.refuse(now, e, []Action{a}, refusal(err))
		return errRefused
	default:
		if apierrors.IsNotFound(err) { // somebody deleted what was prepared
			l.unprepare(e)
		}
		l.hold(e, []Action{a}, refusal(err))
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(e.troubles, a.Pod)
	return nil
}

// window lets creations go on side by side: one more with each that succeeds,
// up to most, and none any more after one that did not.
type window struct {
	mu          sync.Mutex
	left        *sync.Cond
	width, most int
	inside      int
	closed      bool
	trouble     error // the first
}

// window of creations in a namespace: as wide as it was when the last one closed.
func (l *Loop) window(namespace string) *window {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &window{width: max(1, l.widths[namespace]), most: l.opts.Parallel}
	w.left = sync.NewCond(&w.mu)
	return w
}

// enter waits for a place, and says whether there is any.
func (w *window) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.inside >= w.width && !w.closed {
		w.left.Wait()
	}
	if w.closed {
		return false
	}
	w.inside++
	return true
}

// leave gives a place back with what the creation came to.
func (w *window) leave(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
	switch {
	case err == nil && !w.closed:
		w.width = min(w.most, w.width+1)
	case err == nil:
	case errors.Is(err, errRefused):
		w.closed = true
	default:
		w.closed, w.width = true, 1
		if w.trouble == nil {
			w.trouble = err
		}
	}
	w.left.Broadcast()
}
