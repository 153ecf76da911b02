package runner

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// What fifty jobs wait for is not said fifty times, nor again and again.
func TestComplaintsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		b := &unprepared{memory: m}
		b.full.Lock()
		var jobs []repo.Job
		for i := range 50 {
			jobs = append(jobs, trainJob(fmt.Sprintf("j%d", i), "d1", 1, 0))
		}
		log := &lines{}
		s := keepRunning(t, b, led, Options{Log: zerolog.New(log)}, definitions(jobs...))
		require.True(t, sleep(s.ctx, 20*time.Minute, nil))
		require.Equal(t, 1, log.count("job waits"), "%s", log)
		b.full.Unlock()
		s.settle(nil)
		require.True(t, sleep(s.ctx, 2*time.Minute, nil))
		synctest.Wait()
		for _, phase := range s.phases() {
			require.Equal(t, repo.PhaseSucceeded, phase)
		}
	})
}

// What a job waits for next is said as well.
func TestAnotherCauseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 })
		m.answer = func(*corev1.Pod) error { return errors.New("the server is away") }
		log := &lines{}
		s := keepRunning(t, m, newLedger(), Options{Log: zerolog.New(log)}, definitions(trainJob("a", "d1", 1, 0)))
		require.True(t, sleep(s.ctx, 10*time.Minute, nil))
		m.mu.Lock()
		m.answer = func(*corev1.Pod) error { return errors.New("the server is full") }
		m.mu.Unlock()
		require.True(t, sleep(s.ctx, 10*time.Minute, nil))
		require.Equal(t, 1, log.count("the server is away"), "%s", log)
		require.Equal(t, 1, log.count("the server is full"), "%s", log)
	})
}

// A mistake of ours that one job meets is told, once, with the place; the other
// jobs go on.
func TestMistakeHarmsOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		bad := repo.Record{Metadata: repo.RecordMeta{Namespace: "default", Name: "a"}, Phase: repo.PhaseRetrying}
		later := metav1.NewTime(time.Now().Add(24 * time.Hour))
		bad.Run = &repo.RunRecord{ID: "a-1", Digest: "d1", RetryAt: &later} // which Check would have found
		require.Error(t, bad.Check())
		led.records[bad.Key()] = bad
		log := &lines{}
		s := keepRunning(t, m, led, Options{Log: zerolog.New(log)}, definitions(trainJob("a", "d1", 1, 0), trainJob("b", "d1", 1, 0)))
		require.True(t, sleep(s.ctx, 10*time.Minute, nil))
		led.mu.Lock()
		defer led.mu.Unlock()
		require.Equal(t, repo.PhaseSucceeded, led.records[trainJob("b", "", 1, 0).Key].Phase)
		require.Equal(t, 1, log.count("by a mistake of Trainyard's own: runtime error: index out of range"), "%s", log)
		require.Equal(t, 1, log.count(`"stack":`), "%s", log)
		require.Contains(t, log.String(), "runner/summary.go:")
		require.Equal(t, bad.Run, led.records[bad.Key()].Run, "its record stays as it was")
	})
}

// lines are what was logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(what string) int { return strings.Count(l.String(), what) }

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// However long something was away, and however many jobs waited for it, all
// are looked at soon after it has come back.
func TestAllGoesOnSoon(t *testing.T) {
	for _, n := range []int{1, 300} {
		synctest.Test(t, func(t *testing.T) {
			m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
			b := &unprepared{memory: m}
			b.full.Lock()
			var jobs []repo.Job
			for i := range n {
				jobs = append(jobs, trainJob(fmt.Sprintf("j%d", i), "d1", 1, 0))
			}
			s := keepRunning(t, b, led, Options{Log: zerolog.Nop(), Workers: 16}, definitions(jobs...))
			require.True(t, sleep(s.ctx, time.Hour, nil))
			b.full.Unlock()
			s.settle(nil)
			m.mu.Lock()
			defer m.mu.Unlock()
			require.Len(t, m.creates, n)
		})
	}
}
