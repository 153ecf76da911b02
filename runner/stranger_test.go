package runner

import (
	"context"
	"maps"
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

// A run does not end for the loss of a definition that another daemon has
// prepared since this one listed the runs.
func TestDefinitionThatAnotherDaemonPrepared(t *testing.T) {
	for _, row := range []struct {
		is   string
		ends bool
	}{{"there by now", false}, {"lost", true}} {
		t.Run(row.is, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
				job := trainJob("a", "d1", 1, 0)
				look := func(l *Loop) {
					for range 3 {
						l.Reconcile(t.Context(), time.Now(), job.Key)
						synctest.Wait()
						_, err := l.Publish(t.Context(), time.Now())
						require.NoError(t, err)
					}
				}
				first := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
				require.NoError(t, first.Load(t.Context()))
				first.Define(time.Now(), definitions(job))
				look(first)
				require.Equal(t, repo.PhaseRunning, led.records[job.Key].Phase)
				run := led.records[job.Key].Run.ID

				runs := maps.Clone(m.runs)
				clear(m.runs)
				second := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
				require.NoError(t, second.Load(t.Context()))
				second.Define(time.Now(), definitions(trainJob("a", "d2", 1, 0)))
				if row.is == "there by now" {
					m.runs = runs
				}
				look(second)
				assert.Equal(t, row.ends, led.records[job.Key].Run.ID != run)
			})
		})
	}
}
