// Package tensorflow reads TFJob of kubeflow.org/v1, and of v1alpha2 to v1beta2,
// into a repo.Job. The list form of v1alpha1 is another format.
package tensorflow

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
)

// The types of replicas. Master is the older word for Chief.
const (
	chief     = "Chief"
	master    = "Master"
	ps        = "PS"
	worker    = "Worker"
	evaluator = "Evaluator"
)

func kind() *kubeflow.Kind {
	return &kubeflow.Kind{
		Name: "TFJob", Replicas: "tfReplicaSpecs", Types: []string{chief, master, ps, worker, evaluator}, Open: true,
		Container: "tensorflow", PortName: "tfjob-port", Port: 2222, Restart: kubeflow.Never, Operator: "tfjob-controller", Prefix: "tf",
		Early: map[string]repo.CleanupPods{"v1alpha2": repo.CleanupRunning, "v1beta1": repo.CleanupRunning, "v1beta2": repo.CleanupRunning},
	}
}

// Format reads TFJob.
func Format() manifest.Format { return kind().Format(spec{}, read) }

func read(o *manifest.Object) *repo.Job {
	j := kind().Begin(o)
	var s spec
	j.Decode(&s)
	j.Take(&s.Spec, s.Replicas)
	success(j, &s)
	environment(j, s.EnableDynamicWorker)
	if s.EnableDynamicWorker {
		// Workers come and go, and what they miss the others do.
		j.Rescale = true
		if w := j.Type(worker); w != nil {
			w.MinFailed = repo.Never
		}
	}
	return j.Done()
}

// success: a chief decides when there is one. Otherwise worker 0 does, or all
// workers when the policy says so.
func success(j *kubeflow.Job, s *spec) {
	policy := manifest.OneOf(j.O, "spec.successPolicy", s.SuccessPolicy, "", allWorkers)
	switch {
	case j.Type(chief) != nil && j.Type(master) != nil:
		j.O.Errorf(j.Path(master), "TFJobSpec is not valid: more than 1 chief/master found")
	case j.Type(chief) != nil || j.Type(master) != nil:
		j.Decides(chief)
		j.Decides(master)
		j.Master(chief, false)
		j.Master(master, false)
	case j.Type(worker) != nil:
		j.Decides(worker)
		j.Master(worker, true)
		if w := j.Type(worker); policy != allWorkers {
			w.MinSucceeded, w.SucceedWhen = 1, []repo.SuccessRule{{Indexes: []repo.CodeRange{{}}, Count: 1}}
		}
	case len(j.Roles) > 0:
		j.O.Warnf(j.Path(worker), "there is neither a Chief nor a Worker, whose success the job could wait for: it has succeeded when all its replicas have")
		for i := range j.Roles {
			j.Decides(j.Roles[i].Name)
		}
	}
}

// environment is TF_CONFIG, which a job of one replica does not get: it is not
// distributed.
func environment(j *kubeflow.Job, dynamic bool) {
	names := make([]string, 0, len(j.Roles))
	for i := range j.Roles {
		names = append(names, j.Roles[i].Name)
	}
	for i := range j.Roles {
		e := &j.Roles[i].Env
		e.Containers = []string{j.Kind.Container}
		if j.Total() == 1 {
			continue
		}
		text := rendezvous.TFConfig(names)
		if dynamic {
			text = sparse(j.Roles[i].Name)
		}
		e.Vars = []corev1.EnvVar{{Name: "TF_CONFIG", Value: text}}
	}
}

// sparse is the TF_CONFIG of a job whose workers come and go: a worker knows
// itself and every parameter server, a parameter server itself alone.
func sparse(role string) string {
	workers, servers := "", "[]"
	switch role {
	case kubeflow.RoleName(worker):
		workers = fmt.Sprintf(`"{{.Index}}":"{{address "%s" .Index}}"`, role)
		servers = fmt.Sprintf(`{{addresses "%s"}}`, kubeflow.RoleName(ps))
	case kubeflow.RoleName(ps):
		servers = fmt.Sprintf(`["{{address "%s" .Index}}"]`, role)
	}
	return `{"cluster":{"worker":{` + workers + `},"ps":` + servers + `},"task":{"type":"{{.Role}}","index":{{.Index}}}}`
}
