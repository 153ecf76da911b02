package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// However many runs finish while the remote is away, each gets its line; when
// they have it, no more than the latest are held.
func TestRunsOfALongAbsenceAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := newLedger()
		l := New(newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), led, Options{Environment: "default", Log: zerolog.Nop()})
		require.NoError(t, l.Load(t.Context()))
		key := trainJob("a", "", 1, 0).Key
		run := func(digest string) {
			l.Define(time.Now(), definitions(trainJob("a", digest, 1, 0)))
			for range 3 {
				l.Reconcile(t.Context(), time.Now(), key)
				require.True(t, sleep(t.Context(), 2*time.Second, nil))
			}
		}
		publish := func() {
			_, err := l.Publish(t.Context(), time.Now())
			require.NoError(t, err)
		}
		run("first")
		publish()
		away := 4 * repo.KeptRuns
		for i := range away {
			run(fmt.Sprint("d", i))
		}
		publish()
		pushed := led.records[key]
		require.Equal(t, 1+away, pushed.Runs())
		require.Len(t, pushed.History, pushed.Runs(), "whole")
		run("last")
		held := l.Records()[0]
		require.Equal(t, 1+away+1, held.Runs())
		require.Less(t, len(held.History), 2*repo.KeptRuns)
	})
}

// What the repository says is not known before it has been read: nothing is
// pushed that would not hold then.
func TestNothingIsPushedBeforeTheRepositoryIsRead(t *testing.T) {
	led := newLedger()
	led.notices = []string{"three jobs have vanished"}
	l := New(newMemory(t.Context(), nil), led, Options{Environment: "default", Log: zerolog.Nop()})
	pushed := func() bool {
		ok, err := l.Publish(t.Context(), time.Now())
		require.NoError(t, err)
		return ok
	}
	require.False(t, pushed(), "nothing is loaded")
	require.NoError(t, l.Load(t.Context()))
	require.False(t, pushed(), "nothing is defined")
	l.Define(time.Now(), definitions())
	require.True(t, pushed())
	require.Empty(t, led.notices)
}
