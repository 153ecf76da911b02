package runner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// fate is how a task ended, for the oracle: "" while it goes on.
type fate struct {
	role, name string
	index      int32
	phase      repo.TaskPhase
	at         int // seconds
}

// oracle is the completion rules once more, as a list of moments: at each, in
// the order of time, one asks whether a rule holds by now.
func oracle(job *repo.Job, fates []fate) (result repo.Result, task string) {
	var moments []int
	for _, f := range fates {
		if f.phase == repo.TaskSucceeded || f.phase == repo.TaskFailed {
			moments = append(moments, f.at)
		}
	}
	slices.Sort(moments)
	upTo := func(role *repo.Role, phase repo.TaskPhase, now int) (names []string) {
		var list []fate
		for _, f := range fates {
			if f.role == role.Name && f.phase == phase && f.at <= now && f.index < role.Replicas && (role.Chief == nil || *role.Chief == f.index) {
				list = append(list, f)
			}
		}
		slices.SortStableFunc(list, func(a, b fate) int { return a.at - b.at })
		for _, f := range list {
			names = append(names, f.name)
		}
		return names
	}
	for _, now := range moments {
		if job.Success == repo.AllRoles && allThere(job, func(r *repo.Role) int { return len(upTo(r, repo.TaskSucceeded, now)) }) {
			return repo.Succeeded, ""
		}
		for i := range job.Roles {
			r := &job.Roles[i]
			if names := upTo(r, repo.TaskFailed, now); r.MinFailed > 0 && len(names) >= int(r.MinFailed) {
				return repo.Failed, names[r.MinFailed-1]
			}
			if names := upTo(r, repo.TaskSucceeded, now); job.Success == repo.AnyRole && r.MinSucceeded > 0 && len(names) >= int(r.MinSucceeded) {
				return repo.Succeeded, names[r.MinSucceeded-1]
			}
		}
	}
	return whenAllEnded(job, func(r *repo.Role) (failed, succeeded int) {
		end := 1 << 30
		return len(upTo(r, repo.TaskFailed, end)), len(upTo(r, repo.TaskSucceeded, end))
	}), ""
}

// allThere says whether every role that is no daemon has reached its rule.
func allThere(job *repo.Job, succeeded func(*repo.Role) int) bool {
	rules := 0
	for i := range job.Roles {
		r := &job.Roles[i]
		if r.Daemon || r.MinSucceeded < 1 {
			continue
		}
		rules++
		if succeeded(r) < int(r.MinSucceeded) {
			return false
		}
	}
	return rules > 0
}

// whenAllEnded is the result when no rule was reached: "" while a task goes on.
func whenAllEnded(job *repo.Job, ended func(*repo.Role) (failed, succeeded int)) repo.Result {
	total, failures := 0, 0
	for i := range job.Roles {
		r := &job.Roles[i]
		if r.Daemon && job.Success == repo.AllRoles {
			continue
		}
		want := int(r.Replicas)
		if r.Chief != nil {
			want = 1
		}
		failed, succeeded := ended(r)
		if failed+succeeded < want {
			return ""
		}
		total, failures = total+want, failures+failed
	}
	switch {
	case total == 0:
		return ""
	case job.Success == repo.AllRoles && failures > 0:
		return repo.Failed
	}
	return repo.Succeeded
}

// ask puts fates into a record and asks judge.
func ask(job *repo.Job, fates []fate) (repo.Result, string) {
	d := &decision{now: day.Add(time.Hour), def: &repo.Run{Job: *job}}
	d.rec.Run = &repo.RunRecord{}
	d.rec.Roles = newRoles(job)
	for _, f := range fates {
		for i := range d.rec.Roles {
			r := &d.rec.Roles[i]
			for j := range r.Tasks {
				if t := &r.Tasks[j]; t.Name == f.name {
					t.Phase = f.phase
					at := metav1.NewTime(day.Add(time.Duration(f.at) * time.Second))
					result := map[repo.TaskPhase]repo.Result{repo.TaskSucceeded: repo.Succeeded, repo.TaskFailed: repo.Failed, repo.TaskStopped: repo.Stopped}[f.phase]
					if result != "" {
						t.Attempts = []repo.TaskAttemptRecord{{FinishedAt: &at, Outcome: &repo.Outcome{Result: result, Reason: "its own"}}}
					}
				}
			}
		}
	}
	if !d.judge() {
		return "", ""
	}
	return d.rec.Run.Ending.Result, d.rec.Run.Ending.Task
}

