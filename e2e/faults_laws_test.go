package e2e

import (
	"fmt"
	"path"
	"strings"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// harm is what a fault may do to jobs. The zero value is none: whatever
// happens, every attempt ends by itself and is recorded as it ended.
type harm struct {
	loses    bool // pods: nobody knows how they ended, and nobody is blamed
	rewrites bool // records: somebody else changes the branch that they lie on
}

// attemptEnd is how an attempt ended according to the record.
type attemptEnd struct {
	repo.TaskAttemptRecord
	times int // in the last record
}

// laws are what holds when all has come to rest, seen from outside.
func (y *yard) laws(h harm) {
	y.t.Helper()
	branch := y.readBranch()
	for _, j := range y.jobs {
		said := branch[j.name]
		if !assert.NotNil(y.t, said, "%s has no record", j.name) {
			continue
		}
		if !h.rewrites {
			y.historyGrows(j.name, said)
		}
		for pod, outcomes := range said.outcomes {
			assert.Len(y.t, outcomes, 1, "outcomes of %s: %v", pod, outcomes)
		}
		y.lawsOf(j, &said.records[len(said.records)-1], h)
	}
	assert.NotContains(y.t, y.d.out.String(), "panic")
}

// lawsOf compares what a job's attempts have witnessed with what the record says.
func (y *yard) lawsOf(j *yardJob, rec *repo.Record, h harm) {
	seen, told := y.seen(j.name), attemptsOf(rec)
	assert.Empty(y.t, seen["overlap"], "%s: attempts that began while the one before was alive", j.name)
	started := map[string]int{}
	for _, id := range seen["start"] {
		started[id]++
		assert.Contains(y.t, told, id, "%s: an attempt of which the record tells nothing", j.name)
	}
	finished := map[string]bool{}
	for _, id := range seen["end"] {
		finished[id] = true
	}
	free := 0
	for id, end := range told {
		assert.Equal(y.t, 1, end.times, "%s: %s is in the record more than once", j.name, id)
		if !assert.NotNil(y.t, end.Outcome, "%s: %s has no outcome", j.name, id) {
			continue
		}
		lost := end.Free || end.Reason == runner.ReasonRecordLost
		if lost {
			free++
			assert.True(y.t, h.loses, "%s: %s is lost: %s: %s", j.name, id, end.Reason, end.Message)
			continue
		}
		assert.Equal(y.t, 1, started[id], "%s: how often %s was started", j.name, id)
		assert.True(y.t, finished[id], "%s: %s has an outcome and was not seen to end", j.name, id)
		y.endIsRight(j, id, end.TaskAttemptRecord)
	}
	for id, n := range started {
		assert.Equal(y.t, 1, n, "%s: how often %s was started", j.name, id)
	}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			assert.Equal(y.t, int32(j.retries), t.Retries.Accountable, "%s: retries of %s that it answers for", j.name, t.Name)
		}
	}
	if rec.Run != nil && rec.Run.Attempt == 0 {
		assert.Len(y.t, told, j.replicas*(1+j.retries)+free, "%s: attempts", j.name)
	}
}

// endIsRight: the record says what the attempt did, with the end of its log.
func (y *yard) endIsRight(j *yardJob, id string, end repo.TaskAttemptRecord) {
	want := repo.Succeeded
	if j.code != 0 {
		want = repo.Failed
	}
	assert.Equal(y.t, want, end.Result, "%s: %s: %s: %s", j.name, id, end.Reason, end.Message)
	if j.code == 0 {
		return
	}
	if assert.NotNil(y.t, end.ExitCode, "%s: %s", j.name, id) {
		assert.Equal(y.t, int32(j.code), *end.ExitCode, "%s: %s", j.name, id)
	}
	if assert.NotEmpty(y.t, end.Log, "%s: %s has no log tail", j.name, id) {
		file := path.Join(repo.DefaultEnvironment, "default", j.name, end.Log)
		text, err := y.tryGit(y.remote, "show", repo.StatusBranch+":"+file)
		assert.NoError(y.t, err, text)
		assert.Contains(y.t, text, "last words of "+id)
	}
}

// attemptsOf are all task attempts of a record, by what they witness as.
func attemptsOf(rec *repo.Record) map[string]attemptEnd {
	out := map[string]attemptEnd{}
	if rec.Run == nil {
		return out
	}
	each := func(attempt int32, tasks []repo.TaskRecord) {
		for _, t := range tasks {
			for _, a := range t.Attempts {
				id := fmt.Sprintf("%s/%d/%s/%d", rec.Run.ID, attempt, t.Name, a.Attempt)
				out[id] = attemptEnd{a, out[id].times + 1}
			}
		}
	}
	for _, r := range rec.Roles {
		each(rec.Run.Attempt, r.Tasks)
	}
	for _, a := range rec.Attempts {
		each(a.Attempt, a.Tasks)
	}
	return out
}

// counts tells how many attempts there were, and how many were lost.
func (y *yard) counts() (starts, lost int) {
	for _, j := range y.jobs {
		starts += y.starts(j.name)
		rec, _ := y.record("default/" + j.name)
		for _, end := range attemptsOf(&rec) {
			if end.Outcome != nil && end.Free {
				lost++
			}
		}
	}
	return starts, lost
}

func (y *yard) failed() string { return strings.Join(y.trace, "\n") }
