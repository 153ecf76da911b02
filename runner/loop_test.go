package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// memory is a backend whose pods end as script says, after a second.
type memory struct {
	mu              sync.Mutex
	pods            map[string]*corev1.Pod
	runs            map[string]repo.Run
	script          func(repo.TaskAttempt) int32 // exit code; -1 runs until it is deleted
	refuse          string
	failing         int                     // that many creations fail first
	quota           int                     // so many pods may be, 0 for any number
	answer          func(*corev1.Pod) error // to a creation, before it is one
	asked           []string                // pods of which a creation was tried
	rehearsed, told []string                // pods rehearsed, and what was announced of them
	unrehearsed     error                   // what a rehearsal says
	prepared        int                     // attempts
	most, now       int                     // creations at once
	creates         []string
	changed         func(repo.Key)
	log             string
	ctx             context.Context
	ending          sync.WaitGroup
}

func newMemory(ctx context.Context, script func(repo.TaskAttempt) int32) *memory {
	return &memory{ctx: ctx, pods: map[string]*corev1.Pod{}, runs: map[string]repo.Run{}, script: script}
}

func (m *memory) Prepare(_ context.Context, run *repo.Run, _ int32) (repo.Addresses, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[run.ID] = *run
	m.prepared++
	return func(t repo.Task) repo.Address { return repo.Address{Host: t.String(), Port: 1} }, nil
}

func (m *memory) Runs(context.Context) (out []repo.Run, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		out = append(out, r)
	}
	return out, nil
}

func (m *memory) Jobs(context.Context) (out []repo.Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		out = append(out, repo.Key{Namespace: p.Namespace, Name: p.Labels[repo.LabelJob]})
	}
	return out, nil
}

func (m *memory) Pods(_ context.Context, key repo.Key) (out []corev1.Pod, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if p.Labels[repo.LabelJob] == key.Name && p.Namespace == key.Namespace {
			out = append(out, *p.DeepCopy())
		}
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (m *memory) Rehearse(_ context.Context, pods []*corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range pods {
		m.rehearsed = append(m.rehearsed, p.Name)
	}
	return m.unrehearsed
}

func (m *memory) Announce(_ context.Context, namespace, pod, uid, reason, message string, warning bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, fmt.Sprintf("%s/%s %v %s: %s", namespace, pod, warning, reason, message))
}

// ask is the backend's answer to a creation, which takes it a while.
func (m *memory) ask(pod *corev1.Pod) error {
	m.mu.Lock()
	m.asked = append(m.asked, pod.Name)
	m.now++
	m.most = max(m.most, m.now)
	answer := m.answer
	m.mu.Unlock()
	var err error
	if answer != nil {
		sleep(m.ctx, time.Millisecond, nil)
		err = answer(pod)
	}
	m.mu.Lock()
	m.now--
	m.mu.Unlock()
	return err
}

func (m *memory) Create(_ context.Context, pod *corev1.Pod) error {
	if err := m.ask(pod); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != "" {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, nil)
	}
	if m.failing > 0 {
		m.failing--
		return errors.New("the server is on fire")
	}
	if q := m.quota; q > 0 && len(m.pods) >= q {
		return apierrors.NewForbidden(pods, pod.Name, fmt.Errorf("exceeded quota: q, requested: pods=1, used: pods=%d, limited: pods=%d", q, q))
	}
	if m.pods[pod.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, pod.Name)
	}
	m.creates = append(m.creates, pod.Name)
	p := pod.DeepCopy()
	p.UID, p.CreationTimestamp = types.UID(pod.Name), metav1.Now()
	p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, "node-1"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	m.pods[pod.Name] = p
	_, attempt, _ := repo.AttemptOf(p)
	if code := m.script(attempt); code >= 0 {
		m.ending.Add(1)
		go func() {
			defer m.ending.Done()
			if sleep(m.ctx, time.Second, nil) {
				m.end(pod.Name, code)
			}
		}()
	}
	m.tell(p)
	return nil
}

func (m *memory) tell(p *corev1.Pod) {
	if m.changed != nil {
		key := repo.Key{Namespace: p.Namespace, Name: p.Labels[repo.LabelJob]}
		m.changed(key)
	}
}

// end ends a pod's container with a code.
func (m *memory) end(name string, code int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[name]
	if p == nil || p.Status.Phase != corev1.PodRunning {
		return
	}
	m.finish(p, code)
}

func (m *memory) finish(p *corev1.Pod, code int32) {
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	started := p.Status.ContainerStatuses[0].State.Running.StartedAt
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", StartedAt: started, FinishedAt: metav1.Now(),
	}}
	m.remove(p)
	m.tell(p)
}

