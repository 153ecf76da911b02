package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// running is a loop that runs in a synctest bubble.
type running struct {
	t      *testing.T
	loop   *Loop
	source *static
	ctx    context.Context
}

// keepRunning runs a loop until the test ends.
func keepRunning(t *testing.T, m Backend, led Ledger, o Options, defs *repo.Definitions) *running {
	o.Environment, o.Poll, o.Publish = "default", time.Second, time.Second
	s := &running{t: t, loop: New(m, led, o), source: &static{defs: defs}}
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	stopped := make(chan error, 1)
	go func() { stopped <- s.loop.Run(ctx, s.source, nil, false) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-stopped)
	})
	s.settle(nil)
	return s
}

// settle pushes definitions, unless they are nil, and lets ten seconds go by.
func (s *running) settle(defs *repo.Definitions) {
	s.source.mu.Lock()
	if defs != nil {
		s.source.defs = defs
	}
	s.source.mu.Unlock()
	require.True(s.t, sleep(s.ctx, 10*time.Second, nil))
	synctest.Wait()
}

func (s *running) phases() (out []repo.Phase) {
	for _, r := range s.loop.Records() {
		out = append(out, r.Phase)
	}
	return out
}

// revision are definitions of a revision.
func revision(name string, confirm string, jobs ...repo.Job) *repo.Definitions {
	d := definitions(jobs...)
	d.Revision, d.Settings.Removal.Confirm = name, confirm
	return d
}

func token(t *testing.T, led *ledger) string {
	notices := led.books[len(led.books)-1].Notices
	require.Len(t, notices, 1)
	_, rest, ok := bytes.Cut([]byte(notices[0]), []byte(`confirm: "`))
	require.True(t, ok, notices)
	token, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(token)
}

// A daemon whose records lie beside the jobs sees a new revision with each of
// its own commits: if that changed its words, it would commit for ever.
func TestWithheldRemovalIsPublishedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		s := keepRunning(t, m, led, Options{Log: zerolog.Nop()}, revision("r1", "", trainJob("a", "d1", 1, 0)))
		s.settle(revision("r2", ""))
		require.Contains(t, led.notices[0], "1 of 1 jobs have vanished")
		books := len(led.books)
		for i := range 3 {
			s.settle(revision(fmt.Sprint("r", 3+i), ""))
		}
		require.Len(t, led.books, books)
	})
}

// What is held back stays so when something else is pushed, and after a restart.
func TestWithheldRemovalLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		ctx, kill := context.WithCancel(t.Context())
		first := New(m, led, Options{Environment: "default", Poll: time.Second, Publish: time.Second, Log: zerolog.Nop()})
		source, stopped := &static{defs: revision("r1", "", trainJob("a", "d1", 1, 0))}, make(chan error, 1)
		go func() { stopped <- first.Run(ctx, source, nil, false) }()
		(&running{t: t, loop: first, source: source, ctx: ctx}).settle(nil)
		(&running{t: t, loop: first, source: source, ctx: ctx}).settle(revision("r2", ""))
		kill()
		require.NoError(t, <-stopped)

		b := trainJob("b", "d2", 1, 0)
		s := keepRunning(t, m, led, Options{Log: zerolog.Nop()}, revision("r3", "", b))
		s.settle(revision("r4", "", b))
		require.Equal(t, []repo.Phase{repo.PhaseRunning, repo.PhaseRunning}, s.phases(), "a new job confirms nothing")
		confirm := token(t, led)
		s.settle(revision("r5", confirm, b))
		require.Equal(t, []repo.Phase{repo.PhaseRemoved, repo.PhaseRunning}, s.phases())
	})
}

// stubborn is a backend whose pods end long after they were asked to.
type stubborn struct{ *memory }

func (s stubborn) Delete(ctx context.Context, ns, name, uid string, grace *int64) error {
	s.mu.Lock()
	p := s.pods[name]
	if p == nil || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		s.mu.Unlock()
		return s.memory.Delete(ctx, ns, name, uid, grace)
	}
	now := metav1.Now()
	p.DeletionTimestamp = &now
	s.mu.Unlock()
	s.ending.Add(1)
	go func() {
		defer s.ending.Done()
		if sleep(s.ctx, time.Minute, nil) {
			s.end(name, 143)
		}
	}()
	return nil
}

// names are those of all pods.
func (m *memory) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.pods))
}

