package runner

import (
	"context"
	"maps"
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
	if _, known := e.asked[pod]; !known {
		e.asked[pod] = time.Time{}
	}
}

// answered notes that a pod is there, or will not be, if that is what the answer
// to who asked for it says for certain.
func (l *Loop) answered(now time.Time, e *entry, pod string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, asked := e.asked[pod]; !asked {
		return
	}
	switch code := statusCode(err); {
	case err == nil, apierrors.IsAlreadyExists(err):
		e.asked[pod] = now
	case code < http.StatusBadRequest, code >= http.StatusInternalServerError, code == http.StatusRequestTimeout:
	default:
		delete(e.asked, pod)
	}
}

// unanswered are the creations without those of pods that are there by the
// backend's own word, and of which it is soon to tell.
func (l *Loop) unanswered(now time.Time, e *entry, creations []Action) []Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(creations, func(a Action) bool {
		at := e.asked[a.Pod]
		told := !at.IsZero() && now.Sub(at).Abs() < longestWait
		if told {
			l.queue.add(e.key, at.Add(longestWait))
		}
		return told
	})
}

// unseen are the pods that may be there without anybody having seen them. l.mu is held.
func (e *entry) unseen() map[string]bool {
	pods := make(map[string]bool, len(e.asked))
	for pod := range e.asked {
		pods[pod] = true
	}
	return pods
}

// found takes out of what was asked for the pods that are seen. It adds what is not
// seen although its attempt is to be given up, or the record knows of it.
func (l *Loop) found(ctx context.Context, e *entry, all []corev1.Pod) ([]corev1.Pod, error) {
	finder, late := l.backend.(Finder)
	if !late {
		return all, nil
	}
	seen := make(map[string]bool, len(all))
	for i := range all {
		seen[all[i].Name] = true
	}
	l.mu.Lock()
	maps.DeleteFunc(e.asked, func(pod string, _ time.Time) bool { return seen[pod] })
	var seek []string
	e.attempts(func(a *repo.TaskAttemptRecord) {
		_, asked := e.asked[a.Pod]
		due := a.UID != "" || a.Stop != "" && asked
		if a.Outcome == nil && due && !seen[a.Pod] {
			seek = append(seek, a.Pod)
		}
	})
	l.mu.Unlock()
	for _, name := range seek {
		pod, err := finder.Find(ctx, e.key.Namespace, name)
		switch {
		case apierrors.IsNotFound(err):
			l.mu.Lock()
			delete(e.asked, name)
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
			_, asked := e.asked[a.Pod]
			yes = yes || a.Outcome == nil && a.Stop != "" && a.UID == "" && asked
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
