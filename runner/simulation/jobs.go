package simulation

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const environment = "default"

// Exit codes of the simulated programs, by what the rules of every job make of them.
const (
	exitUnknown   = 1
	exitPermanent = 2
	exitFree      = 3
	exitConflict  = 4
	exitKilled    = 137
	exitAsked     = 143
)

// template is the pod of every task. Nothing of it matters to the runner.
var template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "train"}}}}

// repository is the watched branch: what every job is defined as now, and all
// that it ever was.
type repository struct {
	revision int
	defined  []*repo.Job   // by number of the job; nil is removed
	broken   []bool        // its file cannot be read
	versions [][]*repo.Job // by number of the job
	removal  repo.Removal
	removed  map[repo.Key]bool // jobs that were gone once
	defs     *repo.Definitions // of the revision
	// halted are the jobs whose pods may have been deleted for what they were in a
	// revision before this one: suspended, stopped, removed or another definition.
	halted map[repo.Key]bool
}

func keyOf(job int) repo.Key { return repo.Key{Namespace: "ml", Name: string(rune('a' + job))} }

// push makes what is defined now the next revision.
func (w *world) push() {
	w.repository.commit()
	w.laws.redefined(w)
}

func (r *repository) commit() {
	for i, job := range r.defined {
		key := keyOf(i)
		before := slices.IndexFunc(r.before(), func(j repo.Job) bool { return j.Key == key })
		if r.defs != nil && (before < 0 || r.defs.Jobs[before].Suspend || r.defs.Jobs[before].Stop || job != nil && job.Digest != r.defs.Jobs[before].Digest) {
			r.halted[key] = true
		}
	}
	r.revision++
	defs := &repo.Definitions{Revision: "r" + strconv.Itoa(r.revision), Environment: environment, Settings: repo.Settings{Removal: r.removal}}
	for i, job := range r.defined {
		switch {
		case r.broken[i]:
			defs.Invalid = append(defs.Invalid, repo.Invalid{Key: keyOf(i), Source: sourceOf(i), Errors: []*repo.Error{{Message: "no"}}})
		case job != nil:
			defs.Jobs = append(defs.Jobs, *job)
		}
	}
	r.defs = defs
}

// before are the jobs of the latest revision.
func (r *repository) before() []repo.Job {
	if r.defs == nil {
		return nil
	}
	return r.defs.Jobs
}

func sourceOf(job int) repo.Source { return repo.Source{Unit: "jobs/" + keyOf(job).Name + ".yaml"} }

// write makes job the definition of a job, as a version of its own.
func (r *repository) write(n int, job repo.Job) {
	v := strconv.Itoa(len(r.versions[n]))
	job.Digest, job.Shape = "d"+v, "s"+v
	r.versions[n] = append(r.versions[n], &job)
	r.defined[n] = &job
}

// retryOf draws a budget.
func (w *world) retry() repo.Retry {
	r := repo.Retry{
		Limit: oneOf[int32](&w.choices, 1, 0, 2, repo.Unlimited), Mode: oneOf(&w.choices, repo.ByFault, repo.ByClass, repo.ByCount),
	}
	if w.chance(30) {
		r.Backoff = repo.Backoff{Initial: 5 * time.Second, Factor: 2, Max: time.Minute}
		r.ConflictDelay = repo.Span{Min: time.Second, Max: 30 * time.Second}
	}
	return r
}

// job draws a definition that ends when its pods do.
func (w *world) job(n int) repo.Job {
	c := &w.choices
	job := repo.Job{
		Key: keyOf(n), Kind: "TrainingJob", Source: sourceOf(n), Retry: w.retry(),
		OnChange: oneOf(c, repo.Finish, repo.Restart, repo.Ignore), Success: oneOf(c, repo.AllRoles, repo.AllRoles, repo.AnyRole),
		Rescale: w.chance(30), Gang: w.chance(15),
		Cleanup: repo.Cleanup{Pods: repo.CleanupAll, After: oneOf(c, 0, 0, time.Hour)},
		Rules: []repo.FailureRule{
			{ExitCodes: code(exitPermanent), Class: repo.Permanent},
			{ExitCodes: code(exitFree), Class: repo.Transient, Free: true},
			{ExitCodes: code(exitConflict), Class: repo.TransientConflict, AvoidNode: true, FailRun: w.chance(20)},
			{Name: "Taken", Reasons: []string{string(corev1.DisruptionTarget)}, Class: repo.Transient, Free: true},
		},
	}
	for i := range 1 + w.below(2) {
		job.Roles = append(job.Roles, w.role(&job, i))
	}
	if w.chance(25) {
		job.FailureBudget = new(int32(w.below(4)))
	}
	if first := &job.Roles[0]; first.MinSucceeded > 0 && w.chance(20) {
		first.Chief, first.MinSucceeded, first.MinFailed = new(int32), 1, 1
	}
	if w.chance(15) {
		job.Deadline, job.StartDeadline = 2*time.Hour, 10*time.Minute
	}
	if w.chance(10) {
		job.Schedule = &repo.Schedule{Cron: "*/5 * * * *", Concurrency: oneOf(c, repo.Forbid, repo.Replace)}
	}
	return job
}

