package jobset

import "github.com/trainyard/trainyard/render/batchjob"

// Spec is what a JobSet says.
type Spec struct {
	// ReplicatedJobs become a role each.
	ReplicatedJobs []ReplicatedJob `json:"replicatedJobs"`
	// Network gives pods the host names JOBSET-ROLE-JOB-POD, and the headless
	// Service in which they are found.
	Network Network `json:"network"`
	// SuccessPolicy says which replicated jobs make the run succeed; all by default.
	SuccessPolicy *SuccessPolicy `json:"successPolicy"`
	// FailurePolicy says how often the whole set starts afresh.
	FailurePolicy *FailurePolicy `json:"failurePolicy"`
	// StartupPolicy is AnyOrder; InOrder is read as it, with a warning.
	StartupPolicy *StartupPolicy `json:"startupPolicy"`
	// Suspend stops the pods; the run waits.
	Suspend bool `json:"suspend"`
	// Coordinator is the pod whose host name all pods are told.
	Coordinator *Coordinator `json:"coordinator"`
	// ManagedBy another controller than JobSet's own is an error.
	ManagedBy string `json:"managedBy"`
	// TTLSecondsAfterFinished after the run's end its pods are removed. Without
	// it those that have ended stay.
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished"`
	// VolumeClaimPolicies are not taken: an error.
	VolumeClaimPolicies []any `json:"volumeClaimPolicies"`
}

// ReplicatedJob is a set of Jobs of one template.
type ReplicatedJob struct {
	// Name of the role.
	Name string `json:"name"`
	// GroupName is told to the pods; "default" by default.
	GroupName string `json:"groupName"`
	// Replicas is how many Jobs there are, 1 by default. The role has as many
	// tasks as all of them have completions, job by job.
	Replicas *int32 `json:"replicas"`
	// DependsOn a job's readiness is a warning, as all start together; on its
	// completion it is an error.
	DependsOn []DependsOn `json:"dependsOn"`
	// Template of each Job.
	Template JobTemplate `json:"template"`
}

// JobTemplate is a Job of batch/v1 without a name.
type JobTemplate struct {
	// Metadata of the Jobs, which are none here, is ignored.
	Metadata map[string]any `json:"metadata"`
	// Spec is read as that of a Job of batch/v1, Indexed and with the
	// restartPolicy OnFailure by default.
	Spec batchjob.Spec `json:"spec"`
}

// DependsOn names a replicated job that comes first.
type DependsOn struct {
	Name string `json:"name"`
	// Status is Ready or Complete.
	Status string `json:"status"`
}

// Network of the pods.
type Network struct {
	// EnableDNSHostnames is true by default.
	EnableDNSHostnames *bool `json:"enableDNSHostnames"`
	// Subdomain is the Service's name; that of the JobSet by default.
	Subdomain string `json:"subdomain"`
	// PublishNotReadyAddresses of the Service; true by default.
	PublishNotReadyAddresses *bool `json:"publishNotReadyAddresses"`
}

// SuccessPolicy is about some replicated jobs.
type SuccessPolicy struct {
	// Operator is All of the jobs, or Any one of them.
	Operator string `json:"operator"`
	// TargetReplicatedJobs that count; all by default. The others are daemons.
	TargetReplicatedJobs []string `json:"targetReplicatedJobs"`
}

// FailurePolicy says what a failed job leads to.
type FailurePolicy struct {
	// MaxRestarts is how often the run is tried again, from its beginning.
	MaxRestarts int32 `json:"maxRestarts"`
	// RestartStrategy is Recreate (default) or BlockingRecreate, which are one
	// here; InPlaceRestart is an error.
	RestartStrategy string `json:"restartStrategy"`
	// Rules are asked in order; a failure that none is for restarts the set.
	Rules []FailureRule `json:"rules"`
}

// FailureRule is for jobs that failed for some reasons.
type FailureRule struct {
	// Name becomes the reason of the outcome.
	Name string `json:"name"`
	// Action: FailJobSet, RestartJobSet or RestartJobSetAndIgnoreMaxRestarts;
	// RestartJob and its like are errors.
	Action Action `json:"action"`
	// OnJobFailureReasons are BackoffLimitExceeded, for jobs whose backoffLimit
	// is 0, and PodFailurePolicy; others never come about here. All by default.
	OnJobFailureReasons []string `json:"onJobFailureReasons"`
	// OnJobFailureMessagePatterns are not taken: an error.
	OnJobFailureMessagePatterns []string `json:"onJobFailureMessagePatterns"`
	// TargetReplicatedJobs whose failures are meant; all by default.
	TargetReplicatedJobs []string `json:"targetReplicatedJobs"`
}

// Action of a FailureRule.
type Action string

// The actions.
const (
	FailJobSet                        Action = "FailJobSet"
	RestartJobSet                     Action = "RestartJobSet"
	RestartJobSetAndIgnoreMaxRestarts Action = "RestartJobSetAndIgnoreMaxRestarts"
	RestartJob                        Action = "RestartJob"
	RestartJobAndIgnoreMaxRestarts    Action = "RestartJobAndIgnoreMaxRestarts"
)

// StartupPolicy says in which order replicated jobs start.
type StartupPolicy struct {
	StartupPolicyOrder string `json:"startupPolicyOrder"`
}

// Coordinator is one pod of the set.
type Coordinator struct {
	ReplicatedJob string `json:"replicatedJob"`
	JobIndex      int32  `json:"jobIndex"`
	PodIndex      int32  `json:"podIndex"`
}
