package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A job whose record is of a broken file alone, but which has begun since: a
// daemon was killed before it could push that. It can vanish by mistake as any other.
func TestVanishedJobThatItsRecordDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		job := trainJob("a", "d1", 1, 0)
		daemon := func(defs *repo.Definitions) *Loop {
			l := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
			require.NoError(t, l.Load(t.Context()))
			l.Define(time.Now(), defs)
			l.Reconcile(t.Context(), time.Now(), job.Key)
			return l
		}
		broken := definitions()
		broken.Invalid = []repo.Invalid{{Key: job.Key}}
		_, err := daemon(broken).Publish(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, repo.PhaseInvalid, led.records[job.Key].Phase)
		daemon(definitions(job)) // and is killed
		require.Len(t, m.pods, 1)
		l := daemon(definitions())
		require.Nil(t, l.Records()[0].Run.Ending)
	})
}
