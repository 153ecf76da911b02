package runner

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// check holds an output of Decide against what must be true of every one.
func (w *world) check(in Input, out Output) {
	require.True(w.t, reflect.DeepEqual(out, Decide(deepCopy(in))), "the same input gave two outputs")
	w.checkAgain(in, out)
	w.checkActions(in, out)
	w.checkRecord(in, out)
}

// checkAgain feeds an output's record back: nothing more may come of it, but
// for the steps that one call leaves to the next.
func (w *world) checkAgain(in Input, out Output) {
	in.Record = out.Record
	if out.Run != nil { // its pods are being created, so it is prepared
		in.Runs = append(slices.DeleteFunc(slices.Clone(in.Runs), func(r repo.Run) bool { return r.ID == out.Run.ID }), *out.Run)
	}
	again := Decide(deepCopy(in))
	if !reflect.DeepEqual(out.Record, again.Record) {
		require.Equal(w.t, out.Record, again.Record, "its own record moved Decide")
	}
	in = deepCopy(in)
	d := &decision{in: in, now: in.Now.UTC().Truncate(time.Second), rec: clone(in.Record), logs: map[string]string{}}
	d.identify()
	d.define()
	require.False(w.t, d.step(), "it says that it moved, and did not")
	// It may ask to be called for what is no longer so, but not miss what is.
	require.False(w.t, !again.At.IsZero() && (out.At.IsZero() || again.At.Before(out.At)), "%s instead of %s", out.At, again.At)
	require.Equal(w.t, kinds(out), kinds(again), "its own record asks for other actions")
}

func (w *world) checkActions(in Input, out Output) {
	live := map[repo.Task]string{}
	for _, p := range w.pods {
		if !p.Ended() {
			live[p.Attempt.Task] = p.Name
		}
	}
	for _, a := range out.Actions {
		p := w.pod(a.Pod)
		switch a.Kind {
		case Create:
			require.NotNil(w.t, out.Run)
			require.Equal(w.t, repo.PodName(a.Run, a.Attempt), a.Pod)
			w.checkAvoided(&out.Record, a)
			require.False(w.t, w.accepted[a.Pod] != nil && p == nil, "pod %s would be started a second time", a.Pod)
			if other := live[a.Attempt.Task]; len(w.hidden) == 0 {
				require.True(w.t, other == "" || other == a.Pod, "%s would run beside %s", a.Pod, other)
			}
		case Delete:
			require.True(w.t, p.Ended() || a.Force || !wanted(&out.Record, p), "pod %s is wanted, but would be ended", a.Pod)
			require.True(w.t, !a.Force || !p.DeletedAt.IsZero(), "pod %s would be given up, and nobody has asked it to end", a.Pod)
		case Release:
			require.True(w.t, p.Ended(), "pod %s runs, but would be released", a.Pod)
			require.True(w.t, published(in, p), "pod %s would be released before its outcome is published", a.Pod)
		case Forget:
			for _, p := range in.Pods {
				require.NotEqual(w.t, a.Run, p.Run, "a run would be forgotten that has pods")
			}
			require.False(w.t, out.Record.Run != nil && out.Record.Run.ID == a.Run && out.Record.Run.FinishedAt == nil)
		}
	}
}

// checkAvoided: a retry keeps away from every node on which its task failed
// twice for other reasons than to give way, and from those that a rule blames.
func (w *world) checkAvoided(rec *repo.Record, a Action) {
	require.Equal(w.t, rec.Run.AvoidNodes, a.Avoid.Never)
	require.LessOrEqual(w.t, len(a.Avoid.Never), repo.MaxAvoided)
	failures := map[string]int{}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			for _, try := range t.Attempts {
				gaveWay := []string{"Preempted", ReasonPodDeleted, ReasonPodLost, ReasonPodRefused}
				blamed := try.Outcome != nil && try.Result == repo.Failed && !slices.Contains(gaveWay, try.Reason)
				if t.Name == a.Attempt.Task.String() && r.Name == a.Attempt.Role && blamed {
					failures[try.Node]++
				}
			}
		}
	}
	for node, n := range failures {
		require.False(w.t, n > 1 && node != "" && !slices.Contains(a.Avoid.Rather, node), "%s failed %d times on %s", a.Pod, n, node)
	}
}

// wanted says that a live pod belongs to the active run, or outlives the
// latest, and nobody asked it to end.
func wanted(rec *repo.Record, p *Pod) bool {
	if rec.Run == nil || rec.Run.ID != p.Run || rec.Run.Attempt != p.Attempt.RunAttempt {
		return false
	}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			for _, a := range t.Attempts {
				if a.Pod == p.Name {
					return a.Stop == "" && a.Outcome == nil
				}
			}
		}
	}
	return rec.Run.FinishedAt == nil
}

// published says that the remote has an outcome for a pod, or that nobody waits for it.
func published(in Input, p *Pod) bool {
	pub := in.Published
	if pub == nil {
		return false
	}
	known := slices.ContainsFunc(in.Runs, func(r repo.Run) bool { return r.ID == p.Run })
	for _, rec := range []*repo.Record{&in.Record, pub} {
		known = known || (rec.Run != nil && rec.Run.ID == p.Run)
	}
	for _, s := range pub.History {
		if s.ID == p.Run {
			return !liveIn(pub, p)
		}
	}
	if pub.Run == nil || pub.Run.ID != p.Run {
		return !known
	}
	if pub.Run.Attempt > p.Attempt.RunAttempt {
		return true
	}
	for _, r := range pub.Roles {
		for _, t := range r.Tasks {
			for i, a := range t.Attempts {
				if a.Pod == p.Name {
					return a.Outcome != nil
				}
				if i == 0 && t.Name == p.Attempt.Task.String() && a.Attempt > p.Attempt.Attempt {
					return true // more attempts than a record keeps
				}
			}
		}
	}
	return false
}

