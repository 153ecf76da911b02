package runner

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Input is all that Decide knows of one job.
type Input struct {
	Now         time.Time
	Environment string
	Revision    string // of the snapshot that Job and Invalid were read from
	Key         repo.Key

	// The definition: Job, or Invalid when it has errors, or neither when it
	// is gone. Withheld says that it is gone together with too many others: the
	// job goes on as if nothing had happened until that is confirmed.
	Job      *repo.Job
	Invalid  *repo.Invalid
	Withheld string
	// Forbidden says why no new run may start (the operator's policy); "" lets it.
	Forbidden string

	Record    repo.Record  // what is known so far; the zero value for a new job
	Published *repo.Record // what has reached the remote; nil when nothing has
	Runs      []repo.Run   // runs that the backend has prepared and not forgotten
	Pods      []Pod        // all pods of the job, of older runs too
	Refused   map[string]string
	Troubles  map[string]string
	Asked     map[string]bool
}

// Output is what Decide wants done.
type Output struct {
	Record  repo.Record
	Actions []Action
	// Logs are the paths at which records refer to the logs of pods that were seen
	// to have failed, by pod: also of a run that another one has taken the place of.
	Logs map[string]string
	// Run is the definition of the run that Create actions are for.
	Run *repo.Run
	// At is when to decide again if nothing else happens; zero is never.
	At time.Time
	// Settled says that nothing will happen any more by itself, short of a
	// schedule or a clean-up.
	Settled bool
}

// ActionKind is what an Action does.
type ActionKind int

// The kinds of actions, all idempotent: each may be lost or repeated.
const (
	Create  ActionKind = iota // the pod of Attempt, whose name is its lock
	Delete                    // ask the pod to end; one that has ended is removed
	Release                   // take the finalizer off: its outcome is at the remote
	Forget                    // what was prepared for the run
)

// Action is an effect that Decide asks for.
type Action struct {
	Kind    ActionKind
	Run     string
	Attempt repo.TaskAttempt // of Create
	Avoid   repo.Avoid       // of Create
	Gang    *repo.Gang       // of Create: with whom it starts, nil for nobody
	Pod     string
	UID     string // of Delete and Release
	Force   bool   // Delete without a grace period
}

// Decide says what to do about a job now. It is deterministic and changes
// nothing that it was given. Input.Refused holds pods that the backend will
// never take, Input.Troubles those it could not be asked for just now, by name
// and with its words, Input.Asked those that may be there without anybody having seen them.
func Decide(in Input) Output {
	d := &decision{in: in, now: in.Now.UTC().Truncate(time.Second), rec: clone(in.Record), logs: map[string]string{}}
	d.identify()
	d.define()
	for range maxSteps {
		if !d.step() {
			break
		}
	}
	d.act()
	d.summarise()
	return Output{Record: d.rec, Actions: d.actions, Logs: d.logs, Run: d.def, At: d.at, Settled: d.settled()}
}

// maxSteps bounds how far one call goes: a record that lags behind many
// attempts catches up over several calls.
const maxSteps = 64

// decision is one call of Decide under way.
type decision struct {
	in      Input
	now     time.Time // whole seconds: what a record can hold
	rec     repo.Record
	def     *repo.Run // definition of the active run, nil when there is none or it was lost
	actions []Action
	at      time.Time
	waits   string // why no run starts, for the record
	logs    map[string]string
}

// identify fills in what a new record has not.
func (d *decision) identify() {
	d.rec.APIVersion, d.rec.Kind = repo.APIVersion, repo.RecordKind
	d.rec.Environment = d.in.Environment
	d.rec.Metadata.Name, d.rec.Metadata.Namespace = d.in.Key.Name, d.in.Key.Namespace
}

// step takes the job one step further and says whether it moved.
func (d *decision) step() bool {
	if d.adopt() {
		return true
	}
	if !d.active() {
		return d.serve() || d.startNext()
	}
	if d.def = d.definitionOf(d.rec.Run); d.def == nil {
		return d.loseDefinition()
	}
	moved := !d.overtakenRun() && d.rescale()
	moved = d.observe(&d.def.Job) || moved
	if d.overtakenRun() || d.overtakenAttempt() {
		return d.catchUp() || moved
	}
	moved = d.interrupt() || moved
	return d.proceed() || moved
}

