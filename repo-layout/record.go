package repo

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and RecordKind head every status.yaml.
const (
	APIVersion = "trainyard.dev/v1"
	RecordKind = "Record"
)

// Phase is where a job stands, in one word.
type Phase string

// The phases of a job.
const (
	PhaseInvalid   Phase = "Invalid"   // the definition has errors and nothing of it runs
	PhaseScheduled Phase = "Scheduled" // waits for its next cron time
	PhaseWaiting   Phase = "Waiting"   // nothing has started, and the reason says why
	PhasePending   Phase = "Pending"   // a run has started, none of its tasks runs yet
	PhaseRunning   Phase = "Running"
	PhaseRetrying  Phase = "Retrying" // between two attempts of the run
	PhaseSuspended Phase = "Suspended"
	PhaseSucceeded Phase = "Succeeded"
	PhaseFailed    Phase = "Failed"
	PhaseStopped   Phase = "Stopped"
	PhaseRemoved   Phase = "Removed" // the definition is gone from the repository
)

// Ended says whether nothing of the job runs or will run by itself.
func (p Phase) Ended() bool {
	switch p {
	case PhaseInvalid, PhaseSucceeded, PhaseFailed, PhaseStopped, PhaseRemoved:
		return true
	}
	return false
}

// Record is what is known of a job and its latest run: the file status.yaml.
// Times are in UTC and whole seconds.
type Record struct {
	APIVersion  string     `json:"apiVersion"`
	Kind        string     `json:"kind"`
	Metadata    RecordMeta `json:"metadata"`
	Environment string     `json:"environment"`
	Phase       Phase      `json:"phase"`
	// Reason is one word in CamelCase, Message a sentence: why Phase is what it is.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Conditions: Valid (the definition), UpToDate (what ran last is what is defined).
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedRevision is the commit in which the definition last changed as far as it was acted upon.
	ObservedRevision string          `json:"observedRevision"`
	Definition       Definition      `json:"definition"`
	Warnings         []string        `json:"warnings,omitempty"`
	Errors           []string        `json:"errors,omitempty"`
	Schedule         *ScheduleRecord `json:"schedule,omitempty"`
	Run              *RunRecord      `json:"run,omitempty"`
	Roles            []RoleRecord    `json:"roles,omitempty"`
	// Attempts of the run before the present one, oldest first, the last MaxAttempts of them.
	Attempts []AttemptRecord `json:"attempts,omitempty"`

	// History are the job's latest finished runs, oldest first, at least KeptRuns
	// of them if there are so many, and Past those before them, which are in the
	// file history.jsonl.
	History []RunSummary `json:"-"`
	Past    Past         `json:"-"`
	// Dir is where the record was read from. Damaged says why it could not be
	// read: then nothing else of it is known, and nothing of the job may start.
	Dir     string `json:"-"`
	Damaged string `json:"-"`
}

// Bounds that keep a record small.
const (
	MaxAttempts = 10   // earlier attempts kept of a run, and of a task
	MaxMessage  = 1024 // bytes of a message
	MaxAvoided  = 10   // nodes that a run or a task keeps away from
	KeptRuns    = 20   // finished runs that are kept whole, with their log tails, and shown on the page
)

// RecordMeta names the job that a record is of.
type RecordMeta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Key of the job that the record is of.
func (r *Record) Key() Key { return Key{Namespace: r.Metadata.Namespace, Name: r.Metadata.Name} }

// Definition says what was last read of the job in the repository.
type Definition struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Source     `json:",inline"`
	Digest     string `json:"digest,omitempty"`
}

// ScheduleRecord is how far a cron schedule has come.
type ScheduleRecord struct {
	Since metav1.Time  `json:"since"`          // no time before this one is made up for
	Last  *metav1.Time `json:"last,omitempty"` // the latest time that was acted upon
	Next  *metav1.Time `json:"next,omitempty"`
}

// TriggerKind says what started a run.
type TriggerKind string

