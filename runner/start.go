package runner

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// adopt takes up a run that the backend has and the record does not: a daemon
// started it and was killed before its record reached the remote.
func (d *decision) adopt() bool {
	if d.active() {
		return false
	}
	var found *repo.Run
	for i := range d.in.Runs {
		r := &d.in.Runs[i]
		if d.ran(r.ID) || (found != nil && r.Number >= found.Number) {
			continue
		}
		found = r
	}
	if found == nil {
		return false
	}
	d.serve() // what outlived the run before has ended meanwhile: the logs of what failed are kept
	d.begin(found)
	return true
}

// ran says whether a run has finished, or was answered for by another one.
func (d *decision) ran(id string) bool {
	if r := d.rec.Run; r != nil && (r.ID == id || slices.Contains(r.Covers, id)) {
		return true
	}
	_, finished := d.rec.Finished(id)
	return finished
}

// startNext starts the run that the definition asks for, if there is one.
func (d *decision) startNext() bool {
	d.def = nil
	job := d.in.Job
	if job == nil || d.in.Invalid != nil {
		return false
	}
	trigger, ok := d.trigger()
	if !ok {
		return false
	}
	switch {
	case job.Stop:
		return d.wait(ReasonStopRequested)
	case job.Suspend:
		return d.wait(ReasonSuspended)
	case job.Hold:
		return d.wait("Held")
	case d.in.Forbidden != "":
		return d.wait("Forbidden")
	}
	if d.retire(ReasonReplaced) {
		return false
	}
	d.begin(&repo.Run{
		ID: repo.RunID(d.in.Environment, job.Key, job.Digest, trigger), Environment: d.in.Environment,
		Trigger: trigger, Revision: d.in.Revision, StartedAt: d.now, Number: d.nextNumber(), Job: *job,
	})
	return true
}

func (d *decision) nextNumber() int {
	n := d.rec.Runs()
	for i := range d.in.Runs {
		n = max(n, d.in.Runs[i].Number)
	}
	return n + 1
}

func (d *decision) wait(why string) bool {
	d.waits = why
	return false
}

// trigger is what a new run would start by, if it has not run already. A value
// of the rerun annotation is used up by its first run: it may stay in the file
// while the definition changes, and be taken away.
func (d *decision) trigger() (repo.Trigger, bool) {
	job := d.in.Job
	if job.Rerun != "" && !d.anyRerun(func(value, _ string) bool { return value == job.Rerun }) {
		return repo.Trigger{Kind: repo.TriggerRerun, Value: job.Rerun}, true
	}
	if job.Schedule != nil {
		return d.cronTrigger()
	}
	t := repo.Trigger{Kind: repo.TriggerPush}
	rerunRan := d.anyRerun(func(_, digest string) bool { return digest == job.Digest })
	return t, !rerunRan && !d.ran(repo.RunID(d.in.Environment, job.Key, job.Digest, t))
}

// anyRerun says whether f holds for the present run or a finished one, if a rerun started it.
func (d *decision) anyRerun(f func(value, digest string) bool) bool {
	r := d.rec.Run
	return r != nil && r.Trigger.Kind == repo.TriggerRerun && f(r.Trigger.Value, r.Digest) || d.rec.AnyRerun(f)
}

// begin makes run the job's present one, with nothing of it started yet.
func (d *decision) begin(run *repo.Run) {
	d.def = run
	d.rec.Run = &repo.RunRecord{
		ID: run.ID, Digest: run.Job.Digest, Shape: run.Job.Shape, Trigger: run.Trigger, Revision: run.Revision,
		StartedAt: metav1.NewTime(run.StartedAt.UTC().Truncate(time.Second)), AttemptAt: stamp(run.StartedAt),
	}
	if at, err := time.Parse(time.RFC3339, run.Trigger.Value); err == nil && run.Trigger.Kind == repo.TriggerCron && d.rec.Schedule != nil {
		d.rec.Schedule.Last = stamp(at) // also of a run that was adopted: its time has been acted upon
	}
	d.rec.Attempts = nil
	d.rec.ObservedRevision = run.Revision
	d.rec.Roles = newRoles(&run.Job)
}

// newRoles are the roles of an attempt of which nothing has started.
func newRoles(job *repo.Job) []repo.RoleRecord {
	roles := make([]repo.RoleRecord, len(job.Roles))
	for i := range job.Roles {
		r := &job.Roles[i]
		roles[i] = repo.RoleRecord{Name: r.Name, Replicas: r.Replicas, Daemon: r.Daemon, Outlives: r.Outlives, GPUs: repo.GPUs(&r.Template.Spec)}
		for n := range r.Replicas {
			roles[i].Tasks = append(roles[i].Tasks, newTask(r.Name, n))
		}
	}
	return roles
}

func newTask(role string, index int32) repo.TaskRecord {
	return repo.TaskRecord{Name: repo.Task{Role: role, Index: index}.String(), Index: index, Phase: repo.TaskPending}
}

