package framework

import corev1 "k8s.io/api/core/v1"

// spec is a Framework as both of its groups write it. Nothing in it has a
// default: what is absent is zero.
type spec struct {
	Description   string     `json:"description"`
	ExecutionType string     `json:"executionType"`
	RetryPolicy   retry      `json:"retryPolicy"`
	TaskRoles     []taskRole `json:"taskRoles"`
}

type taskRole struct {
	Name       string     `json:"name"`
	TaskNumber int32      `json:"taskNumber"`
	Policy     completion `json:"frameworkAttemptCompletionPolicy"`
	Task       task       `json:"task"`
}

type completion struct {
	MinFailed    int32 `json:"minFailedTaskCount"`
	MinSucceeded int32 `json:"minSucceededTaskCount"`
}

type task struct {
	RetryPolicy retry `json:"retryPolicy"`
	// ForceDeleteAfter, in seconds; null waits for ever. The launcher did not have it.
	ForceDeleteAfter *int64                 `json:"podGracefulDeletionTimeoutSec"`
	Pod              corev1.PodTemplateSpec `json:"pod"`
}

type retry struct {
	Fancy bool `json:"fancyRetryPolicy"`
	// Max retries: -2 always, also after a success; -1 after every failure.
	Max int32 `json:"maxRetryCount"`
}
