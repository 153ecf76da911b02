package runner

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestWaitingJobsGoOnAtOnce: after an hour without the backend the next try of
// a job may be a minute away. That it is back is told, or seen by another job.
func TestWaitingJobsGoOnAtOnce(t *testing.T) {
	for what, key := range map[string]repo.Key{
		"the backend says that it is back": {},
		"another job goes on":              {Namespace: "default", Name: "a"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
				m.answer = func(*corev1.Pod) error { return errors.New("the server is away") }
				s := keepRunning(t, m, newLedger(), Options{Log: zerolog.Nop()}, definitions(trainJob("a", "d1", 1, 0), trainJob("b", "d1", 1, 0)))
				require.True(t, sleep(s.ctx, time.Hour+100*time.Millisecond, nil))
				synctest.Wait()
				m.mu.Lock()
				m.answer = nil
				require.Empty(t, m.creates)
				m.mu.Unlock()
				m.changed(key)
				require.True(t, sleep(s.ctx, time.Second, nil))
				m.mu.Lock()
				assert.Len(t, m.creates, 2)
				m.mu.Unlock()
			})
		})
	}
}
