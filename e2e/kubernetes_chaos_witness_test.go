package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// life is what was seen of one pod.
type life struct {
	name, job, run string
	uid            types.UID
	node           string
	attempt        repo.TaskAttempt
	created, ended time.Time // to the second; ended is zero while it may run
	first, running uint64    // resource versions: when it was first seen, and last seen running
	held           bool
	released       bool
	tip            string // of the status branch, just after it was released
	byHand         bool   // somebody deleted it …
	byForce        bool   // … without waiting for its node
	taken          bool   // the cluster says that it took the pod away
	restarts       int32  // of its container, by its kubelet
}

// witness sees every pod of a namespace, by a watch of its own that is renewed
// at once whenever it breaks.
type witness struct {
	w     *onCluster
	mu    sync.Mutex
	lives map[types.UID]*life
}

func (w *onCluster) watchLives() *witness {
	s := &witness{w: w, lives: map[types.UID]*life{}}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			s.look(ctx)
			pause(ctx, 50*time.Millisecond)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return s
}

// pause waits, no longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(max(0, d)):
	}
}

// look lists all pods, and watches until the connection breaks.
func (s *witness) look(ctx context.Context) {
	pods := s.w.c.Client().CoreV1().Pods(s.w.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].UID] = true
		s.see(&list.Items[i])
	}
	s.missing(there)
	changes, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer changes.Stop()
	for e := range changes.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case !ok:
			return
		case e.Type == watch.Deleted:
			s.see(pod)
			s.gone(pod.UID)
		default:
			s.see(pod)
		}
	}
}

func (s *witness) see(pod *corev1.Pod) {
	run, attempt, ok := repo.AttemptOf(pod)
	if !ok {
		return
	}
	version, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[pod.UID]
	if l == nil {
		l = &life{name: pod.Name, job: pod.Labels[repo.LabelJob], run: run, uid: pod.UID, attempt: attempt, created: pod.CreationTimestamp.Time, first: version}
		s.lives[pod.UID] = l
	}
	l.node = pod.Spec.NodeName
	for _, c := range pod.Status.ContainerStatuses {
		l.restarts = max(l.restarts, c.RestartCount)
	}
	for _, c := range pod.Status.Conditions {
		l.taken = l.taken || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	}
	switch pod.Status.Phase {
	case corev1.PodRunning:
		l.running = max(l.running, version)
	case corev1.PodSucceeded, corev1.PodFailed:
		if l.ended.IsZero() {
			l.ended = endOf(pod)
		}
	}
	held := slices.Contains(pod.Finalizers, repo.Finalizer)
	if l.held && !held {
		s.release(l)
	}
	l.held = held
}

// endOf is when the last container ended, zero if none has run.
func endOf(pod *corev1.Pod) (at time.Time) {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil && c.State.Terminated.FinishedAt.After(at) {
			at = c.State.Terminated.FinishedAt.Time
		}
	}
	return at
}

// gone notes that the server has a pod no more; missing, those that it does not name.
func (s *witness) gone(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lives[uid]; l != nil && l.held {
		s.release(l)
	}
}

func (s *witness) missing(there map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, l := range s.lives {
		if !there[uid] && l.held {
			s.release(l)
		}
	}
}

// release notes what had been pushed when a pod was let go; s.mu is held.
func (s *witness) release(l *life) {
	l.held, l.released = false, true
	for _, dir := range []string{s.w.remote, s.w.remote + away} {
		if text, err := os.ReadFile(filepath.Join(dir, "refs", "heads", filepath.FromSlash(repo.StatusBranch))); err == nil {
			l.tip = strings.TrimSpace(string(text))
			return
		}
	}
}

// all that were seen, by name and then in the order of their births.
func (s *witness) all() []*life {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*life, 0, len(s.lives))
	for _, l := range s.lives {
		known := *l
		out = append(out, &known)
	}
	slices.SortFunc(out, func(a, b *life) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return int(int64(a.first) - int64(b.first))
	})
	return out
}

// delete deletes a pod that runs or waits, the nth of them, and says which.
func (s *witness) delete(n int, force bool) string {
	s.mu.Lock()
	var living []*life
	for _, l := range s.lives {
		if l.held && l.ended.IsZero() && !l.byHand {
			living = append(living, l)
		}
	}
	s.mu.Unlock()
	if len(living) == 0 {
		return "none lives"
	}
	slices.SortFunc(living, func(a, b *life) int { return strings.Compare(a.name, b.name) })
	l := living[n%len(living)]
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.uid}}
	if force {
		options.GracePeriodSeconds = new(int64)
	}
	s.mu.Lock()
	l.byHand, l.byForce = true, force
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.w.t.Context(), 10*time.Second)
	defer cancel()
	err := s.w.c.Client().CoreV1().Pods(s.w.namespace).Delete(ctx, l.name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return l.name + ", which had gone"
	}
	if err != nil {
		return l.name + ": " + err.Error()
	}
	return l.name
}

// creations counts the pods that the server says it has made, by name: also
// those that lived while nobody watched.
func (w *onCluster) creations() map[string]int {
	file, err := os.Open(w.c.AuditLog())
	require.NoError(w.t, err)
	defer file.Close()
	out := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Stage, Verb, RequestURI string
			ObjectRef               struct{ Resource, Subresource, Namespace, Name string }
			ResponseStatus          struct{ Code int }
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil { // the line that the server was killed at
			continue
		}
		o := event.ObjectRef
		made := event.Stage == "ResponseComplete" && event.Verb == "create" && event.ResponseStatus.Code == 201
		if made && o.Resource == "pods" && o.Subresource == "" && o.Namespace == w.namespace && !strings.Contains(event.RequestURI, "dryRun") {
			out[o.Name]++
		}
	}
	require.NoError(w.t, lines.Err())
	return out
}
