package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// behind is a backend that tells nothing of its pods.
type behind struct{ *memory }

func (behind) Pods(context.Context, repo.Key) ([]corev1.Pod, error) { return nil, nil }

func (b behind) Find(_ context.Context, _, name string) (*corev1.Pod, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[name]; p != nil {
		return p.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(pods, name)
}

// What the backend has said to be made is not asked for again at once, only
// because its news is behind.
func TestMadeIsNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
		l := New(behind{m}, newLedger(), Options{Environment: "default", Log: zerolog.Nop(), Parallel: 1})
		require.NoError(t, l.Load(t.Context()))
		job := trainJob("a", "d1", 4, 0)
		l.Define(time.Now(), definitions(job))
		look := func() { l.Reconcile(t.Context(), time.Now(), job.Key) }

		m.failing = 1
		look()
		require.Len(t, m.asked, 1, "the first is in trouble, and the rest not tried")
		for range 3 {
			look()
			require.Len(t, m.creates, 4)
			require.Len(t, m.asked, 1+4)
		}
		require.True(t, sleep(t.Context(), longestWait, nil))
		look()
		require.Len(t, m.asked, 1+4+4, "in the end it is")
		require.Len(t, m.creates, 4)
		worked, at := true, time.Time{}
		for worked {
			worked, at = l.Step(t.Context(), time.Now())
		}
		require.Equal(t, time.Now().Add(longestWait), at, "and again by itself")
		require.Len(t, m.asked, 1+4+4)
	})
}

// slow is a backend that takes a minute to tell of pods, which end meanwhile.
type slow struct{ *memory }

func (s slow) Pods(ctx context.Context, key repo.Key) ([]corev1.Pod, error) {
	sleep(ctx, time.Minute, nil)
	for _, name := range s.creates {
		s.end(name, 1)
	}
	return s.memory.Pods(ctx, key)
}

// A pod that ended while the pass was looking did not end ahead of its time: its
// retry waits as long as it should.
func TestSlowLookDoesNotShortenTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow{newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })}
		l := New(s, newLedger(), Options{Environment: "default", Log: zerolog.Nop()})
		require.NoError(t, l.Load(t.Context()))
		job := trainJob("a", "d1", 1, 0)
		job.Roles[0].Retry = repo.Retry{Limit: 3, Backoff: repo.Backoff{Initial: 10 * time.Second}}
		l.Define(time.Now(), definitions(job))
		l.Reconcile(t.Context(), time.Now(), job.Key)
		l.Reconcile(t.Context(), time.Now(), job.Key)
		task := l.Records()[0].Roles[0].Tasks[0]
		require.NotNil(t, task.RetryAt)
		require.WithinDuration(t, task.Attempts[0].FinishedAt.Add(10*time.Second), task.RetryAt.Time, 3*time.Second)
	})
}
