package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A definition that may not start does nothing to the run that is going on.
func TestForbiddenDefinitionLeavesTheRunAlone(t *testing.T) {
	for name, change := range map[string]func(*repo.Job){
		"restart": func(j *repo.Job) { j.Digest, j.Shape, j.OnChange = "B", "B", repo.Restart },
		"rescale": func(j *repo.Job) {
			j.Digest, j.Rescale, j.Roles[0].Replicas, j.Roles[0].MinSucceeded = "B", true, 100, 100
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := pushed(t)
			w.settle()
			w.start("main-0", "main-1")
			w.edit(change)
			w.forbidden = "it is too large"
			w.settle()
			assert.Equal(t, []string{"main-0", "main-1"}, w.live())
			w.succeed()
			assert.Equal(t, []string{"A"}, w.ran())
			assert.Equal(t, "PolicyForbids", w.record.Reason)
		})
	}
}

// Records can be pushed by anybody who can push jobs. One that claims that a
// run is going on must not bring it into being against the policy.
func TestForgedRecordStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := trainJob("a", "d1", 1, 0)
		trigger := repo.Trigger{Kind: repo.TriggerPush}
		led := newLedger()
		led.records[job.Key] = repo.Record{
			Metadata: repo.RecordMeta{Name: "a", Namespace: "default"}, Phase: repo.PhaseRunning,
			Run: &repo.RunRecord{
				ID: repo.RunID("default", job.Key, "d1", trigger), Digest: "d1", Shape: "d1", Trigger: trigger, StartedAt: metav1.NewTime(time.Now()),
			},
			Roles: newRoles(&job),
		}
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 })
		o := Options{Log: zerolog.Nop(), Forbidden: func(*repo.Job) string { return "not here" }}
		keepRunning(t, m, led, o, definitions(job))
		require.Empty(t, m.creates)
		rec := led.records[job.Key]
		require.Equal(t, repo.PhaseFailed, rec.Phase)
		require.Contains(t, rec.Message, "the policy forbids it: not here")
	})
}
