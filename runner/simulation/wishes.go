package simulation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// What the definition of a job asks for is a law, too: when nothing may start,
// how long a retry waits, how long pods are kept, what makes a run a success.
// Where a clock was moved only what needs no clock is asked for.

// wanted: no pod is started for a job that is to be suspended or stopped, as its
// daemon knew when it looked at the job.
func (l *laws) wanted(d *daemon, pod *corev1.Pod) {
	if d.decided == nil || l.loose || d.arriving {
		return
	}
	key := jobOf(pod)
	i := slices.IndexFunc(d.decided.Jobs, func(j repo.Job) bool { return j.Key == key })
	switch {
	case i < 0:
	case d.decided.Jobs[i].Suspend:
		l.breaks("pod %s is started, and its job is suspended", pod.Name)
	case d.decided.Jobs[i].Stop:
		l.breaks("pod %s is started, and its job is to stop", pod.Name)
	}
}

// patient: a retry starts when its back-off is over, and not at all after a
// failure that no retry can help.
func (l *laws) patient(w *world, f *fate) {
	prepared := w.cluster.run(f.run)
	if prepared == nil || prepared.run.Job.Rescale || l.loose { // a task that was scaled away begins anew
		return
	}
	job := &prepared.run.Job
	role := job.Role(f.attempt.Role)
	if f.attempt.Attempt == 0 {
		l.patientRun(w, f, job)
		return
	}
	before := f.attempt
	before.Attempt--
	last := l.fates[repo.PodName(f.run, before)]
	if role == nil || last == nil || last.late || last.asked || last.unclear || last.taken || last.code == 0 {
		return
	}
	if last.code == exitPermanent && role.Retry.Mode != repo.ByCount {
		l.breaks("pod %s is started, and what went wrong before cannot go right", f.name)
	}
	if wait := leastWait(role.Retry, last.code); !l.jumped && w.now.Before(last.endedAt.Add(wait)) {
		l.breaks("pod %s is started before its time: %s after the one before it, not %s", f.name, w.now.Sub(last.endedAt), wait)
	}
}

// patientRun is patient for the next attempt of a whole run.
func (l *laws) patientRun(w *world, f *fate, job *repo.Job) {
	if f.attempt.RunAttempt == 0 || l.jumped {
		return
	}
	var end time.Time
	conflict := false
	for _, other := range l.fates {
		if other.run != f.run || other.attempt.RunAttempt != f.attempt.RunAttempt-1 || other.late || other.endedAt.Before(end) {
			continue
		}
		end = other.endedAt
	}
	for _, other := range l.fates {
		conflict = conflict || other.run == f.run && other.code == exitConflict
	}
	code := int32(exitUnknown)
	if conflict {
		code = exitConflict
	}
	if wait := leastWait(job.Retry, code); !end.IsZero() && w.now.Before(end.Add(wait)) {
		l.breaks("pod %s is started before its time: %s after the attempt before it, not %s", f.name, w.now.Sub(end), wait)
	}
}

// leastWait is how long a retry waits at least.
func leastWait(r repo.Retry, code int32) time.Duration {
	if code == exitConflict && r.ConflictDelay.Max > 0 {
		return r.ConflictDelay.Min
	}
	return r.Backoff.Initial * 8 / 10
}

// kept: a pod that has ended stays as long as its job wants, if that was there all along.
func (l *laws) kept(w *world, p *pod) {
	prepared, rec := w.cluster.run(p.run), w.remote.head.record(p.key)
	if l.jumped || l.loose || !p.ended() || p.held() || prepared == nil || rec == nil || w.repository.removed[p.key] {
		return
	}
	for _, h := range rec.History {
		if at := h.FinishedAt.Add(prepared.run.Job.Cleanup.After); h.ID == p.run && w.now.Before(at) {
			l.breaks("pod %s is removed %s before its time", p.name, at.Sub(w.now))
		}
	}
}

// judged holds the outcome of a run against what became of its tasks.
func (l *laws) judged(w *world, old, rec *repo.Record, h *repo.RunSummary) {
	known := old != nil && old.Run != nil && old.Run.ID == h.ID
	job := w.repository.version(rec.Key(), rec.Run.Digest)
	switch {
	case l.loose || job == nil || job.Rescale:
	case h.Reason == runner.ReasonGangReleased:
		l.breaks("run %s has failed because it gave way to others", h.ID)
	case h.Reason == runner.ReasonRemoved && known && len(w.repository.defined) == 1 && w.repository.removal.Confirm == "":
		l.breaks("run %s was ended because all files are gone, and nobody has confirmed that", h.ID)
	case h.Reason == runner.ReasonDeadline && !l.jumped && w.now.Before(h.StartedAt.Add(job.Deadline+time.Duration(rec.Run.SuspendedSeconds)*time.Second)):
		l.breaks("run %s is said to be late before its deadline", h.ID)
	case h.Result == repo.Succeeded && job.Success == repo.AllRoles:
		l.succeeded(rec, h, job)
	}
	// What came first is told by clocks.
	if !l.loose && !l.jumped && job != nil && !job.Rescale && job.Success == repo.AllRoles && !l.undefined[h.ID] {
		l.recognised(h, job)
	}
	// Nobody knows why a daemon that is dead deleted a pod, when its job is another by now.
	if !l.loose && job != nil && job.StartDeadline == 0 && h.Result == repo.Succeeded && !w.repository.halted[rec.Key()] && !l.endedByItself(h) {
		l.breaks("run %s has succeeded, and all of it was stopped", h.ID)
	}
}