// definitionOf finds what a run executes: as the backend kept it, or else the
// repository's present definition, if that is the same one.
func (d *decision) definitionOf(rec *repo.RunRecord) *repo.Run {
	if d.def != nil && d.def.ID == rec.ID {
		return d.def
	}
	for i := range d.in.Runs {
		if d.in.Runs[i].ID == rec.ID {
			return d.fit(&d.in.Runs[i])
		}
	}
	if job := d.in.Job; job != nil && job.Digest == rec.Digest {
		return &repo.Run{
			ID: rec.ID, Environment: d.in.Environment, Trigger: rec.Trigger, Revision: rec.Revision,
			StartedAt: rec.StartedAt.Time, Number: d.rec.Runs() + 1, Job: *job, // whatever else is there began later
		}
	}
	return nil
}

// fit gives a definition that was prepared before or after a rescale the
// numbers that the record goes by: otherwise tasks would be waited for that
// there are no more, or not yet.
func (d *decision) fit(run *repo.Run) *repo.Run {
	if run.Job.Digest == d.rec.Run.Digest {
		return run
	}
	fitted := *run
	fitted.Job.Digest, fitted.Job.Roles = d.rec.Run.Digest, slices.Clone(run.Job.Roles)
	for i := range d.rec.Roles {
		if role, n := fitted.Job.Role(d.rec.Roles[i].Name), d.rec.Roles[i].Replicas; role != nil {
			for _, rule := range []*int32{&role.MinSucceeded, &role.MinFailed} {
				if *rule == role.Replicas || *rule > n { // all of them stays all of them
					*rule = n
				}
			}
			role.Replicas = n
		}
	}
	if job := d.in.Job; job != nil && job.Digest == d.rec.Run.Digest {
		setReplicas(&fitted.Job, job)
	}
	return &fitted
}

// setReplicas gives the roles of a job the numbers of another one.
func setReplicas(job, from *repo.Job) {
	for i := range job.Roles {
		if r := from.Role(job.Roles[i].Name); r != nil {
			job.Roles[i].Replicas, job.Roles[i].MinSucceeded, job.Roles[i].MinFailed = r.Replicas, r.MinSucceeded, r.MinFailed
		}
	}
}

// loseDefinition ends a run that nobody can continue: the backend's state is
// gone, and the repository has moved on. Only its pods, if any, remain to be
// ended, and those of later attempts to be taken up.
func (d *decision) loseDefinition() bool {
	run := d.rec.Run
	if run.Ending == nil || released(run.Ending) {
		run.Ending = &repo.Outcome{
			Result: repo.Failed, Class: repo.Transient, Free: true, Reason: ReasonDefinitionLost,
			Message: "the backend no longer has the definition of this run, and the repository has another one by now",
		}
	}
	run.Stopping, run.RetryAt = true, nil
	d.observe(&repo.Job{})
	if d.overtakenAttempt() && !d.lives() {
		d.catchUpBlindly()
		return true
	}
	return d.endAttempt()
}

// catchUpBlindly closes an attempt that was over when the next one began, for a
// reason that was lost, and begins that: with the tasks of this one, as nobody
// has the definition any more.
func (d *decision) catchUpBlindly() {
	run := d.rec.Run
	d.archive(*lostOutcome(), d.lastEnd())
	run.Attempt++
	run.Retries.Total++
	run.AttemptAt = stamp(d.now)
	for i := range d.rec.Roles {
		r := &d.rec.Roles[i]
		for j := range r.Tasks {
			r.Tasks[j] = newTask(r.Name, r.Tasks[j].Index)
		}
	}
}

// lives says whether a task attempt has not ended.
func (d *decision) lives() (yes bool) {
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) { yes = yes || live(t) != nil })
	return yes
}

// rescale lets a change of replica counts alone reach the run that is going on.
func (d *decision) rescale() bool {
	job, run := d.in.Job, d.rec.Run
	if job == nil || d.in.Invalid != nil || d.in.Forbidden != "" || !job.Rescale || job.Shape != run.Shape || job.Digest == run.Digest || run.Ending != nil {
		return false
	}
	scaled := *d.def
	scaled.Job.Roles = slices.Clone(d.def.Job.Roles)
	setReplicas(&scaled.Job, job)
	scaled.Job.Digest = job.Digest
	d.def = &scaled
	run.Digest = job.Digest
	run.Covers = append(run.Covers, repo.RunID(d.in.Environment, job.Key, job.Digest, repo.Trigger{Kind: repo.TriggerPush}))
	for i := range d.rec.Roles {
		r := &d.rec.Roles[i]
		if def := scaled.Job.Role(r.Name); def != nil {
			for j := range r.Tasks {
				if t := &r.Tasks[j]; t.Index >= r.Replicas && t.Index < def.Replicas {
					renew(t)
				}
			}
			r.Replicas = def.Replicas
			for n := int32(len(r.Tasks)); n < r.Replicas; n++ {
				r.Tasks = append(r.Tasks, newTask(r.Name, n))
			}
		}
	}
	return true
}

// renew makes a task that was scaled away a new one: with all its retries
// before it, and to be run whatever it has done. Only its numbers go on.
func renew(t *repo.TaskRecord) {
	t.FirstAttempt, t.Retries, t.RetryAt, t.Phase = nextAttempt(t), repo.Retries{}, nil, repo.TaskPending
}