func TestJudgeAgainstOracle(t *testing.T) {
	phases := []repo.TaskPhase{repo.TaskSucceeded, repo.TaskFailed, repo.TaskRunning, repo.TaskStopped}
	rapid.Check(t, func(t *rapid.T) {
		job := &repo.Job{Success: rapid.SampledFrom([]repo.Success{repo.AllRoles, repo.AnyRole}).Draw(t, "success")}
		var fates []fate
		running := rapid.IntRange(2, len(phases)).Draw(t, "kinds of ends")
		for i := range rapid.IntRange(1, 3).Draw(t, "roles") {
			r := repo.Role{Name: fmt.Sprintf("r%d", i), Replicas: rapid.Int32Range(0, 3).Draw(t, "replicas")}
			r.Daemon = rapid.IntRange(0, 3).Draw(t, "daemon") == 0
			r.MinSucceeded = rapid.Int32Range(-1, max(1, r.Replicas)).Draw(t, "minSucceeded")
			r.MinFailed = rapid.Int32Range(-1, max(1, r.Replicas)).Draw(t, "minFailed")
			if r.Replicas > 0 && rapid.IntRange(0, 3).Draw(t, "has chief") == 0 {
				chief := rapid.Int32Range(0, r.Replicas-1).Draw(t, "chief")
				r.Chief = &chief
			}
			for n := range r.Replicas {
				fates = append(fates, fate{
					role: r.Name, name: fmt.Sprintf("%s-%d", r.Name, n), index: n,
					phase: rapid.SampledFrom(phases[:running]).Draw(t, "fate"), at: rapid.IntRange(0, 4).Draw(t, "at"),
				})
			}
			job.Roles = append(job.Roles, r)
		}
		want, by := oracle(job, fates)
		got, task := ask(job, fates)
		require.Equal(t, want, got)
		if by != "" {
			require.Equal(t, by, task)
		}
	})
}

