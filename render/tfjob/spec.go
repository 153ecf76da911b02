package tfjob

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/render/replicaspec"
)

// spec is a TfJob of any of its versions.
type spec struct {
	// RuntimeID is a label here, and part of the name of TensorBoard's Service.
	RuntimeID string `json:"RuntimeId"`
	// TensorBoard becomes a role of its own and a Service; none in kubeflow.org.
	TensorBoard  *tensorBoard `json:"tensorboard"`
	ReplicaSpecs []*replica   `json:"replicaSpecs"`
	// TfImage is the image of TensorBoard and of default parameter servers.
	TfImage string `json:"tfImage"`
	// TerminationPolicy came in December 2017; it is taken in all versions.
	TerminationPolicy *replicaspec.TerminationPolicy `json:"terminationPolicy"`
	// SchedulerName is of kubeflow.org, where it takes the place of the pods' own.
	SchedulerName string `json:"schedulerName"`
	// CleanupPodPolicy came with the last release; it is taken in all versions.
	CleanupPodPolicy string `json:"cleanupPodPolicy"`
}

type replica struct {
	Replicas      *int32                  `json:"replicas"`
	Template      *corev1.PodTemplateSpec `json:"template"`
	TfPort        *int32                  `json:"tfPort"`
	TfReplicaType string                  `json:"tfReplicaType"`
	// IsDefaultPS is set by the operator in objects that are read back from it.
	IsDefaultPS bool `json:"IsDefaultPS"`
}

type tensorBoard struct {
	LogDir       string               `json:"logDir"`
	ServiceType  corev1.ServiceType   `json:"serviceType"`
	Volumes      []corev1.Volume      `json:"volumes"`
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts"`
}
