package runner

import (
	"slices"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// stopPods asks pods to end that are no longer wanted: of attempts that were
// told to stop, of attempts and runs that are over. One that does not end is
// given up after its role's time for that, whoever asked it to: only then may
// its retry run beside it. Without such a time it is waited for until the
// backend says that it is dead.
func (d *decision) stopPods() {
	for i := range d.in.Pods {
		p := &d.in.Pods[i]
		switch {
		case p.Ended():
		case p.DeletedAt.IsZero():
			if d.unwanted(p) {
				d.do(Action{Kind: Delete, Run: p.Run, Pod: p.Name, UID: p.UID})
			}
		default:
			if limit := d.forceAfter(p); limit != nil && d.due(p.DeletedAt.Add(*limit)) {
				d.do(Action{Kind: Delete, Run: p.Run, Pod: p.Name, UID: p.UID, Force: true})
			}
		}
	}
}

func (d *decision) unwanted(p *Pod) bool {
	if d.active() && p.Run == d.rec.Run.ID {
		if p.Attempt.RunAttempt != d.rec.Run.Attempt {
			return p.Attempt.RunAttempt < d.rec.Run.Attempt
		}
		a := d.recordOf(p)
		return a != nil && (a.Stop != "" || a.Outcome != nil)
	}
	if d.ran(p.Run) {
		return !d.serves(p)
	}
	// A run that waits to be adopted keeps its pods.
	return !slices.ContainsFunc(d.in.Runs, func(r repo.Run) bool { return r.ID == p.Run })
}

// recordOf finds the task attempt of a pod of the present attempt.
func (d *decision) recordOf(p *Pod) (found *repo.TaskAttemptRecord) {
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		for i := range t.Attempts {
			if t.Attempts[i].Pod == p.Name {
				found = &t.Attempts[i]
			}
		}
	})
	return found
}

func (d *decision) forceAfter(p *Pod) *time.Duration {
	for i := range d.in.Runs {
		if d.in.Runs[i].ID == p.Run {
			if role := d.in.Runs[i].Job.Role(p.Attempt.Role); role != nil {
				return role.ForceDeleteAfter
			}
		}
	}
	return nil
}

// releasePods lets go of pods whose outcome is at the remote, and removes them
// when their run's clean-up is due.
func (d *decision) releasePods() {
	for i := range d.in.Pods {
		p := &d.in.Pods[i]
		if !p.Ended() {
			continue
		}
		if p.Held {
			if d.recorded(p) {
				d.do(Action{Kind: Release, Run: p.Run, Pod: p.Name, UID: p.UID})
			}
			continue
		}
		if p.DeletedAt.IsZero() && d.cleanupDue(p) {
			d.do(Action{Kind: Delete, Run: p.Run, Pod: p.Name, UID: p.UID})
		}
	}
}

// recorded says whether the remote has the outcome of a pod.
func (d *decision) recorded(p *Pod) bool {
	pub := d.in.Published
	if pub == nil {
		return false
	}
	if finishedIn(pub, p.Run) != nil {
		return !liveIn(pub, p)
	}
	if pub.Run == nil || pub.Run.ID != p.Run {
		// Nobody knows the run: no record can be waiting for this pod.
		return !d.knows(p.Run)
	}
	if p.Attempt.RunAttempt != pub.Run.Attempt {
		return p.Attempt.RunAttempt < pub.Run.Attempt
	}
	for _, r := range pub.Roles {
		if r.Name != p.Attempt.Role {
			continue
		}
		for _, t := range r.Tasks {
			if t.Index == p.Attempt.Index {
				return hasOutcome(t.Attempts, p.Attempt.Attempt)
			}
		}
	}
	return false
}

// hasOutcome says whether the pod of attempt n has ended in a task's list, which
// keeps the latest attempts only: that of an older one has. A latest attempt of
// which no pod was known when it was given up has only just got one; one that was
// refused has none, whatever is there.
func hasOutcome(list []repo.TaskAttemptRecord, n int32) bool {
	if len(list) == 0 {
		return false
	}
	latest := &list[len(list)-1]
	return n < latest.Attempt || n == latest.Attempt && latest.Outcome != nil && (latest.UID != "" || latest.Reason == ReasonPodRefused)
}

// knows says whether a run is in the record, or waits to be adopted.
func (d *decision) knows(run string) bool {
	return d.ran(run) || slices.ContainsFunc(d.in.Runs, func(r repo.Run) bool { return r.ID == run })
}

// finishedIn is when a run, or the one that answered for it, finished according
// to a record; nil if it has not.
func finishedIn(rec *repo.Record, run string) *time.Time {
	if rec.Run != nil && rec.Run.ID == run && rec.Run.FinishedAt != nil {
		return &rec.Run.FinishedAt.Time
	}
	if at, ok := rec.Finished(run); ok {
		return &at
	}
	return nil
}

func (d *decision) cleanupDue(p *Pod) bool {
	if d.active() && p.Run == d.rec.Run.ID {
		return false // its logs are still of use
	}
	at := finishedIn(&d.rec, p.Run)
	if at == nil || d.gone() {
		return true
	}
	policy := repo.Cleanup{Pods: repo.CleanupAll}
	if d.in.Job != nil {
		policy = d.in.Job.Cleanup
	}
	for i := range d.in.Runs {
		if d.in.Runs[i].ID == p.Run {
			policy = d.in.Runs[i].Job.Cleanup
		}
	}
	return policy.Pods == repo.CleanupAll && d.due(at.Add(policy.After))
}

// forgetRuns lets go of what was prepared for runs of which nothing is left.
func (d *decision) forgetRuns() {
	if d.in.Published == nil {
		return
	}
	for i := range d.in.Runs {
		id := d.in.Runs[i].ID
		left := slices.ContainsFunc(d.in.Pods, func(p Pod) bool { return p.Run == id })
		if !left && finishedIn(d.in.Published, id) != nil && (!d.active() || d.rec.Run.ID != id) {
			d.do(Action{Kind: Forget, Run: id})
		}
	}
}