// The kinds of triggers.
const (
	TriggerPush  TriggerKind = "Push"
	TriggerRerun TriggerKind = "Rerun"
	TriggerCron  TriggerKind = "Cron"
)

// Trigger is what started a run: part of its identity.
type Trigger struct {
	Kind  TriggerKind `json:"kind"`
	Value string      `json:"value,omitempty"` // the annotation's value, or the cron time in RFC 3339
}

// Retries counts retries: all of them, and those that used up the budget.
type Retries struct {
	Total       int32 `json:"total"`
	Accountable int32 `json:"accountable"`
}

// RunRecord is the job's latest run.
type RunRecord struct {
	ID       string  `json:"id"`
	Digest   string  `json:"digest"`
	Shape    string  `json:"shape"`
	Trigger  Trigger `json:"trigger"`
	Revision string  `json:"revision"` // the commit whose definition it runs
	// Covers are further runs that this one answers for: definitions that it was rescaled to.
	Covers     []string     `json:"covers,omitempty"`
	StartedAt  metav1.Time  `json:"startedAt"`
	RunningAt  *metav1.Time `json:"runningAt,omitempty"` // first task seen running
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Attempt is the number of the present attempt, from 0.
	Attempt   int32        `json:"attempt"`
	AttemptAt *metav1.Time `json:"attemptAt,omitempty"` // start of the present attempt
	Retries   Retries      `json:"retries"`
	// Ending is set from the moment the present attempt's outcome is decided
	// until its last pod has ended.
	Ending *Outcome `json:"ending,omitempty"`
	// Stopping says that the whole run ends with Ending, without a retry.
	Stopping  bool         `json:"stopping,omitempty"`
	RetryAt   *metav1.Time `json:"retryAt,omitempty"` // start of the next attempt
	Outcome   *Outcome     `json:"outcome,omitempty"`
	Suspended *metav1.Time `json:"suspendedAt,omitempty"`
	// SuspendedSeconds is how long it was suspended before.
	SuspendedSeconds int64 `json:"suspendedSeconds,omitempty"`
	// GPUSeconds is GPUs times seconds held by task attempts that have ended.
	GPUSeconds int64 `json:"gpuSeconds,omitempty"`
	// Gang says how all pods start together, of a job that asks for it.
	Gang string `json:"gang,omitempty"`
	// AvoidNodes are nodes that a failure rule blamed, the last MaxAvoided of
	// them: no pod of the run is started there any more.
	AvoidNodes []string `json:"avoidNodes,omitempty"`
}

// Result of an attempt or a run, in one word.
type Result string

// The results.
const (
	Succeeded Result = "Succeeded"
	Failed    Result = "Failed"
	Stopped   Result = "Stopped" // ended by us: stopped, suspended, no longer needed
)