// remove takes a pod away that is deleted, has ended and is not held.
func (m *memory) remove(p *corev1.Pod) {
	if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 && p.Status.Phase != corev1.PodRunning {
		delete(m.pods, p.Name)
	}
}

func (m *memory) Delete(_ context.Context, _, name, _ string, _ *int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[name]
	if p == nil {
		return nil
	}
	if p.DeletionTimestamp == nil {
		now := metav1.Now()
		p.DeletionTimestamp = &now
	}
	if p.Status.Phase == corev1.PodRunning {
		m.finish(p, 143)
	}
	m.remove(p)
	return nil
}

func (m *memory) Release(_ context.Context, _, name, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[name]; p != nil {
		p.Finalizers = nil
		m.remove(p)
		m.tell(p)
	}
	return nil
}

func (m *memory) Forget(_ context.Context, run, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, run)
	return nil
}

func (m *memory) Watch(ctx context.Context, changed func(repo.Key)) error {
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (m *memory) Log(context.Context, string, string, string, int64, bool) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(m.log)), nil
}

// ledger keeps books in memory; it refuses as many as failing says.
type ledger struct {
	mu      sync.Mutex
	records map[repo.Key]repo.Record
	books   []Book
	notices []string
	failing int
}

func newLedger() *ledger { return &ledger{records: map[repo.Key]repo.Record{}} }

func (l *ledger) Load(context.Context) (out []repo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		out = append(out, r)
	}
	return out, nil
}

func (l *ledger) Publish(_ context.Context, b Book) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing > 0 {
		l.failing--
		return false, errors.New("the remote is away")
	}
	if len(b.Changes) == 0 && slices.Equal(b.Notices, l.notices) {
		return false, nil
	}
	l.notices = b.Notices
	for _, c := range b.Changes {
		l.records[c.Record.Key()] = c.Record
	}
	l.books = append(l.books, b)
	return true, nil
}

// static is a source that says the same until it is told otherwise.
type static struct {
	mu   sync.Mutex
	defs *repo.Definitions
}

func (s *static) Poll() *repo.Definitions {
	s.mu.Lock()
	defer s.mu.Unlock()
	defs := s.defs
	s.defs = nil
	return defs
}

// trainJob is a job of one role.
func trainJob(name, digest string, replicas, retries int32) repo.Job {
	return repo.Job{
		Key: repo.Key{Namespace: "default", Name: name}, Digest: digest, Shape: digest, OnChange: repo.Finish, Success: repo.AllRoles,
		Retry: repo.Retry{Mode: repo.ByFault}, Cleanup: repo.Cleanup{Pods: repo.CleanupAll, After: time.Hour}, Source: repo.Source{Unit: "jobs/" + name + ".yaml"},
		Roles: []repo.Role{{
			Name: "main", Replicas: replicas, MinSucceeded: replicas, MinFailed: 1, Retry: repo.Retry{Limit: retries, Mode: repo.ByFault},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: []string{"true"}}}}},
		}},
	}
}

func definitions(jobs ...repo.Job) *repo.Definitions {
	return &repo.Definitions{Revision: "r1", Environment: "default", Jobs: jobs}
}

func once(t *testing.T, m *memory, led *ledger, defs *repo.Definitions) {
	t.Helper()
	l := New(m, led, Options{Environment: "default", Poll: time.Second, Publish: 10 * time.Second, Log: zerolog.Nop()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, l.Run(ctx, &static{defs: defs}, nil, true))
	require.NoError(t, ctx.Err(), "did not come to rest")
}

func TestOnceRunsEverythingToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(a repo.TaskAttempt) int32 {
			if a.Attempt == 0 && a.Index == 1 {
				return 1
			}
			return 0
		})
		led := newLedger()
		defs := definitions(trainJob("a", "d1", 2, 1), trainJob("b", "d2", 1, 0))
		once(t, m, led, defs)

		a := led.records[repo.Key{Namespace: "default", Name: "a"}]
		require.Equal(t, repo.PhaseSucceeded, a.Phase)
		require.Equal(t, repo.Retries{Total: 1, Accountable: 1}, a.Roles[0].Tasks[1].Retries)
		require.Len(t, a.History, 1)
		require.Len(t, m.creates, 4)
		for _, p := range m.pods {
			require.Empty(t, p.Finalizers, "released after its record was pushed")
		}

		pushes := len(led.books)
		once(t, m, led, defs)
		require.Len(t, m.creates, 4, "a second time starts nothing")
		require.Len(t, led.books, pushes, "and pushes nothing")
	})
}

func TestOutcomesAreHeldUntilPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 7 })
		m.log = "the last words"
		led := newLedger()
		led.failing = 5
		l := New(m, led, Options{Environment: "default", Poll: time.Second, Publish: time.Second, Log: zerolog.Nop()})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- l.Run(ctx, &static{defs: definitions(trainJob("a", "d1", 1, 0))}, nil, false)
		}()
		held := func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range m.pods {
				return len(p.Finalizers) == 1
			}
			return false
		}
		require.True(t, sleep(ctx, 3*time.Second, nil)) // in the bubble's time
		synctest.Wait()
		require.True(t, held(), "the remote is away: the pod keeps its outcome")
		require.True(t, sleep(ctx, time.Minute, nil))
		synctest.Wait()
		require.False(t, held())
		rec := led.records[repo.Key{Namespace: "default", Name: "a"}]
		require.Equal(t, repo.PhaseFailed, rec.Phase)
		require.NotEmpty(t, rec.Roles[0].Tasks[0].Attempts[0].Log)
		var texts []string
		for _, b := range led.books {
			for _, c := range b.Changes {
				for _, tail := range c.Tails {
					texts = append(texts, tail.Text)
				}
			}
		}
		require.Equal(t, []string{"the last words"}, texts, "the tail is pushed once")
		cancel()
		require.NoError(t, <-stopped)
	})
}

// A definition that waits for the run to end takes its place at once, and the
// log of what failed reaches the remote all the same.
func TestLogOfARunThatWasFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 7 })
		m.log = "the last words"
		led := newLedger()
		l := New(m, led, Options{Environment: "default", Poll: 300 * time.Millisecond, Publish: 10 * time.Second, Log: zerolog.Nop()})
		source := &static{defs: definitions(trainJob("a", "d1", 1, 0))}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- l.Run(ctx, source, nil, false) }()
		require.True(t, sleep(ctx, 500*time.Millisecond, nil))
		source.mu.Lock()
		source.defs = definitions(trainJob("a", "d2", 1, 0))
		source.mu.Unlock()
		require.True(t, sleep(ctx, time.Minute, nil))
		synctest.Wait()
		require.Len(t, led.records[repo.Key{Namespace: "default", Name: "a"}].History, 2)
		paths := map[string]int{}
		for _, b := range led.books {
			for _, c := range b.Changes {
				for _, tail := range c.Tails {
					paths[tail.Path]++
					require.Equal(t, "the last words", tail.Text)
				}
			}
		}
		require.Len(t, paths, 2, "of each run, %v", paths)
		for path, n := range paths {
			require.Equal(t, 1, n, path)
		}
		cancel()
		require.NoError(t, <-stopped)
	})
}

func TestRefusedAndFailingCreations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 })
		m.failing = 3
		led := newLedger()
		once(t, m, led, definitions(trainJob("a", "d1", 1, 0)))
		require.Len(t, m.creates, 1)
		require.Equal(t, repo.PhaseSucceeded, led.records[repo.Key{Namespace: "default", Name: "a"}].Phase)

		m.refuse = "no"
		once(t, m, led, definitions(trainJob("a", "d1", 1, 0), trainJob("b", "d2", 1, 5)))
		rec := led.records[repo.Key{Namespace: "default", Name: "b"}]
		require.Equal(t, repo.PhaseFailed, rec.Phase)
		require.Equal(t, ReasonPodRefused, rec.Reason)
	})
}

func TestVanishedJobsAreWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
		led := newLedger()
		l := New(m, led, Options{Environment: "default", Poll: time.Second, Publish: time.Second, Log: zerolog.Nop()})
		source := &static{defs: definitions(trainJob("a", "d1", 1, 0), trainJob("b", "d2", 1, 0))}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- l.Run(ctx, source, nil, false) }()
		settle := func(defs *repo.Definitions) {
			if defs != nil {
				source.mu.Lock()
				source.defs = defs
				source.mu.Unlock()
			}
			require.True(t, sleep(ctx, 10*time.Second, nil))
			synctest.Wait()
		}
		phases := func() (out []repo.Phase) {
			for _, r := range l.Records() {
				out = append(out, r.Phase)
			}
			return out
		}
		settle(nil)
		require.Equal(t, []repo.Phase{repo.PhaseRunning, repo.PhaseRunning}, phases())

		empty := definitions()
		settle(empty)
		require.Equal(t, []repo.Phase{repo.PhaseRunning, repo.PhaseRunning}, phases(), "an emptied repository stops nothing")
		notice := led.books[len(led.books)-1].Notices
		require.Len(t, notice, 1)
		require.Contains(t, notice[0], "2 of 2 jobs have vanished")

		token := notice[0][strings.Index(notice[0], `confirm: "`)+10:]
		confirmed := definitions()
		confirmed.Settings.Removal.Confirm = token[:strings.Index(token, `"`)]
		settle(confirmed)
		require.Equal(t, []repo.Phase{repo.PhaseRemoved, repo.PhaseRemoved}, phases())
		require.Empty(t, m.pods)
		cancel()
		require.NoError(t, <-stopped)
	})
}