func TestCompletion(t *testing.T) {
	role := func(name string, replicas, succeeded, failed int32) repo.Role {
		return repo.Role{Name: name, Replicas: replicas, MinSucceeded: succeeded, MinFailed: failed}
	}
	daemon := func(r repo.Role) repo.Role { r.Daemon = true; return r }
	chief := func(r repo.Role, n int32) repo.Role { r.Chief = &n; return r }
	ok := func(role string, n int32, at int) fate {
		return fate{role, fmt.Sprintf("%s-%d", role, n), n, repo.TaskSucceeded, at}
	}
	bad := func(role string, n int32, at int) fate {
		return fate{role, fmt.Sprintf("%s-%d", role, n), n, repo.TaskFailed, at}
	}
	for _, row := range []struct {
		rule    string
		success repo.Success
		roles   []repo.Role
		fates   []fate
		result  repo.Result
		task    string
	}{
		{"AllRoles: one of two is not enough", repo.AllRoles, []repo.Role{role("w", 2, 2, 1)}, []fate{ok("w", 0, 1)}, "", ""},
		{"AllRoles: all of them", repo.AllRoles, []repo.Role{role("w", 2, 2, 1)}, []fate{ok("w", 0, 1), ok("w", 1, 2)}, repo.Succeeded, "w-1"},
		{"AllRoles: every role", repo.AllRoles, []repo.Role{role("m", 1, 1, 1), role("w", 1, 1, 1)}, []fate{ok("m", 0, 1)}, "", ""},
		{"AllRoles: a number", repo.AllRoles, []repo.Role{role("w", 3, 2, 2)}, []fate{ok("w", 0, 1), ok("w", 2, 2)}, repo.Succeeded, "w-2"},
		{"AllRoles: a daemon counts for nothing", repo.AllRoles, []repo.Role{role("w", 1, 1, 1), daemon(role("ps", 1, 1, 1))}, []fate{ok("w", 0, 1)}, repo.Succeeded, "w-0"},
		{"AllRoles: daemons alone do not end", repo.AllRoles, []repo.Role{daemon(role("ps", 1, 1, 1))}, []fate{ok("ps", 0, 1)}, "", ""},
		{"AllRoles: a daemon can fail", repo.AllRoles, []repo.Role{role("w", 1, 1, 1), daemon(role("ps", 1, 1, 1))}, []fate{bad("ps", 0, 1)}, repo.Failed, "ps-0"},
		{"AllRoles: minFailed", repo.AllRoles, []repo.Role{role("w", 3, 3, 2)}, []fate{bad("w", 2, 1)}, "", ""},
		{"AllRoles: minFailed reached, by the second", repo.AllRoles, []repo.Role{role("w", 3, 3, 2)}, []fate{bad("w", 2, 1), bad("w", 0, 2)}, repo.Failed, "w-0"},
		{"AllRoles: failures never count, too few succeeded", repo.AllRoles, []repo.Role{role("w", 2, 2, repo.Never)}, []fate{bad("w", 0, 1), ok("w", 1, 2)}, repo.Failed, "w-0"},
		{"AllRoles: what came first wins", repo.AllRoles, []repo.Role{role("w", 1, 1, 1), role("x", 1, repo.Never, 1)}, []fate{ok("w", 0, 2), bad("x", 0, 1)}, repo.Failed, "x-0"},
		{"AllRoles: what came first wins, the other way", repo.AllRoles, []repo.Role{role("w", 1, 1, 1), role("x", 1, repo.Never, 1)}, []fate{ok("w", 0, 1), bad("x", 0, 2)}, repo.Succeeded, "w-0"},
		{"AllRoles: at the same time the work counts", repo.AllRoles, []repo.Role{role("x", 1, repo.Never, 1), role("w", 1, 1, 1)}, []fate{ok("w", 0, 1), bad("x", 0, 1)}, repo.Succeeded, "w-0"},
		{"AllRoles: the chief alone decides", repo.AllRoles, []repo.Role{chief(role("w", 3, 1, 1), 0)}, []fate{bad("w", 1, 1), ok("w", 2, 2)}, "", ""},
		{"AllRoles: the chief succeeds", repo.AllRoles, []repo.Role{chief(role("w", 3, 1, 1), 0)}, []fate{bad("w", 1, 1), ok("w", 0, 2)}, repo.Succeeded, "w-0"},
		{"AllRoles: the chief fails", repo.AllRoles, []repo.Role{chief(role("w", 3, 1, 1), 0)}, []fate{ok("w", 1, 1), bad("w", 0, 2)}, repo.Failed, "w-0"},
		{"AnyRole: one role is enough", repo.AnyRole, []repo.Role{role("a", 1, 1, 1), role("b", 1, 1, 1)}, []fate{ok("b", 0, 1)}, repo.Succeeded, "b-0"},
		{"AnyRole: the earliest trigger wins", repo.AnyRole, []repo.Role{role("a", 2, 2, 1), role("b", 1, 1, 1)}, []fate{ok("a", 0, 1), ok("a", 1, 3), bad("b", 0, 2)}, repo.Failed, "b-0"},
		{"AnyRole: the n-th end is the trigger, not the first", repo.AnyRole, []repo.Role{role("a", 2, 2, 1), role("b", 1, 1, 1)}, []fate{ok("a", 0, 1), ok("a", 1, 2), bad("b", 0, 3)}, repo.Succeeded, "a-1"},
		{"AnyRole: ties go by the order of roles", repo.AnyRole, []repo.Role{role("a", 1, 1, 1), role("b", 1, 1, 1)}, []fate{ok("a", 0, 1), bad("b", 0, 1)}, repo.Succeeded, "a-0"},
		{"AnyRole: ties go by the order of roles, the other way", repo.AnyRole, []repo.Role{role("b", 1, 1, 1), role("a", 1, 1, 1)}, []fate{ok("a", 0, 1), bad("b", 0, 1)}, repo.Failed, "b-0"},
		{"AnyRole: within a role failed before succeeded", repo.AnyRole, []repo.Role{role("a", 2, 1, 1)}, []fate{ok("a", 0, 1), bad("a", 1, 1)}, repo.Failed, "a-1"},
		{"AnyRole: ties of a role go by index", repo.AnyRole, []repo.Role{role("a", 3, repo.Never, 2)}, []fate{bad("a", 2, 1), bad("a", 1, 1)}, repo.Failed, "a-2"},
		{"AnyRole: all ended without a rule is a success, even of failures", repo.AnyRole, []repo.Role{role("a", 2, repo.Never, repo.Never)}, []fate{bad("a", 0, 1), bad("a", 1, 2)}, repo.Succeeded, "a-1"},
		{"AnyRole: one of them goes on", repo.AnyRole, []repo.Role{role("a", 2, repo.Never, repo.Never)}, []fate{bad("a", 0, 1)}, "", ""},
		{"AnyRole: no tasks, no end", repo.AnyRole, []repo.Role{role("a", 0, repo.Never, repo.Never)}, nil, "", ""},
		{"a parameter server that serves for ever keeps the run going", repo.AnyRole, []repo.Role{role("worker", 1, repo.Never, 1), role("ps", 1, repo.Never, 1)}, []fate{ok("worker", 0, 1)}, "", ""},
		{"0 is never, too", repo.AnyRole, []repo.Role{role("a", 2, 0, 0)}, []fate{bad("a", 0, 1)}, "", ""},
	} {
		t.Run(row.rule, func(t *testing.T) {
			job := &repo.Job{Success: row.success, Roles: row.roles}
			result, task := ask(job, row.fates)
			assert.Equal(t, row.result, result)
			assert.Equal(t, row.task, task)
			want, _ := oracle(job, row.fates)
			assert.Equal(t, want, result, "the oracle")
		})
	}
}
