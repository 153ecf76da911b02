package paddle

import "github.com/trainyard/trainyard/render/kubeflow"

// spec is a PaddleJob's.
type spec struct {
	kubeflow.Spec
	// ElasticPolicy is checked. A change of the workers' number reaches a run
	// that is going on; nothing changes it by itself.
	ElasticPolicy *elasticPolicy `json:"elasticPolicy"`
	// Replicas by type, in any case: Worker alone is collective training; with
	// Master, whose replicas are the servers, it is that of a parameter server.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"paddleReplicaSpecs"`
}

type elasticPolicy struct {
	// MinReplicas and MaxReplicas were for an autoscaler.
	MinReplicas *int32 `json:"minReplicas"`
	MaxReplicas *int32 `json:"maxReplicas"`
	// MaxRestarts had no effect upstream, and has none here.
	MaxRestarts *int32 `json:"maxRestarts"`
	// Metrics made an autoscaler; here a warning, and replicas stay as written.
	Metrics []any `json:"metrics"`
}
