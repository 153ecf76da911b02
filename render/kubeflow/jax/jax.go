// Package jax reads JAXJob of kubeflow.org/v1 into a repo.Job.
package jax

import (
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
)

const worker = "Worker" // the only type of replicas; worker 0 coordinates

// spec is a JAXJob's.
type spec struct {
	kubeflow.Spec
	// Replicas by type: Worker, in any case.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"jaxReplicaSpecs"`
}

func kind() *kubeflow.Kind {
	return &kubeflow.Kind{
		Name: "JAXJob", Replicas: "jaxReplicaSpecs", Types: []string{worker},
		Container: "jax", PortName: "jaxjob-port", Port: 6666, Restart: kubeflow.Never, Operator: "jaxjob-controller",
	}
}

// Format reads JAXJob.
func Format() manifest.Format { return kind().Format(spec{}, read) }

func read(o *manifest.Object) *repo.Job {
	j := kind().Begin(o)
	var s spec
	j.Decode(&s)
	j.Take(&s.Spec, s.Replicas)
	j.Decides(worker)
	j.Master(worker, true)
	if w := j.Type(worker); w != nil {
		w.Env.Vars = []corev1.EnvVar{
			{Name: "PYTHONUNBUFFERED", Value: "1"},
			{Name: "COORDINATOR_PORT", Value: `{{port "worker" 0}}`},
			{Name: "COORDINATOR_ADDRESS", Value: `{{host "worker" 0}}`},
			{Name: "NUM_PROCESSES", Value: `{{total}}`},
			{Name: "PROCESS_ID", Value: `{{.Index}}`},
		}
	}
	return j.Done()
}
