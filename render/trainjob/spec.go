package trainjob

import corev1 "k8s.io/api/core/v1"

// Spec is what a TrainJob says. The runtime that it names is an object of the
// cluster, which is not asked: those that Trainer ships with are known.
type Spec struct {
	// RuntimeRef is torch-distributed, jax-distributed or xgboost-distributed.
	RuntimeRef RuntimeRef `json:"runtimeRef"`
	// Trainer is what runs on each node.
	Trainer *Trainer `json:"trainer"`
	// Initializer is not taken: an error.
	Initializer map[string]any `json:"initializer"`
	// RuntimePatches are not taken: an error.
	RuntimePatches []any `json:"runtimePatches"`
	// Suspend stops the pods; the run waits.
	Suspend bool `json:"suspend"`
	// ActiveDeadlineSeconds is the deadline of the run, without the time that it was suspended.
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds"`
	// ManagedBy another controller than Trainer's own is an error.
	ManagedBy string `json:"managedBy"`
}

// RuntimeRef names a runtime.
type RuntimeRef struct {
	Name string `json:"name"`
	// APIGroup is trainer.kubeflow.org.
	APIGroup string `json:"apiGroup"`
	// Kind is ClusterTrainingRuntime; a TrainingRuntime is an error.
	Kind string `json:"kind"`
}

// Trainer is the one container of each node.
type Trainer struct {
	// Image is required: that of the runtime is not known here.
	Image string `json:"image"`
	// Command and Args of the container; "tune run" is an error.
	Command []string `json:"command"`
	Args    []string `json:"args"`
	// Env of the container; the runtime's own variables are an error.
	Env []corev1.EnvVar `json:"env"`
	// NumNodes is the number of tasks, 1 by default.
	NumNodes *int32 `json:"numNodes"`
	// NumProcPerNode is PET_NPROC_PER_NODE; by default auto with a GPU, and the
	// number of CPUs without.
	NumProcPerNode *int32 `json:"numProcPerNode"`
	// ResourcesPerNode of the container.
	ResourcesPerNode corev1.ResourceRequirements `json:"resourcesPerNode"`
}
