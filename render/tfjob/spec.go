package tfjob

import corev1 "k8s.io/api/core/v1"

// spec is a TfJob of any of its versions.
type spec struct {
	RuntimeID         string             `json:"RuntimeId"`
	TensorBoard       *tensorBoard       `json:"tensorboard"`
	ReplicaSpecs      []*replica         `json:"replicaSpecs"`
	TfImage           string             `json:"tfImage"`
	TerminationPolicy *terminationPolicy `json:"terminationPolicy"`
	SchedulerName     string             `json:"schedulerName"`
	CleanupPodPolicy  string             `json:"cleanupPodPolicy"`
}

type replica struct {
	Replicas      *int32                  `json:"replicas"`
	Template      *corev1.PodTemplateSpec `json:"template"`
	TfPort        *int32                  `json:"tfPort"`
	TfReplicaType string                  `json:"tfReplicaType"`
	// IsDefaultPS is set by the operator in objects that are read back from it.
	IsDefaultPS bool `json:"IsDefaultPS"`
}

type terminationPolicy struct {
	Chief *chief `json:"chief"`
}

type chief struct {
	ReplicaName  string `json:"replicaName"`
	ReplicaIndex int32  `json:"replicaIndex"`
}

type tensorBoard struct {
	LogDir       string               `json:"logDir"`
	ServiceType  corev1.ServiceType   `json:"serviceType"`
	Volumes      []corev1.Volume      `json:"volumes"`
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts"`
}