// proceed takes the present attempt further, by what its tasks have come to.
func (d *decision) proceed() (moved bool) {
	if d.rec.Run.Ending == nil && d.started() {
		moved = d.advanceTasks()
		moved = d.judge() || moved
	}
	if d.rec.Run.Ending != nil {
		moved = d.endAttempt() || moved
	}
	return moved
}

// behind says whether the run has a pod of an attempt that the record has not
// come to: it is older than the pod, and has to catch up first.
func (d *decision) behind() bool { return d.unknownPods() || d.overtakenAttempt() }

// unknownPods says the same of the run's present attempt alone.
func (d *decision) unknownPods() bool {
	next := map[repo.Task]int32{}
	d.tasks(func(r *repo.RoleRecord, t *repo.TaskRecord) {
		next[repo.Task{Role: r.Name, Index: t.Index}] = nextAttempt(t)
	})
	run := d.rec.Run
	return slices.ContainsFunc(d.in.Pods, func(p Pod) bool {
		n, known := next[p.Attempt.Task]
		return known && p.Run == run.ID && p.Attempt.RunAttempt == run.Attempt && p.Attempt.Attempt >= n
	})
}

// overtakenAttempt says that a later attempt of the run has begun.
func (d *decision) overtakenAttempt() bool {
	return slices.ContainsFunc(d.in.Pods, func(p Pod) bool {
		return p.Run == d.rec.Run.ID && p.Attempt.RunAttempt > d.rec.Run.Attempt
	})
}

// overtakenRun says that a later run has begun.
func (d *decision) overtakenRun() bool {
	return slices.ContainsFunc(d.in.Runs, func(r repo.Run) bool { return r.Number > d.def.Number && !d.ran(r.ID) })
}

// catchUp ends the present attempt, or run, of which it is known that it was
// over when the next one began: by what its pods tell, or, when it ended for
// a reason that was lost with the record, without one.
func (d *decision) catchUp() bool {
	moved := d.proceed()
	if !d.active() || d.rec.Run.Ending != nil || d.unknownPods() {
		return moved
	}
	switch {
	case d.overtakenAttempt():
		d.rec.Run.Ending = lostOutcome()
	case d.overtakenRun():
		return d.stopRun(repo.Stopped, "", ReasonReplaced, "a new run took its place")
	}
	return true
}

// lostOutcome is that of an attempt of which nobody knows any more how it ended.
func lostOutcome() *repo.Outcome {
	return &repo.Outcome{Result: repo.Failed, Class: repo.Unknown, Reason: ReasonRecordLost, Message: "the record of how this attempt ended was lost"}
}

// started says whether the present attempt may have pods: its back-off is over.
func (d *decision) started() bool {
	run := d.rec.Run
	if run.RetryAt == nil {
		return true
	}
	if d.def != nil && len(d.rec.Attempts) > 0 {
		own := *run.RetryAt // the record that came in is not changed
		d.notLater(&own, d.waitOfRun())
		run.RetryAt = &own
	}
	if !d.behind() && (run.Suspended != nil || !d.due(run.RetryAt.Time)) {
		return false
	}
	run.RetryAt, run.AttemptAt = nil, stamp(d.now)
	return true
}

// active says whether a run is going on.
func (d *decision) active() bool { return d.rec.Run != nil && d.rec.Run.FinishedAt == nil }

// wake asks to be called again at a time.
func (d *decision) wake(at time.Time) {
	if !at.IsZero() && (d.at.IsZero() || at.Before(d.at)) {
		d.at = at
	}
}

// due says whether a time has come; if not, Decide asks to be called then.
func (d *decision) due(at time.Time) bool {
	if !at.After(d.in.Now) {
		return true
	}
	d.wake(at)
	return false
}

func (d *decision) do(a Action) { d.actions = append(d.actions, a) }

// act asks for the effects that the record, as it now is, calls for.
func (d *decision) act() {
	d.createPods()
	d.stopPods()
	d.releasePods()
	d.forgetRuns()
}

// settled says whether the job has come to rest.
func (d *decision) settled() bool {
	if !d.active() {
		return !d.retiring()
	}
	run := d.rec.Run
	if run.Suspended == nil || run.Ending != nil {
		return false
	}
	for _, r := range d.rec.Roles {
		for _, t := range r.Tasks {
			if live(&t) != nil {
				return false
			}
		}
	}
	return true
}

func stamp(t time.Time) *metav1.Time {
	m := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &m
}
