package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Wherever the words of programs and backends are kept, no file has a secret of theirs.
func TestNoFileHasASecret(t *testing.T) {
	const said = "it failed: password=verysecret"
	outcome := func() *repo.Outcome { return &repo.Outcome{Result: repo.Failed, Message: said} }
	fields := map[string]func(*repo.Record){
		"message":           func(r *repo.Record) { r.Message = said },
		"condition":         func(r *repo.Record) { r.Conditions = []metav1.Condition{{Reason: "R", Message: said}} },
		"run":               func(r *repo.Record) { r.Run.Outcome = outcome() },
		"ending":            func(r *repo.Record) { r.Run.Ending = outcome() },
		"earlier attempt":   func(r *repo.Record) { r.Attempts = []repo.AttemptRecord{{Outcome: *outcome()}} },
		"task":              func(r *repo.Record) { r.Roles[0].Tasks[0].Attempts[0].Outcome = outcome() },
		"what is waited on": func(r *repo.Record) { r.Roles[0].Tasks[0].Attempts[0].Waiting = said },
		"task of an earlier attempt": func(r *repo.Record) {
			r.Attempts = []repo.AttemptRecord{{Tasks: []repo.TaskRecord{{Attempts: []repo.TaskAttemptRecord{{Outcome: outcome()}}}}}}
		},
		"history": func(r *repo.Record) { r.History[0].Outcome = *outcome() },
	}
	for name, set := range fields {
		r := ran(record("j", repo.PhaseFailed), 0, repo.Failed)
		set(&r)
		before := asText(t, r)
		files, _, err := Files(Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}, Notices: []string{said}})
		require.NoError(t, err)
		found := false
		for file, b := range files {
			assert.NotContains(t, string(b), "verysecret", "%s in %s", name, file)
			found = found || file != "README.md" && strings.Contains(string(b), "password=***")
		}
		assert.True(t, found, "%s: the rest of it is kept", name)
		assert.Equal(t, before, asText(t, r), "the runner's record is left alone")
	}
}

// The page shows the latest tails, the last one first.
func TestTailsOnThePage(t *testing.T) {
	r := ran(record("j", repo.PhaseFailed), 0, repo.Failed)
	a := r.Roles[0].Tasks[0].Attempts[0]
	r.Roles[0].Tasks = nil
	for i := range pageTails + 3 {
		a.FinishedAt, a.Log = later(100+7*i%13), fmt.Sprintf("logs/j/worker-%d-0-0.log", i)
		r.Roles[0].Tasks = append(r.Roles[0].Tasks, repo.TaskRecord{Name: fmt.Sprintf("worker-%d", i), Attempts: []repo.TaskAttemptRecord{a}})
	}
	page := string(Page(&r, func(log string) string { return "the end of " + log }))
	var shown []string
	for _, line := range strings.Split(page, "\n") {
		if name, ok := strings.CutPrefix(line, "the end of logs/j/"); ok {
			shown = append(shown, strings.TrimSuffix(name, "-0-0.log"))
		}
	}
	var want []string // 7 is the inverse of 2 modulo 13
	for last := 12; len(want) < pageTails; last-- {
		want = append(want, fmt.Sprintf("worker-%d", 2*last%13))
	}
	assert.Equal(t, want, shown)
	assert.Contains(t, page, "in [logs](logs)")
	assert.NotContains(t, string(Page(&r, func(string) string { return "" })), "End of the log")
}