func (w *world) role(job *repo.Job, i int) repo.Role {
	c := &w.choices
	r := repo.Role{Name: []string{"worker", "ps"}[i], Replicas: int32(1 + w.below(3)), Template: template, Retry: w.retry()}
	r.MinSucceeded, r.MinFailed = oneOf(c, r.Replicas, 1), oneOf(c, 1, r.Replicas, repo.Never)
	r.Daemon = i > 0 && job.Success == repo.AllRoles && w.chance(50)
	r.Outlives = r.Daemon && w.chance(30)
	r.Parallelism = int32(oneOf(c, 0, 0, 1, 2))
	r.Drain = w.chance(20)
	if w.chance(30) {
		r.ForceDeleteAfter = new(oneOf(c, time.Minute, time.Second))
	}
	return r
}

func code(n int32) []repo.CodeRange { return []repo.CodeRange{{Min: n, Max: n}} }

// edit pushes another state of the repository.
func (w *world) edit() {
	r := &w.repository
	n := w.below(len(r.defined))
	job := r.defined[n]
	kind := w.below(10)
	r.broken[n] = false
	switch {
	case job == nil || kind == 0 && len(r.versions[n]) < 6:
		r.write(n, w.job(n))
		w.say("push: %s is a new definition %s", keyOf(n).Name, r.defined[n].Digest)
	case kind == 1:
		old := *r.versions[n][w.below(len(r.versions[n]))]
		r.defined[n] = &old
		w.say("push: %s goes back to %s", keyOf(n).Name, old.Digest)
	case kind <= 3:
		w.change(n, func(j *repo.Job) { j.Suspend = !j.Suspend })
		w.say("push: %s: suspend: %v", keyOf(n).Name, r.defined[n].Suspend)
	case kind == 4:
		w.change(n, func(j *repo.Job) { j.Stop = !j.Stop })
		w.say("push: %s: stop: %v", keyOf(n).Name, r.defined[n].Stop)
	case kind == 5:
		r.defined[n] = nil
		r.removed[keyOf(n)] = true
		w.say("push: %s is removed", keyOf(n).Name)
	case kind == 6:
		w.change(n, func(j *repo.Job) { j.Rerun = strconv.Itoa(1 + w.below(3)) })
		w.say("push: %s: rerun: %s", keyOf(n).Name, r.defined[n].Rerun)
	case kind == 7:
		w.rescale(n)
	case kind == 8:
		r.broken[n] = true
		w.say("push: the file of %s is broken", keyOf(n).Name)
	default:
		if token := w.remote.token(); token != "" {
			r.removal.Confirm = token
			w.say("push: removal is confirmed by %s", token)
		}
	}
	w.push()
}

// change pushes a definition that is the same version but for what no digest covers.
func (w *world) change(n int, f func(*repo.Job)) {
	job := *w.repository.defined[n]
	f(&job)
	w.repository.defined[n] = &job
}

// rescale pushes another number of replicas. The shape stays.
func (w *world) rescale(n int) {
	r := &w.repository
	job := *r.defined[n]
	job.Roles = slices.Clone(job.Roles)
	role := &job.Roles[0]
	role.Replicas = int32(1 + w.below(3))
	role.MinSucceeded, role.MinFailed = min(role.Replicas, role.MinSucceeded), min(role.Replicas, role.MinFailed)
	job.Digest = job.Shape + "x" + strconv.Itoa(int(role.Replicas))
	if i := slices.IndexFunc(r.versions[n], func(v *repo.Job) bool { return v.Digest == job.Digest }); i >= 0 {
		job = *r.versions[n][i] // this very content has been there
	} else {
		r.versions[n] = append(r.versions[n], &job)
	}
	r.defined[n] = &job
	w.say("push: %s has %d replicas: %s", keyOf(n).Name, role.Replicas, job.Digest)
}
