package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// rest waits until every job is what it has to become and nothing is left of
// any pod, and then ends the daemon.
func (x *crashWorld) rest() {
	x.t.Helper()
	for _, j := range x.jobs {
		said := repo.Record{}
		for deadline := time.Now().Add(time.Duration(60*busy()) * time.Second); ; pause(x.t.Context(), 20*time.Millisecond) {
			var seen bool
			said, seen = x.record("default/" + j.name)
			if said.Phase == j.phase && upToDate(&said) || !seen && j.phase == repo.PhaseRemoved {
				break
			}
			require.True(x.t, time.Now().Before(deadline), "%s is %s (%s: %s), and should be %s", j.name, said.Phase, said.Reason, said.Message, j.phase)
		}
	}
	for deadline := time.Now().Add(time.Duration(30*busy()) * time.Second); ; pause(x.t.Context(), 20*time.Millisecond) {
		left := x.left()
		if len(left) == 0 {
			break
		}
		require.True(x.t, time.Now().Before(deadline), "left: %v", left)
	}
	require.NoError(x.t, x.d.end(x.t, os.Interrupt), "a daemon that is asked to end")
	x.eventually("no process is left", func() bool { return len(x.processes()) == 0 })
}

// left are the pods and runs that the local runner still has.
func (x *crashWorld) left() []string {
	pods, err := filepath.Glob(filepath.Join(x.state, "local", "pods", "*", "[^.]*", "*"))
	require.NoError(x.t, err)
	runs, err := filepath.Glob(filepath.Join(x.state, "local", "runs", "[^.]*"))
	require.NoError(x.t, err)
	return append(pods, runs...)
}

// crashLaws are what holds in the end, seen from outside.
func (x *crashWorld) crashLaws() {
	x.t.Helper()
	branch, marks, lost := x.readBranch(), x.marks(), map[string]string{}
	for _, k := range x.killed() {
		if strings.HasPrefix(k.point, "shim.") {
			lost[filepath.Base(k.dir)] = k.point
		}
	}
	x.startedOnce(marks)
	x.onlyForward()
	for _, j := range x.jobs {
		said := branch[j.name]
		if said == nil {
			assert.Equal(x.t, repo.PhaseRemoved, j.phase, "%s has no record", j.name)
			continue
		}
		x.historyGrows(j.name, said)
		x.outcomesAreTrue(said, marks, lost)
		x.allTold(j, said, marks)
		x.tailsAreThere(j, said, marks, lost)
		x.retriesAreCounted(j, said, marks)
	}
}

// startedOnce: no container of a task attempt starts twice, and none beside an
// earlier attempt of its task.
func (x *crashWorld) startedOnce(marks []mark) {
	seen := map[string]bool{}
	for _, m := range marks {
		what := m.what + " " + m.pod + " " + m.container
		assert.False(x.t, seen[what], "twice: %s", what)
		assert.NotEqual(x.t, "beside", m.what, "an earlier attempt still lives: %s", what)
		seen[what] = true
	}
}

// onlyForward: the status branch was never moved to what does not follow from
// where it stood.
func (x *crashWorld) onlyForward() {
	text, err := os.ReadFile(filepath.Join(x.remote, "logs", "refs", "heads", repo.StatusBranch))
	require.NoError(x.t, err)
	commits := strings.Split(x.git(x.remote, "rev-list", "--first-parent", "--reverse", repo.StatusBranch), "\n")
	moves := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(x.t, commits, len(moves), "a commit for each move of the branch")
	for i, move := range moves {
		assert.Equal(x.t, commits[i], strings.Fields(move)[1])
	}
}

// outcomesAreTrue: each pod has one outcome, and it is what happened. Only whose
// shim was killed may be called lost.
func (x *crashWorld) outcomesAreTrue(said *told, marks []mark, lost map[string]string) {
	for pod, outcomes := range said.outcomes {
		assert.Len(x.t, outcomes, 1, "outcomes of %s: %v", pod, outcomes)
		end := said.ends[pod]
		started, ended, code := happened(marks, pod)
		switch {
		case end.Free && end.Reason == runner.ReasonPodDeleted: // by a daemon whose record of it was lost
			assert.True(x.t, ends(pod), "nobody has asked %s to end", pod)
		case end.Free:
			assert.NotEmpty(x.t, lost[pod], "nobody has harmed %s: %s %s", pod, end.Reason, end.Message)
		case end.Result == repo.Succeeded && strings.HasPrefix(pod, "serve-") && strings.Contains(pod, "-role1-"):
		case end.Result == repo.Succeeded:
			assert.True(x.t, started && ended && code == "0", "%s has succeeded, and did not", pod)
		case end.Result == repo.Failed && assert.NotNil(x.t, end.ExitCode, "%s: %s %s", pod, end.Reason, end.Message):
			assert.Equal(x.t, code, fmt.Sprint(*end.ExitCode), "exit code of %s: %s %s", pod, end.Reason, end.Message)
		}
		if ended && code == "0" && end.Result != repo.Succeeded && !ends(pod) {
			assert.NotEmpty(x.t, lost[pod], "%s has succeeded, and is recorded as %s %s", pod, end.Result, end.Reason)
		}
	}
}

