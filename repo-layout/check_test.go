package repo

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCheck(t *testing.T) {
	possible := func() *Record {
		return &Record{
			Run: &RunRecord{ID: "a-1", Attempt: 1, Retries: Retries{Total: 1}, RetryAt: &metav1.Time{}},
			Roles: []RoleRecord{
				{Name: "worker", Replicas: 1, Tasks: []TaskRecord{
					{Name: "worker-0", FirstAttempt: 3, Attempts: []TaskAttemptRecord{{Attempt: 3}, {Attempt: 5}}},
					{Name: "worker-1", Index: 1}, // scaled away
				}},
				{Name: "ps"},
			},
			Attempts: []AttemptRecord{{Tasks: []TaskRecord{{Name: "worker-0"}}}},
		}
	}
	require.NoError(t, possible().Check())
	require.NoError(t, (&Record{}).Check())
	for _, row := range []struct {
		spoil func(*Record)
		want  string
	}{
		{func(r *Record) { r.Run = nil }, "roles: there is no run that they are of"},
		{func(r *Record) { r.Run.ID = "" }, "run.id: it has none"},
		{func(r *Record) { r.Run.Outcome = &Outcome{} }, "run.finishedAt and outcome: one is there without the other"},
		{func(r *Record) { r.Run.FinishedAt = &metav1.Time{} }, "run.finishedAt and outcome: one is there without the other"},
		{func(r *Record) { r.Attempts = nil }, "run.retryAt: there is no attempt that is tried again"},
		{func(r *Record) { r.Run.Attempt = -1 }, "run.attempt: -1"},
		{func(r *Record) { r.Run.Retries.Total = -1 }, "run.retries.total: -1"},
		{func(r *Record) { r.Run.Retries.Accountable = math.MaxInt32 }, "run.retries.accountable: 2147483647"},
		{func(r *Record) { r.Roles[1].Name = "worker" }, `roles[1].name: there are two roles "worker"`},
		{func(r *Record) { r.Roles[0].Replicas = 3 }, "roles[0].replicas: 3, and there are 2 tasks"},
		{func(r *Record) { r.Roles[1].Replicas = -1 }, "roles[1].replicas: -1, and there are 0 tasks"},
		{func(r *Record) { r.Roles[0].Tasks[1].Index = 0 }, "roles[0].tasks[1].index: 0"},
		{func(r *Record) { r.Roles[0].Tasks[1].Name = "ps-1" }, `roles[0].tasks[1].name: "ps-1", not "worker-1"`},
		{func(r *Record) { r.Roles[0].Tasks[1].Retries.Total = -2 }, "roles[0].tasks[1].retries.total: -2"},
		{func(r *Record) { r.Roles[0].Tasks[0].FirstAttempt = -1 }, "roles[0].tasks[0].firstAttempt: -1"},
		{func(r *Record) { r.Roles[0].Tasks[0].Attempts[1].Attempt = math.MaxInt32 }, "roles[0].tasks[0].attempts[1].attempt: 2147483647"},
		{func(r *Record) { r.Roles[0].Tasks[0].Attempts[1].Attempt = 3 }, "roles[0].tasks[0].attempts[1].attempt: 3 comes after 3"},
		{func(r *Record) { r.Attempts[0].Attempt = -1 }, "attempts[0].attempt: -1"},
		{func(r *Record) { r.Attempts[0].Tasks[0].Retries.Total = -1 }, "attempts[0].tasks[0].retries.total: -1"},
	} {
		r := possible()
		row.spoil(r)
		assert.EqualError(t, r.Check(), row.want)
	}
}