// Outcome is how a task attempt, an attempt or a run ended.
type Outcome struct {
	Result   Result `json:"result"`
	Class    Class  `json:"class,omitempty"` // of a failure
	Free     bool   `json:"free,omitempty"`  // nobody's fault
	ExitCode *int32 `json:"exitCode,omitempty"`
	Signal   int32  `json:"signal,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	FailRun  bool   `json:"failRun,omitempty"` // ends the attempt of the run, whatever the counts say
	// Task is the one that decided an attempt's or a run's outcome: worker-0.
	Task string `json:"task,omitempty"`
}

// RoleRecord is a role of the run's present attempt.
type RoleRecord struct {
	Name      string       `json:"name"`
	Replicas  int32        `json:"replicas"`
	Daemon    bool         `json:"daemon,omitempty"`
	Outlives  bool         `json:"outlives,omitempty"` // its tasks go on after the run
	GPUs      int64        `json:"gpus,omitempty"`     // of a task
	Pending   int32        `json:"pending"`
	Running   int32        `json:"running"`
	Succeeded int32        `json:"succeeded"`
	Failed    int32        `json:"failed"`
	Tasks     []TaskRecord `json:"tasks"`
}

// TaskRecord is one replica of a role in the run's present attempt.
type TaskRecord struct {
	Name    string    `json:"name"` // worker-0
	Index   int32     `json:"index"`
	Phase   TaskPhase `json:"phase"`
	Retries Retries   `json:"retries"`
	// RetryAt is when the next attempt starts.
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
	// FirstAttempt is the number of the task's first attempt since the job was
	// scaled up to it again; attempts before it count for nothing.
	FirstAttempt int32 `json:"firstAttempt,omitempty"`
	// AvoidNodes are nodes on which the task failed twice, the last MaxAvoided
	// of them: its present attempt is started elsewhere, if there is an elsewhere.
	AvoidNodes []string `json:"avoidNodes,omitempty"`
	// Attempts, oldest first, the last MaxAttempts of them.
	Attempts []TaskAttemptRecord `json:"attempts"`
}

// TaskPhase is where a task stands.
type TaskPhase string

// The phases of a task.
const (
	TaskPending   TaskPhase = "Pending" // its pod is asked for or has not started
	TaskRunning   TaskPhase = "Running"
	TaskRetrying  TaskPhase = "Retrying" // between two attempts
	TaskSucceeded TaskPhase = "Succeeded"
	TaskFailed    TaskPhase = "Failed"  // for good in this attempt of the run
	TaskStopped   TaskPhase = "Stopped" // ended by us
)

// TaskAttemptRecord is one try of one task: one pod.
type TaskAttemptRecord struct {
	Attempt    int32        `json:"attempt"`       // from 0, never used twice within an attempt of the run
	Pod        string       `json:"pod"`           // its name
	UID        string       `json:"uid,omitempty"` // set once the pod was seen
	Node       string       `json:"node,omitempty"`
	CreatedAt  metav1.Time  `json:"createdAt"`
	StartedAt  *metav1.Time `json:"startedAt,omitempty"`
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Address is where people reach it, of a role that outlives its run: 127.0.0.1:6006.
	Address string `json:"address,omitempty"`
	// Waiting says why it has not started: ImagePullBackOff, 2 GPUs asked for and
	// none free; or what it waits for since: its node does not answer.
	Waiting string `json:"waiting,omitempty"`
	// Stop is why we asked it to end, before it has.
	Stop     string `json:"stop,omitempty"`
	Restarts int32  `json:"restarts,omitempty"` // of containers, in place
	// Result, ExitCode, Class, Reason … of the outcome; nil while it has none.
	*Outcome `json:",inline"`
	// Log is the path of the end of the log, from the record's directory.
	Log string `json:"log,omitempty"`
}

// AttemptRecord is an attempt of the run that has ended.
type AttemptRecord struct {
	Attempt    int32       `json:"attempt"`
	StartedAt  metav1.Time `json:"startedAt"`
	FinishedAt metav1.Time `json:"finishedAt"`
	Outcome    `json:",inline"`
	// Roles keep the tasks that failed, with their last attempts.
	Tasks []TaskRecord `json:"tasks,omitempty"`
}

// RunSummary is a finished run: a line of history.jsonl.
type RunSummary struct {
	ID         string      `json:"id"`
	Digest     string      `json:"digest"`
	Trigger    Trigger     `json:"trigger"`
	Revision   string      `json:"revision"`
	Covers     []string    `json:"covers,omitempty"`
	StartedAt  metav1.Time `json:"startedAt"`
	FinishedAt metav1.Time `json:"finishedAt"`
	Attempts   int32       `json:"attempts"`
	Retries    Retries     `json:"retries"`
	GPUSeconds int64       `json:"gpuSeconds,omitempty"`
	Outcome    `json:",inline"`
}

// Tail is the end of a task attempt's log, masked and bounded: of one that failed,
// or whose log went with its pod.
type Tail struct {
	Path string // from the record's directory, as in TaskAttemptRecord.Log
	Text string
}

// Change is a job's record that has to reach the remote, with the log tails
// that it refers to and that are not there yet.
type Change struct {
	Record Record
	Tails  []Tail
}
