package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// blind is a backend that does not look into the namespaces of jobs.
type blind struct{ *memory }

func (blind) Pods(context.Context, repo.Key) ([]corev1.Pod, error) {
	return nil, forbidden("this daemon does not serve namespace nlp")
}

// TestNamespaceIsServedNoMore: pods that nobody looks for are not lost.
func TestNamespaceIsServedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		job := trainJob("a", "d1", 2, 3)
		open := func(b Backend, o Options) *Loop {
			o.Environment, o.Log = "default", zerolog.Nop()
			l := New(b, led, o)
			require.NoError(t, l.Load(t.Context()))
			l.Define(time.Now(), definitions(job))
			l.Reconcile(t.Context(), time.Now(), job.Key)
			return l
		}
		l := open(m, Options{})
		l.Reconcile(t.Context(), time.Now(), job.Key)
		_, err := l.Publish(t.Context(), time.Now())
		require.NoError(t, err)
		before := l.Records()
		require.NotEmpty(t, before[0].Roles[0].Tasks[0].Attempts[0].UID)

		l = open(blind{m}, Options{Forbidden: func(*repo.Job) string { return "not served" }})
		require.Equal(t, before[0].Roles, l.Records()[0].Roles)
		require.Len(t, m.pods, 2)

		other := trainJob("b", "d1", 1, 0) // which has nothing that could run
		l.Define(time.Now(), definitions(job, other))
		l.Reconcile(t.Context(), time.Now(), other.Key)
		records := l.Records()
		require.Equal(t, ReasonForbidden, records[1].Reason)
	})
}
