package batchjob

import corev1 "k8s.io/api/core/v1"

// Spec is what a Job of batch/v1 says. Its fields have the names of Kubernetes'
// own type; those that the API server takes and no other are read.
type Spec struct {
	// Parallelism is how many pods run at a time, 1 by default; 0 suspends the job.
	Parallelism *int32 `json:"parallelism"`
	// Completions is how many pods have to succeed: one role of so many tasks.
	// Without it the job is a work queue: Parallelism tasks, of which one has to
	// succeed, whereupon the others are waited for and none is started.
	Completions *int32 `json:"completions"`
	// CompletionMode is NonIndexed (default) or Indexed. A task's number among
	// the completions is told to its pod by the latter only.
	CompletionMode CompletionMode `json:"completionMode"`
	// BackoffLimit is how many pods of all tasks together may fail, 6 by
	// default, and without limit when BackoffLimitPerIndex is given. A failed
	// task gets a new pod after 10s, 20s, 40s … up to 10m.
	BackoffLimit *int32 `json:"backoffLimit"`
	// BackoffLimitPerIndex is how many pods of each index may fail.
	BackoffLimitPerIndex *int32 `json:"backoffLimitPerIndex"`
	// MaxFailedIndexes may fail for good; one more ends the job. Without it all
	// indexes are tried to their end, and the job fails if any of them has.
	MaxFailedIndexes *int32 `json:"maxFailedIndexes"`
	// PodFailurePolicy become the first of the job's failure rules.
	PodFailurePolicy *PodFailurePolicy `json:"podFailurePolicy"`
	// SuccessPolicy lets some indexes make the job succeed.
	SuccessPolicy *SuccessPolicy `json:"successPolicy"`
	// ActiveDeadlineSeconds is the deadline of the run, without the time that it was suspended.
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds"`
	// TTLSecondsAfterFinished after the run's end its pods are removed. Without
	// it those that have ended stay.
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished"`
	// Suspend stops the pods; the run waits.
	Suspend bool `json:"suspend"`
	// PodReplacementPolicy is Failed always: a task's next pod waits for the end
	// of its last one.
	PodReplacementPolicy string `json:"podReplacementPolicy"`
	// Selector and ManualSelector are ignored: pods are found by their run.
	Selector       map[string]any `json:"selector"`
	ManualSelector bool           `json:"manualSelector"`
	// ManagedBy another controller than Kubernetes' own is an error.
	ManagedBy string `json:"managedBy"`
	// Template of every pod. Its restartPolicy is required: Never or OnFailure,
	// which are one here, as each retry is a pod of its own.
	Template corev1.PodTemplateSpec `json:"template"`
}

// CompletionMode says whether completions are told apart.
type CompletionMode string

// The modes of completion.
const (
	NonIndexed CompletionMode = "NonIndexed"
	Indexed    CompletionMode = "Indexed"
)

// PodFailurePolicy says what failures of pods mean.
type PodFailurePolicy struct {
	// Rules are asked in order; the first that matches is obeyed.
	Rules []PodFailureRule `json:"rules"`
}

// PodFailureRule has either exit codes or conditions.
type PodFailureRule struct {
	// Action: FailJob ends the run's attempt at once; FailIndex ends the task
	// without a retry; Ignore retries without using up a limit; Count uses up
	// the limits, as without a rule.
	Action Action `json:"action"`
	// OnExitCodes asks for the end of a container.
	OnExitCodes *OnExitCodes `json:"onExitCodes"`
	// OnPodConditions asks for a condition of the pod, one of those that are listed.
	OnPodConditions []OnPodCondition `json:"onPodConditions"`
}

// Action of a PodFailureRule.
type Action string

// The actions.
const (
	FailJob   Action = "FailJob"
	FailIndex Action = "FailIndex"
	Ignore    Action = "Ignore"
	Count     Action = "Count"
)

// OnExitCodes matches containers that ended with another code than 0.
type OnExitCodes struct {
	// ContainerName is the container, or init container, that is meant; all by default.
	ContainerName string `json:"containerName"`
	// Operator is In or NotIn.
	Operator Operator `json:"operator"`
	// Values are codes, each once and in their order.
	Values []int32 `json:"values"`
}

// Operator of OnExitCodes.
type Operator string

// The operators.
const (
	In    Operator = "In"
	NotIn Operator = "NotIn"
)

// OnPodCondition matches pods with a condition.
type OnPodCondition struct {
	// Type of the condition: DisruptionTarget.
	Type string `json:"type"`
	// Status of the condition, True by default and always.
	Status string `json:"status"`
}

// SuccessPolicy says which indexes make the job succeed.
type SuccessPolicy struct {
	// Rules of which one has to hold.
	Rules []SuccessRule `json:"rules"`
}

// SuccessRule is about all indexes, or some.
type SuccessRule struct {
	// SucceededIndexes are those that count: "0,2-4".
	SucceededIndexes string `json:"succeededIndexes"`
	// SucceededCount is how many of them have to succeed; all by default.
	SucceededCount *int32 `json:"succeededCount"`
}
