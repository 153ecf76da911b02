// Package tfjob reads TfJob of the TensorFlow operator's first years
// (mlkube.io/v1beta1, tensorflow.org/v1alpha1, and TFJob of
// kubeflow.org/v1alpha1), whose replicas are a list, into a repo.Job. Where
// upstream left a job running for ever it reports an error. It makes no Service
// but TensorBoard's: tasks find each other by names of Trainyard.
package tfjob

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
	"github.com/trainyard/trainyard/render/replicaspec"
	"github.com/trainyard/trainyard/render/rules"
)

// The groups of TfJob, and what is not the same in each.
const (
	groupFirst    = "mlkube.io"
	groupKubeflow = "kubeflow.org"
)

const (
	container    = "tensorflow" // the one that counts, and that is given TF_CONFIG
	defaultPort  = 2222
	defaultImage = "tensorflow/tensorflow:1.3.0"
	master       = "MASTER"
	ps           = "PS"
	worker       = "WORKER"
)

// Format reads TfJob and TFJob.
func Format() manifest.Format {
	return manifest.Format{
		Kinds: []schema.GroupVersionKind{
			{Group: groupFirst, Version: "v1beta1", Kind: "TfJob"},
			{Group: "tensorflow.org", Version: "v1alpha1", Kind: "TfJob"},
			{Group: groupKubeflow, Version: "v1alpha1", Kind: "TFJob"},
		},
		Spec:      spec{},
		Read:      read,
		Neutral:   manifest.Neutral("spec.RuntimeId", "spec.tensorboard", "spec.cleanupPodPolicy"),
		Replicas:  []string{"spec.replicaSpecs[*].replicas", "spec.replica_specs[*].replicas"},
		Templates: []string{"spec.replicaSpecs[*].template", "spec.replica_specs[*].template"},
		MergeKeys: map[string]string{"spec.replicaSpecs": "tfReplicaType"},
	}
}

// reader reads one TfJob.
type reader struct {
	o     *manifest.Object
	group string
	list  string // path of the replica specs, as it is spelled
	spec  spec
}

func options(group string) manifest.Options {
	note := "the spelling used before August 2017"
	if group == groupFirst { // there it was right
		note = ""
	}
	// Upstream decoded with encoding/json, which takes keys in any case.
	return manifest.Options{Lenient: true, Fold: true, Aliases: map[string]manifest.Alias{
		"replica_specs":   {Field: "replicaSpecs", Note: note},
		"tf_port":         {Field: "tfPort", Note: note},
		"tf_replica_type": {Field: "tfReplicaType", Note: note},
		"runtimeid":       {Field: "RuntimeId"},
		"runtimeId":       {Field: "RuntimeId"},
	}}
}

func read(o *manifest.Object) *repo.Job {
	version, _ := o.Content()["apiVersion"].(string)
	r := reader{o: o}
	r.group, _, _ = strings.Cut(version, "/")
	opts := options(r.group)
	job := o.Job(opts)
	o.Keys(opts, "spec", "status")
	o.Decode("spec", &r.spec, opts)
	r.list = o.Written("spec", "replicaSpecs", opts)
	if r.spec.TfImage == "" {
		r.spec.TfImage = defaultImage
	}

	job.Retry = repo.Retry{Mode: repo.ByFault}
	table := rules.TfJob()
	if r.group == groupKubeflow { // whose last releases had another table of codes
		table = rules.EarlyKubeflow(container)
	}
	job.Rules = rules.All(nil, o.Settings(), table)
	job.Success = repo.AllRoles
	r.cleanup(job)
	r.roles(job)
	replicaspec.SetChief(o, job, r.list, r.spec.TerminationPolicy, master, master, ps, worker)
	r.tensorBoard(job)
	if r.group != groupKubeflow && r.spec.SchedulerName != "" {
		o.Warnf("spec.schedulerName", "ignored: it came with kubeflow.org/v1alpha1")
	}
	return job
}

// cleanup: before kubeflow.org nothing of a finished job was removed, so that
// its logs could be read; later everything is unless the job says otherwise.
func (r *reader) cleanup(job *repo.Job) {
	otherwise := repo.CleanupNone
	if r.group == groupKubeflow {
		otherwise = repo.CleanupAll
	}
	job.Cleanup.Pods = replicaspec.Cleanup(r.o, r.spec.CleanupPodPolicy, otherwise)
}

func (r *reader) roles(job *repo.Job) {
	var names []string
	for i, s := range r.spec.ReplicaSpecs {
		at := manifest.Item(r.list, i)
		if s == nil {
			r.o.Errorf(at, "a replica spec is empty")
			continue
		}
		if s.TfReplicaType == "" {
			s.TfReplicaType = master
		}
		role := r.role(at, s)
		if slices.Contains(names, role.Name) {
			r.o.Errorf(at+".tfReplicaType", "there are two replica specs of type %s: make them one, with more replicas", s.TfReplicaType)
			continue
		}
		names = append(names, role.Name)
		job.Roles = append(job.Roles, role)
	}
	for i := range job.Roles {
		job.Roles[i].Env.Vars = []corev1.EnvVar{{Name: "TF_CONFIG", Value: rendezvous.TFConfig(names)}}
	}
}

func (r *reader) role(at string, s *replica) repo.Role {
	kind := s.TfReplicaType
	if kind != master && kind != ps && kind != worker {
		r.o.Errorf(at+".tfReplicaType", "tfReplicaSpec.TfReplicaType is %s but must be one of [MASTER PS WORKER]", kind)
		kind = worker
	}
	role := repo.Role{
		Name: replicaspec.RoleName(kind), Replicas: replicaspec.Replicas(r.o, at, s.Replicas),
		// Whether these roles fail or succeed means nothing, unless one is the chief.
		Daemon: true, MinSucceeded: repo.Never, MinFailed: repo.Never,
		Retry: replicaspec.Retry(), MainContainer: container,
		Port: replicaspec.Port(r.o, at+".tfPort", s.TfPort, defaultPort),
		Env:  repo.Env{Containers: []string{container}, Last: true},
	}
	if kind == master && role.Replicas != 1 {
		r.o.Errorf(at+".replicas", "The MASTER must have Replicas = 1")
	}
	role.Env.Labels = r.labels(kind)
	t := r.template(at, kind, s)
	if t == nil {
		return role
	}
	if !replicaspec.HasContainer(t, container) && len(t.Spec.Containers) > 0 {
		r.o.Errorf(at+".template.spec.containers", "Replica type %s is missing a container named tensorflow", kind)
	}
	role.Template = replicaspec.Template(r.o, at+".template", role.Name, container, t)
	if r.group == groupKubeflow && r.spec.SchedulerName != "" {
		role.Template.Spec.SchedulerName = r.spec.SchedulerName
	}
	return role
}

// labels of the operator: one for its group, which was mlkube.io, then
// tensorflow.org, then kubeflow.org.
func (r *reader) labels(kind string) map[string]string {
	labels := replicaspec.Labels(r.o, "spec.RuntimeId", r.group, kind, r.spec.RuntimeID)
	labels["tf_job_name"] = "{{.Job}}"
	return labels
}
