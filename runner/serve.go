package runner

import repo "github.com/trainyard/trainyard/repo-layout"

// serve looks after the tasks that outlive a finished run: the record follows
// them, and they end with the job.
func (d *decision) serve() bool {
	if !d.serving() {
		return false
	}
	job := &repo.Job{}
	for i := range d.in.Runs {
		if d.in.Runs[i].ID == d.rec.Run.ID {
			job = &d.in.Runs[i].Job
		}
	}
	moved := d.observe(job)
	if d.gone() {
		d.retire(ReasonRemoved)
	} else if d.in.Job != nil && d.in.Job.Stop {
		d.retire(ReasonStopRequested)
	}
	return moved
}

// serving says that a task goes on of a run that has finished.
func (d *decision) serving() (yes bool) {
	if d.rec.Run == nil || d.active() {
		return false
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) { yes = yes || live(t) != nil })
	return yes
}

// retire asks what outlived its run to end, and says whether there is still some.
func (d *decision) retire(why string) bool {
	if !d.serving() {
		return false
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) { stopTask(t, why) })
	return true
}

// retiring says that what outlived its run was asked to end, and has not yet.
func (d *decision) retiring() (yes bool) {
	if !d.serving() {
		return false
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		a := live(t)
		yes = yes || (a != nil && a.Stop != "")
	})
	return yes
}

// serves says whether a pod of a finished run goes on, as it should.
func (d *decision) serves(p *Pod) bool {
	if d.rec.Run == nil || p.Run != d.rec.Run.ID || p.Attempt.RunAttempt != d.rec.Run.Attempt {
		return false
	}
	a := d.recordOf(p)
	return a != nil && a.Outcome == nil && a.Stop == ""
}

// liveIn says whether a record has a pod's task attempt without an outcome.
func liveIn(rec *repo.Record, p *Pod) bool {
	if rec.Run == nil || rec.Run.ID != p.Run {
		return false
	}
	for i := range rec.Roles {
		for j := range rec.Roles[i].Tasks {
			if a := live(&rec.Roles[i].Tasks[j]); a != nil && a.Pod == p.Name {
				return true
			}
		}
	}
	return false
}