func (w *world) checkRecord(in Input, out Output) {
	rec, old := &out.Record, &in.Record
	require.NoError(w.t, rec.Check())
	require.GreaterOrEqual(w.t, len(rec.History), len(old.History))
	require.True(w.t, len(old.History) == 0 || reflect.DeepEqual(old.History, rec.History[:len(old.History)]), "history was rewritten")
	require.True(w.t, reflect.DeepEqual(old.Past, rec.Past), "history was rewritten")
	seen := map[string]bool{}
	for _, s := range rec.History {
		require.False(w.t, seen[s.ID], "run %s is in the history twice", s.ID)
		seen[s.ID] = true
	}
	if in.Published != nil {
		for _, s := range in.Published.History {
			w.finished[s.ID] = true
		}
	}
	run := rec.Run
	if run == nil {
		return
	}
	active := run.FinishedAt == nil
	require.False(w.t, active && (w.finished[run.ID] || seen[run.ID]), "run %s has finished, and goes on again", run.ID)
	require.Equal(w.t, active, run.Outcome == nil)
	require.Equal(w.t, run.Attempt, run.Retries.Total, "every attempt of a run but the first is a retry")
	if old.Run != nil && old.Run.ID == run.ID {
		require.GreaterOrEqual(w.t, run.Attempt, old.Run.Attempt)
	}
	w.checkBudgets(in, out)
	w.checkParallelism(out)
	for _, r := range rec.Roles {
		for i := range r.Tasks {
			w.checkTask(run, r.Name, &r.Tasks[i])
		}
	}
}

func (w *world) checkTask(run *repo.RunRecord, role string, t *repo.TaskRecord) {
	require.LessOrEqual(w.t, len(t.Attempts), repo.MaxAttempts)
	own, stopped := int32(0), int32(0)
	for i, a := range t.Attempts {
		require.Equal(w.t, t.Attempts[0].Attempt+int32(i), a.Attempt, "attempts of %s", t.Name)
		name := repo.PodName(run.ID, repo.TaskAttempt{Task: repo.Task{Role: role, Index: t.Index}, RunAttempt: run.Attempt, Attempt: a.Attempt})
		require.Equal(w.t, name, a.Pod)
		require.True(w.t, a.Outcome != nil || i == len(t.Attempts)-1, "two attempts of %s go on at once", t.Name)
		if a.Attempt < t.FirstAttempt {
			continue // of before the task was scaled away
		}
		own++
		if a.Outcome != nil && a.Result == repo.Stopped && i < len(t.Attempts)-1 {
			stopped++
		}
	}
	if own > 0 && t.Attempts[0].Attempt <= t.FirstAttempt {
		retries := own - 1 - stopped
		if t.RetryAt != nil {
			retries++
		}
		require.Equal(w.t, retries, t.Retries.Total, "retries of %s", t.Name)
	}
	require.LessOrEqual(w.t, t.Retries.Accountable, t.Retries.Total)
}

// checkParallelism: tasks begin a few at a time, where the definition says so.
func (w *world) checkParallelism(out Output) {
	if out.Run == nil {
		return
	}
	for _, r := range out.Record.Roles {
		role, going := out.Run.Job.Role(r.Name), 0
		for i := range r.Tasks {
			if t := &r.Tasks[i]; t.Index < r.Replicas && live(t) != nil {
				going++
			}
		}
		starts := slices.ContainsFunc(out.Actions, func(a Action) bool {
			return a.Kind == Create && a.Attempt.Role == r.Name && w.accepted[a.Pod] == nil
		})
		if role != nil && role.Parallelism > 0 && starts && len(w.hidden) == 0 {
			require.LessOrEqual(w.t, going, int(role.Parallelism), "tasks of %s at a time", r.Name)
		}
	}
}

// checkBudgets compares counters with the limits of the run's own definition.
func (w *world) checkBudgets(in Input, out Output) {
	var job *repo.Job
	if out.Run != nil {
		job = &out.Run.Job
	} else if i := slices.IndexFunc(in.Runs, func(r repo.Run) bool { return r.ID == out.Record.Run.ID }); i >= 0 {
		job = &in.Runs[i].Job
	}
	if job == nil || job.Shape != out.Record.Run.Shape {
		return
	}
	within := func(what string, r repo.Retry, n repo.Retries) {
		if r.Limit >= 0 {
			require.LessOrEqual(w.t, n.Accountable, r.Limit, fmt.Sprint("budget of ", what))
		}
	}
	within("the run", job.Retry, out.Record.Run.Retries)
	failures := int32(0)
	for _, r := range out.Record.Roles {
		for _, t := range r.Tasks {
			if role := job.Role(r.Name); role != nil {
				within(t.Name, role.Retry, t.Retries)
			}
			failures += t.Retries.Accountable
		}
	}
	if b := job.FailureBudget; b != nil {
		require.LessOrEqual(w.t, failures, *b, "retries of all tasks together")
	}
}
