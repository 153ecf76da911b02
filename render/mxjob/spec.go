package mxjob

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/render/replicaspec"
)

// spec is an MxJob, or its successor MXJob of kubeflow.org/v1alpha1.
type spec struct {
	// RuntimeID is a label here.
	RuntimeID string `json:"RuntimeId"`
	// JobMode is local or dist, and required; MXJob has none.
	JobMode      string     `json:"jobMode"`
	ReplicaSpecs []*replica `json:"replicaSpecs"`
	// What follows came with MXJob.

	// MXImage was for a default server that no release made.
	MXImage string `json:"mxImage"`
	// TerminationPolicy names the replica whose end is the job's: WORKER 0.
	TerminationPolicy *replicaspec.TerminationPolicy `json:"terminationPolicy"`
	// CleanupPodPolicy is All by default.
	CleanupPodPolicy string `json:"cleanupPodPolicy"`
	// SchedulerName takes the place of the pods' own.
	SchedulerName string `json:"schedulerName"`
}

type replica struct {
	Replicas      *int32                  `json:"replicas"`
	Template      *corev1.PodTemplateSpec `json:"template"`
	PsRootPort    *int32                  `json:"PsRootPort"`
	MxReplicaType string                  `json:"mxReplicaType"`
}
