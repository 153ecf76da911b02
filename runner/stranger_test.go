package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// pushing is a ledger that is written to by somebody else while it is read.
type pushing struct {
	*ledger
	meanwhile func()
}

func (p pushing) Load(ctx context.Context) ([]repo.Record, error) {
	out, err := p.ledger.Load(ctx)
	p.meanwhile()
	return out, err
}

// A pod of a run that nobody knows is a leftover if it was there before the
// records were read, and may be another daemon's if it came later.
func TestPodsOfUnknownRuns(t *testing.T) {
	for _, row := range []struct {
		when    string
		another bool // daemon may have made the pod
	}{
		{"before the records are read", false},
		{"while the records are read", true},
		{"after the records were read", true},
	} {
		t.Run(row.when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
				job := trainJob("a", "d1", 1, 0)
				job.Suspend = true // it starts nothing by itself
				appear := func(when string) {
					if when == row.when {
						run := repo.Run{ID: "a-unknown", Environment: "default", Job: job}
						pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: "main"}}, func(repo.Task) repo.Address { return repo.Address{} })
						require.NoError(t, err)
						require.NoError(t, m.Create(t.Context(), pod))
					}
				}
				led := pushing{newLedger(), func() { appear("while the records are read") }}
				appear("before the records are read")
				l := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
				require.NoError(t, l.Load(t.Context()))
				appear("after the records were read")
				l.Define(time.Now(), definitions(job))
				for range 3 {
					l.Reconcile(t.Context(), time.Now(), job.Key)
					_, err := l.Publish(t.Context(), time.Now())
					require.NoError(t, err)
				}
				if row.another {
					var overtaken *OvertakenError
					require.ErrorAs(t, l.Overtaken(), &overtaken)
					require.Len(t, m.pods, 1)
					for _, p := range m.pods {
						assert.Nil(t, p.DeletionTimestamp)
					}
					return
				}
				require.NoError(t, l.Overtaken())
				assert.Empty(t, m.pods, "it is ended and let go")
			})
		})
	}
}
