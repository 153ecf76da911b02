package runner

import (
	"context"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A backend may tell of a pod long after it was created, and of its creation not
// at all when the answer is lost. Until it has told, nobody may write that a task
// attempt never started. So the loop keeps in mind which pods it has asked for,
// and has one looked for before its attempt is given up.

// asks notes that a pod is being asked for.
func (l *Loop) asks(e *entry, pod string) {
	if _, late := l.backend.(Finder); !late {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ask(pod, true)
}

// answered notes that a pod will not be, if that is what the answer says for certain.
func (l *Loop) answered(e *entry, pod string, err error) {
	code := statusCode(err)
	if code < http.StatusBadRequest || code >= http.StatusInternalServerError || code == http.StatusRequestTimeout || apierrors.IsAlreadyExists(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ask(pod, false)
}

// ask makes a copy: Decide may be reading the other. l.mu is held.
func (e *entry) ask(pod string, yes bool) {
	if e.asked[pod] == yes {
		return
	}
	asked := make(map[string]bool, len(e.asked)+1)
	for p := range e.asked {
		asked[p] = true
	}
	if yes {
		asked[pod] = true
	} else {
		delete(asked, pod)
	}
	e.asked = asked
}

// found takes out of what was asked for the pods that are seen. It adds what is not
// seen although its attempt is to be given up, or the record knows of it.
func (l *Loop) found(ctx context.Context, e *entry, all []corev1.Pod) ([]corev1.Pod, error) {
	finder, late := l.backend.(Finder)
	if !late {
		return all, nil
	}
	l.mu.Lock()
	var seek []string
	for i := range all {
		e.ask(all[i].Name, false)
	}
	e.attempts(func(a *repo.TaskAttemptRecord) {
		due := a.UID != "" || a.Stop != "" && e.asked[a.Pod]
		if a.Outcome == nil && due && !slices.ContainsFunc(all, func(p corev1.Pod) bool { return p.Name == a.Pod }) {
			seek = append(seek, a.Pod)
		}
	})
	l.mu.Unlock()
	for _, name := range seek {
		pod, err := finder.Find(ctx, e.key.Namespace, name)
		switch {
		case apierrors.IsNotFound(err):
			l.mu.Lock()
			e.ask(name, false)
			l.mu.Unlock()
		case err != nil:
			return nil, err
		default:
			all = append(slices.Clip(all), *pod)
		}
	}
	return all, nil
}

// seeks says whether an attempt is to be given up whose pod has to be looked for first.
func (e *entry) seeks() (yes bool) {
	if len(e.asked) > 0 {
		e.attempts(func(a *repo.TaskAttemptRecord) {
			yes = yes || a.Outcome == nil && a.Stop != "" && a.UID == "" && e.asked[a.Pod]
		})
	}
	return yes
}

// look has a job looked at again at once. l.mu is held.
func (l *Loop) look(now time.Time, e *entry) {
	if e.seeks() {
		l.queue.add(e.key, now)
	}
}
