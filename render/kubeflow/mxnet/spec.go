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
	Replicas map[string]*replica `json:"mxReplicaSpecs"`
}

type replica struct {
	kubeflow.ReplicaSpec
	// Label of a tuner server, which MX_CONFIG tells; in v1beta1, and the
	// template's annotation tuner-server-key since, which is what counts.
	Label string `json:"label"`
}

// plain are the replicas without what is MXJob's own.
func (s *spec) plain() map[string]*kubeflow.ReplicaSpec {
	out := make(map[string]*kubeflow.ReplicaSpec, len(s.Replicas))
	for t, r := range s.Replicas {
		out[t] = &r.ReplicaSpec
	}
	return out
}

const (
	train = "MXTrain"
	tune  = "MXTune"
)