// endedByItself says whether anything of a run's last attempt did, was ended by
// somebody else, or given up because it could not even start.
func (l *laws) endedByItself(h *repo.RunSummary) bool {
	for _, f := range l.fates {
		if f.run == h.ID && f.attempt.RunAttempt == h.Attempts-1 && f.done && (!f.asked || f.byOthers || f.taken || f.cutOff || f.unclear) {
			return true
		}
	}
	return false
}

// recognised: an attempt of a run that had all the successes it needed before
// anything failed, or was asked to end, is the last, and its run has succeeded.
func (l *laws) recognised(h *repo.RunSummary, job *repo.Job) {
	for n := range h.Attempts {
		at, ok := l.complete(h.ID, n, job)
		late := h.Reason == runner.ReasonDeadline && at.Add(2*time.Second).After(h.StartedAt.Add(job.Deadline))
		if ok && !late && (n < h.Attempts-1 || h.Result != repo.Succeeded) {
			l.breaks("run %s had succeeded with its attempt %d, and is %s (%s) after %d", h.ID, n, h.Result, h.Reason, h.Attempts)
		}
	}
}

// complete says when an attempt of a run had the successes that its roles ask for.
func (l *laws) complete(run string, attempt int32, job *repo.Job) (at time.Time, ok bool) {
	enough, unborn := map[string]int32{}, int32(0)
	for i := range job.Roles {
		unborn += job.Roles[i].Replicas
		if role := &job.Roles[i]; role.Drain {
			return at, false
		} else if !role.Daemon && role.MinSucceeded > 0 {
			enough[role.Name] = role.MinSucceeded
		}
	}
	for _, f := range l.fates {
		if f.run != run || f.attempt.RunAttempt != attempt {
			continue
		}
		role := job.Role(f.attempt.Role)
		unborn--
		if !f.done || f.code != 0 || f.asked || f.unclear || f.late {
			return at, false
		}
		if role.Chief == nil || *role.Chief == f.attempt.Index {
			enough[role.Name]--
		}
		if f.endedAt.After(at) {
			at = f.endedAt
		}
	}
	for _, left := range enough {
		if left > 0 {
			return at, false
		}
	}
	// A task that never had a pod may have been given up for that before.
	return at, len(enough) > 0 && (unborn == 0 || job.StartDeadline == 0)
}

// succeeded: enough tasks have, and before too many had failed.
func (l *laws) succeeded(rec *repo.Record, h *repo.RunSummary, job *repo.Job) {
	var at time.Time
	for i := range job.Roles {
		role := &job.Roles[i]
		if role.Daemon || role.MinSucceeded < 1 {
			continue
		}
		var ends []time.Time
		for _, f := range l.fates {
			counts := f.attempt.Index < role.Replicas && (role.Chief == nil || *role.Chief == f.attempt.Index)
			if f.run == h.ID && f.attempt.RunAttempt == h.Attempts-1 && f.attempt.Role == role.Name && counts && f.done && f.code == 0 && (!f.asked || f.unclear) {
				ends = append(ends, f.endedAt)
			}
		}
		if len(ends) < int(role.MinSucceeded) {
			l.breaks("run %s has succeeded by %d tasks of role %s, and needs %d", h.ID, len(ends), role.Name, role.MinSucceeded)
			return
		}
		slices.SortFunc(ends, time.Time.Compare)
		if end := ends[role.MinSucceeded-1]; end.After(at) {
			at = end
		}
	}
	for i := range rec.Roles {
		r := &rec.Roles[i]
		role, failed := job.Role(r.Name), int32(0)
		for j := range r.Tasks {
			t := &r.Tasks[j]
			if role == nil || t.Phase != repo.TaskFailed || len(t.Attempts) == 0 {
				continue
			}
			last := &t.Attempts[len(t.Attempts)-1]
			if last.Outcome == nil || last.Stop != "" || !last.FinishedAt.Add(3*time.Second).Before(at) { // of several rules the first one counts
				continue // as it does if its end was seen only when it was given up
			}
			if last.FailRun {
				l.breaks("run %s has succeeded after %s had failed it", h.ID, t.Name)
			}
			if role.Chief == nil || *role.Chief == t.Index {
				failed++
			}
		}
		if role != nil && role.MinFailed >= 1 && failed >= role.MinFailed {
			l.breaks("run %s has succeeded after %d tasks of role %s had failed", h.ID, failed, r.Name)
		}
	}
}

// attempts: a run's retries are counted, each by what ended the attempt before it.
func (l *laws) attempts(rec *repo.Record, job *repo.Job) {
	if int(rec.Run.Attempt) != len(rec.Attempts) {
		return // the record keeps only the latest
	}
	used := int32(0)
	for i := range rec.Attempts {
		o := &rec.Attempts[i].Outcome
		transient := o.Class == repo.Transient || o.Class == repo.TransientConflict
		switch {
		case o.Reason == runner.ReasonRecordLost:
			return // nobody knows
		case o.Reason == runner.ReasonGangReleased:
		case job.Retry.Mode == repo.ByFault && o.Free, job.Retry.Mode == repo.ByClass && transient:
		default:
			used++
		}
	}
	if rec.Run.Retries.Accountable != used {
		l.breaks("run %s used %d retries, and says %d", rec.Run.ID, used, rec.Run.Retries.Accountable)
	}
}