// unreachable is a backend whose nodes do not answer: what is to end on them
// goes on until it is given up.
type unreachable struct{ *memory }

func (u unreachable) Delete(ctx context.Context, ns, name, uid string, grace *int64) error {
	if grace != nil && *grace == 0 {
		return u.memory.Delete(ctx, ns, name, uid, grace)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if p := u.pods[name]; p != nil && p.DeletionTimestamp == nil {
		now := metav1.Now()
		p.DeletionTimestamp = &now
	}
	return nil
}

// A pod is given up when its role says so, and not before.
func TestPodIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
		patient, other := trainJob("a", "d1", 1, 0), trainJob("b", "d1", 1, 0)
		after := 5 * time.Minute
		other.Roles[0].ForceDeleteAfter = &after
		s := keepRunning(t, unreachable{m}, newLedger(), Options{Log: zerolog.Nop()}, revision("r1", "", patient, other))
		patient.Suspend, other.Suspend = true, true
		s.settle(revision("r2", "", patient, other))
		require.Len(t, m.names(), 2)
		require.True(t, sleep(s.ctx, after-time.Minute, nil))
		require.Len(t, m.names(), 2)
		require.True(t, sleep(s.ctx, 2*time.Minute, nil))
		synctest.Wait()
		require.Len(t, m.names(), 1, "and the other is waited for")
	})
}

// changing is a backend whose pods are not as they were seen when they are to be deleted, once each.
type changing struct {
	*memory
	changed map[string]bool
}

func (c changing) Delete(ctx context.Context, ns, name, uid string, grace *int64) error {
	c.mu.Lock()
	before := c.changed[name]
	c.changed[name] = true
	c.mu.Unlock()
	if !before {
		return apierrors.NewConflict(pods, name, errors.New("it has changed"))
	}
	return c.memory.Delete(ctx, ns, name, uid, grace)
}

// A pod that is not what was decided on is looked at again soon, told of or not.
func TestChangedPodIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 })
		s := keepRunning(t, changing{m, map[string]bool{}}, newLedger(), Options{Log: zerolog.Nop()}, revision("r1", "", trainJob("a", "d1", 2, 0)))
		require.Equal(t, []repo.Phase{repo.PhaseSucceeded}, s.phases())
		require.True(t, sleep(s.ctx, time.Hour-time.Minute, nil))
		require.Len(t, m.names(), 2, "they are kept for an hour")
		require.True(t, sleep(s.ctx, time.Minute, nil))
		synctest.Wait()
		require.Empty(t, m.names())
	})
}

// A confirmed removal goes on whatever is pushed while the pods are ending.
func TestConfirmedRemovalStaysConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(a repo.TaskAttempt) int32 { return -1 }), newLedger()
		s := keepRunning(t, stubborn{m}, led, Options{Log: zerolog.Nop()}, revision("r1", "", trainJob("a", "d1", 1, 0), trainJob("b", "d2", 0, 0)))
		s.settle(revision("r2", ""))
		confirm := token(t, led)
		s.settle(revision("r3", confirm))
		s.settle(revision("r4", confirm))
		s.settle(revision("r5", ""))
		led.mu.Lock()
		require.Empty(t, led.notices)
		led.mu.Unlock()
		require.True(t, sleep(s.ctx, 2*time.Minute, nil))
		synctest.Wait()
		require.Equal(t, []repo.Phase{repo.PhaseRemoved, repo.PhaseRemoved}, s.phases())
	})
}

// Ends of logs are kept until they are pushed, and no longer.
func TestNothingPilesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 1 }), newLedger()
		m.log = "the last words"
		job := trainJob("a", "d1", 2, 2)
		job.Retry = repo.Retry{Limit: 5, Mode: repo.ByFault}
		stopped := trainJob("b", "d2", 1, 0)
		s := keepRunning(t, m, led, Options{Log: zerolog.Nop()}, definitions(job, stopped))
		for range 10 {
			s.settle(nil)
		}
		require.Equal(t, []repo.Phase{repo.PhaseFailed, repo.PhaseFailed}, s.phases())
		s.loop.mu.Lock()
		defer s.loop.mu.Unlock()
		for key, e := range s.loop.jobs {
			require.Empty(t, e.tails, key)
			require.Empty(t, e.refused, key)
			require.Empty(t, e.troubles, key)
		}
	})
}