// ends says whether a pod is of a job of which pods are asked to end.
func ends(pod string) bool {
	kind, _, _ := strings.Cut(pod, "-")
	return slices.Contains([]string{"stop", "change", "remove", "serve"}, kind)
}

// happened is what the marks say of a pod's main container.
func happened(marks []mark, pod string) (started, ended bool, code string) {
	for _, m := range marks {
		if m.pod == pod && m.container == "main" {
			started = true
			if m.what == "end" {
				ended, code = true, m.code
			}
		}
	}
	return started, ended, code
}

// allTold: whatever started is in the records with its outcome, and its run in
// the history.
func (x *crashWorld) allTold(j *crashJob, said *told, marks []mark) {
	history := "" // of a job that was stopped before it began
	for _, text := range said.histories {
		history = string(text)
	}
	for _, m := range marks {
		if m.job != j.name || m.what != "start" {
			continue
		}
		if _, ok := said.ends[m.pod]; !strings.HasPrefix(j.name, "change-") { // of a run that another one took the place of only its end is told
			assert.True(x.t, ok, "%s has started, and its outcome was never told", m.pod)
		}
		run, _, _ := strings.Cut(m.pod, "-role")
		assert.Equal(x.t, 1, strings.Count(history, `{"id":"`+run+`"`), "lines of run %s in the history", run)
	}
}

// tailsAreThere: who failed by itself has the end of its log on the branch, and
// so has who was lost after its log was closed.
func (x *crashWorld) tailsAreThere(j *crashJob, said *told, marks []mark, lost map[string]string) {
	closed := []string{"shim.container-end.after", "shim.pod-end.before", "shim.pod-end.half", "shim.file-outcome.json.before", "shim.file-outcome.json.half"}
	for pod, end := range said.ends {
		_, ended, _ := happened(marks, pod)
		if end.Result != repo.Failed || end.Free && !(ended && slices.Contains(closed, lost[pod])) {
			continue
		}
		if assert.NotEmpty(x.t, end.Log, "%s has no log: %s", pod, end.Reason) {
			tail, err := x.tryGit(x.remote, "show", repo.StatusBranch+":default/default/"+j.name+"/"+end.Log)
			assert.NoError(x.t, err, tail)
			assert.Contains(x.t, tail, "said by "+j.name+" ", "log of %s", pod)
		}
	}
}

// retriesAreCounted: the job answers for those that it has asked for itself.
func (x *crashWorld) retriesAreCounted(j *crashJob, said *told, marks []mark) {
	rec := &said.records[len(said.records)-1]
	if rec.Run == nil {
		return
	}
	wrong := int32(0)
	for _, m := range marks {
		if m.job == j.name && m.what == "end" && m.code == "42" && !said.ends[m.pod].Free {
			wrong++
		}
	}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			if strings.HasPrefix(j.name, "retry-") {
				assert.Equal(x.t, wrong, t.Retries.Accountable, "accountable retries of %s of %s", t.Name, j.name)
			}
			if n := len(t.Attempts); n > 0 {
				want := []int32{t.Attempts[n-1].Attempt}
				if t.Attempts[n-1].Result == repo.Failed && t.Phase == repo.TaskStopped {
					want = append(want, want[0]+1) // the run was over before this retry began
				}
				assert.Contains(x.t, want, t.Retries.Total, "retries of %s of %s, by its attempts", t.Name, j.name)
			}
		}
	}
	if strings.HasPrefix(j.name, "again-") {
		assert.Equal(x.t, wrong, rec.Run.Retries.Accountable, "accountable retries of %s", j.name)
	}
	assert.Equal(x.t, rec.Run.Attempt, rec.Run.Retries.Total, "retries of the run of %s, by its attempts", j.name)
}
