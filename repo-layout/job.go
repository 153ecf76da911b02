package repo

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Key names a job within an environment.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is namespace/name.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

// Source says where in the watched repository a job is defined.
type Source struct {
	// Unit is the path that was built: a job file, or a directory with a kustomization.
	Unit string `json:"unit,omitempty"`
	// File and Line are where the job's document begins; Line counts from 1, 0 is unknown.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Job is one training job as its definition says it should run, whatever
// format it was written in: rendered, with every default filled in.
type Job struct {
	Key
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Source      Source            `json:"source"`
	Labels      map[string]string `json:"labels,omitempty"`
	Description string            `json:"description,omitempty"`

	// Digest is the identity of what would run. It is made from the built
	// document, not from this struct, so that a new version of Trainyard does
	// not start every job again. Suspend, Stop, Rerun, Schedule, OnChange,
	// Cleanup, comments and key order are not part of it.
	Digest string `json:"digest"`
	// Shape is Digest without the replica counts: a change that keeps Shape is a rescale.
	Shape string `json:"shape"`

	Hold     bool      `json:"hold,omitempty"`    // nothing starts yet (Framework's executionType Create)
	Suspend  bool      `json:"suspend,omitempty"` // pods are stopped, the run waits
	Stop     bool      `json:"stop,omitempty"`    // the run ends as Stopped
	Rerun    string    `json:"rerun,omitempty"`   // value of the rerun annotation; a new value is a new run
	Schedule *Schedule `json:"schedule,omitempty"`
	OnChange OnChange  `json:"onChange"`
	// Rescale allows a change of replica counts to reach a run that is going on.
	Rescale bool `json:"rescale,omitempty"`

	// Deadlines; zero is none. Deadline is of the whole run, without the time
	// it was suspended; StartDeadline is from a task attempt's creation to its
	// first running container; ProgressDeadline is from the last output of any
	// of the run's tasks.
	Deadline         time.Duration `json:"deadline,omitempty"`
	StartDeadline    time.Duration `json:"startDeadline,omitempty"`
	ProgressDeadline time.Duration `json:"progressDeadline,omitempty"`

	Retry Retry `json:"retry"` // attempts of the whole run
	// FailureBudget, when set, is how many task attempts of all roles together
	// may fail accountably within one attempt of the run; one more fails it
	// (backoffLimit of Kubernetes' Job).
	FailureBudget *int32        `json:"failureBudget,omitempty"`
	Rules         []FailureRule `json:"rules,omitempty"` // read in order, first match wins
	Success       Success       `json:"success"`
	Cleanup       Cleanup       `json:"cleanup"`
	Gang          bool          `json:"gang,omitempty"`
	Roles         []Role        `json:"roles"`
	// Objects are the unit's other objects, and those that the format makes,
	// applied with the job's run.
	Objects  []Object `json:"objects,omitempty"`
	Warnings []*Error `json:"warnings,omitempty"`
}

// Role returns the role of that name, or nil.
func (j *Job) Role(name string) *Role {
	for i := range j.Roles {
		if j.Roles[i].Name == name {
			return &j.Roles[i]
		}
	}
	return nil
}

// Tasks is the number of tasks of all roles.
func (j *Job) Tasks() int {
	n := 0
	for i := range j.Roles {
		n += int(j.Roles[i].Replicas)
	}
	return n
}

// Role is a set of identical replicas of a job.
type Role struct {
	Name     string `json:"name"`
	Replicas int32  `json:"replicas"`
	// Daemon roles serve the others: they count for nothing in Success and are
	// stopped when the others are done. MinFailed holds for them too.
	Daemon bool `json:"daemon,omitempty"`
	// MinSucceeded tasks make the role succeed; MinFailed tasks (failed for
	// good, their own retries used up) make the run's attempt fail. Never
	// switches a rule off.
	MinSucceeded int32 `json:"minSucceeded"`
	MinFailed    int32 `json:"minFailed"`
	// Chief, when set, is the only index of the role that counts for its rules.
	Chief *int32 `json:"chief,omitempty"`
	// SucceedWhen, when set, takes the place of MinSucceeded: the role has
	// succeeded when one of the rules holds.
	SucceedWhen []SuccessRule `json:"succeedWhen,omitempty"`
	// Parallelism is how many tasks of the role run at a time, in the order of
	// their index; 0 is all of them.
	Parallelism int32 `json:"parallelism,omitempty"`
	// Drain: once MinSucceeded is reached no task is started or tried again,
	// and the role has succeeded when those that run have ended, however they
	// do (the work queue of Kubernetes' Job).
	Drain bool `json:"drain,omitempty"`
	// Outlives: the role's tasks go on when the run has finished, until the
	// next run or the job's removal (TensorBoard). Such a role is a daemon too.
	Outlives bool  `json:"outlives,omitempty"`
	Retry    Retry `json:"retry"` // of a task
	// MainContainer is the one whose end decides; "" means any that failed.
	MainContainer string `json:"mainContainer,omitempty"`
	// Port is where a task of this role listens for the others; 0 is none.
	Port int32 `json:"port,omitempty"`
	// ForceDeleteAfter, when set, gives a pod up that long after its graceful
	// deletion began, whoever asked for it. On a node that does not answer it may
	// still run then, beside its retry.
	ForceDeleteAfter *time.Duration `json:"forceDeleteAfter,omitempty"`

	// Template is the pod of every task, before Stamp names it.
	Template corev1.PodTemplateSpec `json:"template"`
	Env      Env                    `json:"env"`
}

// SuccessRule holds when Count of the tasks with the given indexes have
// succeeded; Count 0 is all of them, no Indexes are those of all tasks.
type SuccessRule struct {
	Indexes []CodeRange `json:"indexes,omitempty"`
	Count   int32       `json:"count,omitempty"`
}

// Never switches MinSucceeded or MinFailed off.
const Never int32 = -1

// Env is the environment that every task of a role is given: the rendezvous
// variables of its format. Values are Go templates; see Stamp for what they
// may use. They are made by render alone: no text of a user reaches them.
type Env struct {
	Vars []corev1.EnvVar `json:"vars,omitempty"`
	// Containers that are given Vars; empty is all of them.
	Containers []string `json:"containers,omitempty"`
	// Init gives Vars to init containers too.
	Init bool `json:"init,omitempty"`
	// Last puts Vars behind the user's variables, so that ours win; by default
	// they come first, so that the user's win and may refer to ours.
	Last bool `json:"last,omitempty"`
	// Placeholders, when set, are replaced in the whole pod: {{NAME}} by the
	// value of the variable NAME. Only names listed here are touched.
	Placeholders []string `json:"placeholders,omitempty"`
	// Labels and annotations for the pod, values like those of Vars.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Object is an object of a unit that is no job: a ConfigMap, a Service.
type Object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Raw        json.RawMessage `json:"raw"` // the whole object as JSON
	// Expand: the values of a ConfigMap's data are templates like those of Env,
	// of what is the same for all tasks of a run. Made by render alone.
	Expand bool `json:"expand,omitempty"`
}

// Schedule starts a run at each time of a cron expression instead of at a push.
type Schedule struct {
	Cron     string `json:"cron"`               // five fields, or @daily and its like
	TimeZone string `json:"timeZone,omitempty"` // IANA name; UTC if empty
	// Concurrency says what happens when a time comes while a run is going on.
	Concurrency Concurrency `json:"concurrency"`
	// StartingDeadline is how late a run may start; 0 is without limit.
	StartingDeadline time.Duration `json:"startingDeadline,omitempty"`
}

// Concurrency of a schedule.
type Concurrency string

// What a schedule does when its time comes while a run is going on.
const (
	Forbid  Concurrency = "Forbid"  // the run that is going on finishes first
	Replace Concurrency = "Replace" // it is stopped, the new one starts
)

// OnChange says what a changed definition does to a run that is going on.
type OnChange string

// The policies of OnChange.
const (
	Finish  OnChange = "Finish"  // let it finish, then run the new definition
	Restart OnChange = "Restart" // stop it, then run the new definition
	Ignore  OnChange = "Ignore"  // let it finish; the new definition does not run by itself
)

// Success says how roles make a run's attempt succeed.
type Success string

const (
	// AllRoles: every role that is no daemon has reached its MinSucceeded. When
	// all counted tasks have ended without that, the attempt has failed.
	AllRoles Success = "AllRoles"
	// AnyRole: one role has reached its MinSucceeded, or all tasks have ended
	// without any rule being reached (FrameworkController's rule).
	AnyRole Success = "AnyRole"
)

// Retry is a budget of retries. How a failure's class counts depends on Mode.
type Retry struct {
	// Limit is how many accountable failures are retried; Unlimited retries
	// every failure, Always also every success (a service).
	Limit   int32     `json:"limit"`
	Mode    RetryMode `json:"mode"`
	Backoff Backoff   `json:"backoff"`
	// ConflictDelay is the span from which the wait after a TransientConflict is drawn.
	ConflictDelay Span `json:"conflictDelay"`
}

// Special values of Retry.Limit.
const (
	Unlimited int32 = -1
	Always    int32 = -2
)

// RetryMode says which failures are retried and which use up the budget.
type RetryMode string

const (
	// ByFault: failures that are nobody's fault (Outcome.Free: preemption, lost
	// node) are retried without using the budget, Permanent ones are not
	// retried, all others use the budget.
	ByFault RetryMode = "ByFault"
	// ByClass: Transient and TransientConflict are retried without using the
	// budget, Permanent is not retried, Unknown uses the budget
	// (FrameworkController's fancy retry policy).
	ByClass RetryMode = "ByClass"
	// ByCount: every failure uses the budget, whatever its class.
	ByCount RetryMode = "ByCount"
)

// Backoff grows from Initial by Factor for each retry in a row, up to Max. The
// zero value retries at once.
type Backoff struct {
	Initial time.Duration `json:"initial,omitempty"`
	Factor  float64       `json:"factor,omitempty"`
	Max     time.Duration `json:"max,omitempty"`
}

// Span is a span of waiting times, both ends included.
type Span struct {
	Min time.Duration `json:"min,omitempty"`
	Max time.Duration `json:"max,omitempty"`
}

// Cleanup says which pods of a run that has ended are deleted, and when.
// Their outcome is in the record before that, whatever the policy.
type Cleanup struct {
	Pods  CleanupPods   `json:"pods"`
	After time.Duration `json:"after,omitempty"` // after the run's end
}

// CleanupPods chooses pods for Cleanup.
type CleanupPods string

// The choices of CleanupPods.
const (
	CleanupAll     CleanupPods = "All"
	CleanupRunning CleanupPods = "Running" // only what still runs; finished pods stay
	CleanupNone    CleanupPods = "None"
)

// Class says whose fault a failure is.
type Class string

// The classes of failures.
const (
	Transient         Class = "Transient"
	TransientConflict Class = "TransientConflict"
	Permanent         Class = "Permanent"
	Unknown           Class = "Unknown"
)

// FailureRule gives failures that match it a class. All conditions that are
// set must hold; a rule without conditions matches every failure.
type FailureRule struct {
	Name      string      `json:"name,omitempty"`      // becomes the outcome's reason
	Roles     []string    `json:"roles,omitempty"`     // only tasks of these roles; none is all
	Container string      `json:"container,omitempty"` // only ends of this container
	ExitCodes []CodeRange `json:"exitCodes,omitempty"`
	Signals   []CodeRange `json:"signals,omitempty"`
	// Reasons match the pod's or the container's reason exactly (Evicted, OOMKilled …).
	Reasons []string `json:"reasons,omitempty"`
	// Patterns are RE2 expressions, found anywhere in the text they are for.
	ReasonPattern  string `json:"reasonPattern,omitempty"`
	MessagePattern string `json:"messagePattern,omitempty"`
	LogPattern     string `json:"logPattern,omitempty"` // in the end of the log
	// NoMessage asks for a container that left no termination message.
	NoMessage bool `json:"noMessage,omitempty"`
	// Pod, when set, takes the place of all conditions above but Roles.
	Pod *PodPattern `json:"pod,omitempty"`

	Class     Class `json:"class"`
	Free      bool  `json:"free,omitempty"`      // nobody's fault: does not use up a ByFault budget
	AvoidNode bool  `json:"avoidNode,omitempty"` // the retry should run on another node
	// FailRun ends the attempt of the run at once, whatever the counts say.
	FailRun bool `json:"failRun,omitempty"`
}

// PodPattern is a pattern of FrameworkController's podFailureSpec. All that is
// given must hold; expressions are RE2, found anywhere in the text they are for.
type PodPattern struct {
	// Name is that of the pod as FrameworkController would call it: JOB-ROLE-INDEX.
	Name string `json:"name,omitempty"`
	// Reason and Message are the pod's own, none of a condition or container.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Containers hold each for some container of the pod, init containers
	// included, one that exited with 0 among them.
	Containers []ContainerPattern `json:"containers,omitempty"`
}

// ContainerPattern holds for a container that has ended; with a name alone for
// any of that name.
type ContainerPattern struct {
	Name      string     `json:"name,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	Signals   *CodeRange `json:"signals,omitempty"`
	ExitCodes *CodeRange `json:"exitCodes,omitempty"`
}

// CodeRange is a range of exit codes, signals or indexes, both ends included.
type CodeRange struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// Definitions are what one revision of the watched repository asks for in one
// environment: what render hands to the runner.
type Definitions struct {
	Revision    string
	Environment string
	Jobs        []Job
	// Invalid are units that could not be rendered, or jobs within them. What
	// they defined before stays as it was.
	Invalid  []Invalid
	Problems []*Error // of the repository as a whole, settings and overlays
	Settings Settings
}

// Invalid is a job, or a whole unit, whose definition has errors. Key is the
// best name that could be read from it.
type Invalid struct {
	Key
	Source Source
	Errors []*Error
}