// An attempt that cannot be prepared must not keep pods of another from ending.
func TestFailedPreparationHoldsNothingElseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		b := &unprepared{memory: m}
		job := trainJob("a", "d1", 1, 0)
		s := keepRunning(t, b, led, Options{Log: zerolog.Nop()}, definitions(job))
		b.full.Lock()
		changed := trainJob("a", "d2", 1, 0)
		changed.Cleanup.After = 0
		m.mu.Lock()
		for _, p := range m.pods { // as if the daemon had not come to it
			p.Finalizers = []string{repo.Finalizer}
		}
		m.mu.Unlock()
		s.settle(definitions(changed))
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range m.pods {
			require.Empty(t, p.Finalizers)
		}
		b.full.Unlock()
	})
}

// unprepared is a backend without room for another attempt while full is locked.
type unprepared struct {
	*memory
	full sync.Mutex
}

func (u *unprepared) Prepare(ctx context.Context, run *repo.Run, attempt int32) (repo.Addresses, error) {
	if !u.full.TryLock() {
		return nil, errors.New("no space left on device")
	}
	defer u.full.Unlock()
	return u.memory.Prepare(ctx, run, attempt)
}

// deaf is a backend that tells of no change.
type deaf struct{ *memory }

func (d deaf) Watch(ctx context.Context, _ func(repo.Key)) error {
	<-ctx.Done()
	return ctx.Err()
}

// A change that the backend did not tell of is found all the same.
func TestForgottenEventsOnlyDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		s := keepRunning(t, deaf{m}, led, Options{Log: zerolog.Nop()}, definitions(trainJob("a", "d1", 1, 0)))
		m.end(m.creates[0], 0)
		s.settle(nil)
		require.Equal(t, []repo.Phase{repo.PhaseRunning}, s.phases())
		require.True(t, sleep(s.ctx, resync, nil))
		synctest.Wait()
		require.Equal(t, []repo.Phase{repo.PhaseSucceeded}, s.phases())
	})
}

func once2(t *testing.T, b Backend, led *ledger, defs *repo.Definitions, log zerolog.Logger) {
	t.Helper()
	l := New(b, led, Options{Environment: "default", Poll: time.Second, Publish: time.Second, Log: log})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, l.Run(ctx, &static{defs: defs}, nil, true))
	require.NoError(t, ctx.Err(), "did not come to rest")
}

// --once says what it waits for: once, not every time.
func TestOnceSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		m.failing = 12
		var out bytes.Buffer
		once2(t, m, led, definitions(trainJob("a", "d1", 1, 0)), zerolog.New(zerolog.SyncWriter(&out)))
		require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("waiting for default/a (Pending: main-0: the server is on fire)")), out.String())
	})
}

// --once does not sit out the time between two pushes for its last one.
func TestOnceEndsWithItsLastPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		start := time.Now()
		once(t, m, led, definitions(trainJob("a", "d1", 1, 0)))
		require.Equal(t, repo.PhaseSucceeded, led.records[repo.Key{Namespace: "default", Name: "a"}].Phase)
		require.Less(t, time.Since(start), 3*time.Second, "pushes are 10s apart")
	})
}

// --once does not wait for ever for a remote that takes nothing, but it does
// while jobs run.
func TestOnceGivesUpPushing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		led.failing = 1 << 20
		l := New(m, led, Options{Environment: "default", Poll: time.Second, Publish: time.Second, Log: zerolog.Nop()})
		stopped := make(chan error, 1)
		go func() {
			stopped <- l.Run(t.Context(), &static{defs: definitions(trainJob("a", "d1", 1, 0))}, nil, true)
		}()
		require.True(t, sleep(t.Context(), time.Hour, nil))
		require.Empty(t, stopped, "the job still runs")
		m.end(m.creates[0], 0)
		require.True(t, sleep(t.Context(), 5*time.Minute, nil))
		synctest.Wait()
		require.ErrorContains(t, <-stopped, "the remote is away")
		require.NotEmpty(t, m.pods[m.creates[0]].Finalizers, "the pod keeps its outcome")
	})
}

// A daemon that is told to end before it could read its records has not failed.
func TestStopBeforeRecordsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(newMemory(t.Context(), nil), away{}, Options{Log: zerolog.Nop()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, l.Run(ctx, &static{}, nil, false))
	})
}

type away struct{}

func (away) Load(context.Context) ([]repo.Record, error) {
	return nil, errors.New("the remote is away")
}

func (away) Publish(context.Context, Book) (bool, error) {
	return false, errors.New("the remote is away")
}
