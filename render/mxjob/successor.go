package mxjob

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/rendezvous"
	"github.com/trainyard/trainyard/render/replicaspec"
	"github.com/trainyard/trainyard/render/rules"
)

// successor is how MXJob of kubeflow.org differs: a chief decides, the mode is
// no field, and no role has to be there but the chief's.
func (r *reader) successor(job *repo.Job) {
	if r.spec.JobMode != "" {
		r.o.Warnf("spec.jobMode", "ignored: MXJob of kubeflow.org/v1alpha1 has no modes")
	}
	job.Rules = rules.All(nil, r.o.Settings(), rules.EarlyKubeflow(container))
	job.Cleanup.Pods = replicaspec.Cleanup(r.o, r.spec.CleanupPodPolicy, repo.CleanupAll)
	r.roles(job)
	replicaspec.SetChief(r.o, job, r.list, r.spec.TerminationPolicy, worker, scheduler, server, worker)
	for i := range job.Roles {
		job.Roles[i].Env.Vars = variables(job, job.Roles[i].Name)
	}
}

// unknown reports what MxJob does not have.
func (r *reader) unknown() {
	for _, f := range []struct {
		name  string
		there bool
	}{
		{"mxImage", r.spec.MXImage != ""},
		{"terminationPolicy", r.spec.TerminationPolicy != nil},
		{"cleanupPodPolicy", r.spec.CleanupPodPolicy != ""},
		{"schedulerName", r.spec.SchedulerName != ""},
	} {
		if f.there {
			r.o.Warnf(r.o.Written("spec", f.name, options()), "ignored: it came with MXJob of kubeflow.org/v1alpha1")
		}
	}
}

// finish gives a role of an MXJob what its operator did: variables in all
// containers, other labels, the job's scheduler.
func (r *reader) finish(role *repo.Role, kind string) {
	role.Env = repo.Env{Labels: replicaspec.Labels(r.o, "spec.RuntimeId", successor, kind, r.spec.RuntimeID)}
	role.Env.Labels["mx_job_name"] = "{{.Job}}"
	if r.spec.SchedulerName != "" {
		role.Template.Spec.SchedulerName = r.spec.SchedulerName
	}
}

// variables are those of the roles that there are.
func variables(job *repo.Job, role string) []corev1.EnvVar {
	needs := map[string]string{"DMLC_PS_ROOT_PORT": scheduler, "DMLC_PS_ROOT_URI": scheduler, "DMLC_NUM_SERVER": server, "DMLC_NUM_WORKER": worker}
	all := rendezvous.DMLC(replicaspec.RoleName(scheduler), replicaspec.RoleName(server), replicaspec.RoleName(worker), role)
	all = slices.DeleteFunc(all, func(v corev1.EnvVar) bool {
		need := needs[v.Name]
		return need != "" && job.Role(replicaspec.RoleName(need)) == nil
	})
	return append(all, corev1.EnvVar{Name: "DMLC_USE_KUBERNETES", Value: "1"})
}
