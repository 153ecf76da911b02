package mxnet

import "github.com/trainyard/trainyard/render/kubeflow"

// spec is an MXJob's.
type spec struct {
	kubeflow.Spec
	// JobMode is required: MXTrain or MXTune. It changes nothing.
	JobMode string `json:"jobMode"`
	// Replicas by type, in any case: Scheduler, Server and Worker to train;
	// TunerTracker, TunerServer and Tuner to tune. Others run too and count for
	// nothing, with a warning.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"mxReplicaSpecs"`
}

const (
	train = "MXTrain"
	tune  = "MXTune"
)
