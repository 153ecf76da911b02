package tensorflow

import "github.com/trainyard/trainyard/render/kubeflow"

// spec is a TFJob's.
type spec struct {
	kubeflow.Spec
	// SuccessPolicy says what success is in a job without Chief or Master: ""
	// (default) is that of worker 0, AllWorkers that of all workers.
	SuccessPolicy successPolicy `json:"successPolicy"`
	// Replicas by type: Chief (or Master), PS, Worker, Evaluator, in any case.
	// Others run too and count for nothing, with a warning.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"tfReplicaSpecs"`
	// EnableDynamicWorker lets workers come and go: their failures do not fail
	// the job, and a change of replicas reaches a run that is going on.
	EnableDynamicWorker bool `json:"enableDynamicWorker"`
}

type successPolicy string

const allWorkers successPolicy = "AllWorkers"
