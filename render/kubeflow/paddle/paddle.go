// Package paddle reads PaddleJob of kubeflow.org/v1 into a repo.Job.
package paddle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
)

// The types of replicas.
const (
	master = "Master"
	worker = "Worker"
)

func kind() *kubeflow.Kind {
	return &kubeflow.Kind{
		Name: "PaddleJob", Replicas: "paddleReplicaSpecs", Types: []string{master, worker},
		Container: "paddle", PortName: "master", Port: 36543, Restart: kubeflow.OnFailure, Operator: "paddlejob-controller",
		Neutral: []string{"spec.elasticPolicy"},
	}
}

// Format reads PaddleJob.
func Format() manifest.Format { return kind().Format(spec{}, read) }

func read(o *manifest.Object) *repo.Job {
	j := kind().Begin(o)
	var s spec
	j.Decode(&s)
	j.Take(&s.Spec, s.Replicas)
	decides := worker
	if j.Type(master) != nil {
		decides = master
		j.Master(master, false)
	}
	j.Decides(decides)
	if e := s.ElasticPolicy; e != nil {
		kubeflow.CheckElastic(j, e.MinReplicas, e.MaxReplicas, e.Metrics)
		j.Rescale = true
	}
	for i := range j.Roles {
		r := &j.Roles[i]
		r.Env.Vars = variables(r.Name, decides, j.Type(master) != nil)
	}
	return j.Done()
}

// variables of paddle.distributed.launch. The first replica of the deciding
// type is where all meet; it is told its own address as a number, because it
// looks for it among those of its machine.
func variables(role, meeting string, servers bool) []corev1.EnvVar {
	meeting = kubeflow.RoleName(meeting)
	vars := []corev1.EnvVar{
		{Name: "PYTHONUNBUFFERED", Value: "1"},
		{Name: "PADDLE_JOB_ID", Value: "{{.Job}}"},
		{Name: "PADDLE_NNODES", Value: "{{total}}"},
	}
	at := fmt.Sprintf(`{{address "%s" 0}}`, meeting)
	if role == meeting {
		at = fmt.Sprintf(`{{if eq .Index 0}}$(POD_IP_DUMMY):{{port "%s" 0}}{{else}}%s{{end}}`, meeting, at)
		vars = append(vars, corev1.EnvVar{Name: "POD_IP_DUMMY", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	}
	vars = append(vars, corev1.EnvVar{Name: "PADDLE_MASTER", Value: at})
	switch {
	case !servers:
	case role == kubeflow.RoleName(master):
		vars = append(vars, corev1.EnvVar{Name: "PADDLE_SERVER_NUM", Value: "1"})
	default:
		vars = append(vars, corev1.EnvVar{Name: "PADDLE_TRAINER_NUM", Value: "1"})
	}
	return vars
}
