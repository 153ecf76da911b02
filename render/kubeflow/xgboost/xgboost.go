// Package xgboost reads XGBoostJob of kubeflow.org/v1, which runs LightGBM too,
// into a repo.Job.
package xgboost

import (
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
)

// The types of replicas.
const (
	master = "Master" // the tracker, and rank 0
	worker = "Worker"
)

// spec is an XGBoostJob's.
type spec struct {
	kubeflow.Spec
	// Replicas by type: Master, exactly one, and Worker, in any case.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"xgbReplicaSpecs"`
}

func kind() *kubeflow.Kind {
	return &kubeflow.Kind{
		Name: "XGBoostJob", Replicas: "xgbReplicaSpecs", Types: []string{master, worker},
		Container: "xgboost", PortName: "xgboostjob-port", Port: 9999, Restart: kubeflow.Never, Operator: "xgboostjob-controller",
	}
}

// Format reads XGBoostJob.
func Format() manifest.Format { return kind().Format(spec{}, read) }

func read(o *manifest.Object) *repo.Job {
	j := kind().Begin(o)
	var s spec
	j.Decode(&s)
	j.Take(&s.Spec, s.Replicas)
	if m := j.Type(master); m == nil && len(j.Roles) > 0 {
		o.Errorf(j.Path(master), "XGBoostJobSpec is not valid: Master ReplicaSpec must be present")
	} else if m != nil && m.Replicas != 1 {
		o.Errorf(j.Path(master)+".replicas", "XGBoostJobSpec is not valid: There must be only 1 master replica")
	}
	j.Decides(master)
	j.Master(master, false)
	for i := range j.Roles {
		r := &j.Roles[i]
		r.Env.Vars = variables(r.Name, j.Total())
	}
	return j.Done()
}

// variables of Rabit's tracker and its workers; the last two, which only a job
// of several replicas has, are for LightGBM.
func variables(role string, total int32) []corev1.EnvVar {
	rank := "{{.Index}}"
	if role == kubeflow.RoleName(worker) {
		rank = "{{add .Index 1}}"
	}
	vars := []corev1.EnvVar{
		{Name: "MASTER_PORT", Value: `{{port "master" 0}}`},
		{Name: "MASTER_ADDR", Value: `{{host "master" 0}}`},
		{Name: "WORLD_SIZE", Value: "{{total}}"},
		{Name: "RANK", Value: rank},
		{Name: "PYTHONUNBUFFERED", Value: "1"},
	}
	if total < 2 {
		return vars
	}
	return append(vars, corev1.EnvVar{Name: "WORKER_PORT", Value: `{{port "worker" 0}}`},
		corev1.EnvVar{Name: "WORKER_ADDRS", Value: `{{hosts "," "worker"}}`})
}
