package kubeflow

import (
	corev1 "k8s.io/api/core/v1"
)

// Spec is what the spec of every kind has beside its replicas. The formats embed it.
type Spec struct {
	// RunPolicy holds for the whole run.
	RunPolicy RunPolicy `json:"runPolicy"`
	Early     `json:",inline"`
}

// Early are the fields of a RunPolicy that stood directly under spec before
// there was one: in v1alpha2 to v1beta2, and in the first releases of v1. In v1
// they are read with a warning, and only where runPolicy has no such field.
type Early struct {
	// CleanPodPolicy is read as runPolicy.cleanPodPolicy.
	CleanPodPolicy *string `json:"cleanPodPolicy"`
	// TTLSecondsAfterFinished is read as runPolicy.ttlSecondsAfterFinished.
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished"`
	// ActiveDeadlineSeconds is read as runPolicy.activeDeadlineSeconds.
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds"`
	// BackoffLimit is read as runPolicy.backoffLimit.
	BackoffLimit *int32 `json:"backoffLimit"`
}

// RunPolicy says how long a job may run, how often it is tried, and what is
// left of it.
type RunPolicy struct {
	// CleanPodPolicy is what happens to the pods when the job has ended: None
	// (default) keeps them, Running removes those that still run, All removes
	// all. What still runs is stopped in any case: the run is over.
	CleanPodPolicy *string `json:"cleanPodPolicy"`
	// TTLSecondsAfterFinished is when all pods of a finished job are removed;
	// never by default. The record stays.
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished"`
	// ActiveDeadlineSeconds of the whole run, without the time it was
	// suspended; then it has failed. None by default.
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds"`
	// BackoffLimit is how many failures of all replicas together are tried
	// again; without it there is no limit but the wait between them.
	BackoffLimit *int32 `json:"backoffLimit"`
	// Suspend stops the pods; the run waits.
	Suspend bool `json:"suspend"`
	// SchedulingPolicy starts all pods together or none.
	SchedulingPolicy *SchedulingPolicy `json:"schedulingPolicy"`
	// ManagedBy names the controller: kubeflow.org/training-operator is us;
	// kueue.x-k8s.io/multikueue, jobs for another cluster, is an error.
	ManagedBy string `json:"managedBy"`
}

// SchedulingPolicy is for gang scheduling.
type SchedulingPolicy struct {
	// MinAvailable pods start together. All of them (default) makes the job a
	// gang; fewer are not waited for, and a warning says so.
	MinAvailable *int32 `json:"minAvailable"`
	// Queue is put on the pods as Volcano's annotation scheduling.volcano.sh/queue-name.
	Queue string `json:"queue"`
	// MinResources is ignored with a warning: the pods' own requests are what counts.
	MinResources corev1.ResourceList `json:"minResources"`
	// PriorityClass of the pods whose template has none.
	PriorityClass string `json:"priorityClass"`
	// ScheduleTimeoutSeconds is from a pod's creation to its first running container.
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds"`
}

// ReplicaSpec is a set of replicas of one type.
type ReplicaSpec struct {
	// Replicas from 0 to 10,000; 1 by default.
	Replicas *int32 `json:"replicas"`
	// Template is the pod of each replica. Its restartPolicy means nothing.
	Template corev1.PodTemplateSpec `json:"template"`
	// RestartPolicy is what happens to a replica that has ended. Each try is a
	// new pod, which is counted, where upstream restarts the container in place.
	RestartPolicy RestartPolicy `json:"restartPolicy"`
}

// RestartPolicy of a replica.
type RestartPolicy string

// The restart policies. What the cluster did to a pod (a lost node, preemption)
// is tried again under all of them, and counts for nothing.
const (
	// Always starts a replica again that has failed, and, unless its success
	// is what the job waits for, one that has succeeded.
	Always RestartPolicy = "Always"
	// OnFailure starts a replica again that has failed.
	OnFailure RestartPolicy = "OnFailure"
	// Never lets a failure fail the job.
	Never RestartPolicy = "Never"
	// ExitCode starts a replica again that has ended with a code from 128 on;
	// one from 1 to 127 fails the job.
	ExitCode RestartPolicy = "ExitCode"
)
