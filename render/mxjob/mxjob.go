// Package mxjob reads MxJob of the MXNet operator (mlkube.io/v1beta1 and
// mxnet.mlkube.io/v1beta1), and its successor MXJob while its replicas were
// still a list (kubeflow.org/v1alpha1), into a repo.Job. It adds the variables
// that tasks find each other by, and never overwrites one of the job's own, as upstream did.
package mxjob

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
	"github.com/trainyard/trainyard/render/replicaspec"
	"github.com/trainyard/trainyard/render/rules"
)

const (
	group       = "mxnet.mlkube.io"
	successor   = "kubeflow.org"
	container   = "mxnet" // the one that counts, and that is given the variables
	defaultPort = 9091
	scheduler   = "SCHEDULER"
	server      = "SERVER"
	worker      = "WORKER"
	local       = "local"
	dist        = "dist"
)

// Format reads MxJob of both groups, and MXJob.
func Format() manifest.Format {
	return manifest.Format{
		Kinds: []schema.GroupVersionKind{
			{Group: "mlkube.io", Version: "v1beta1", Kind: "MxJob"},
			{Group: group, Version: "v1beta1", Kind: "MxJob"},
			{Group: successor, Version: "v1alpha1", Kind: "MXJob"},
		},
		Spec:      spec{},
		Read:      read,
		Neutral:   manifest.Neutral("spec.RuntimeId", "spec.cleanupPodPolicy"),
		Replicas:  []string{"spec.replicaSpecs[*].replicas"},
		Templates: []string{"spec.replicaSpecs[*].template"},
		MergeKeys: map[string]string{"spec.replicaSpecs": "mxReplicaType"},
	}
}

// options: upstream took keys in any case, and never had the old spelling of
// the TfJob examples that people began from.
func options() manifest.Options {
	return manifest.Options{Lenient: true, Fold: true, Aliases: map[string]manifest.Alias{
		"replica_specs":   {Field: "replicaSpecs", Wrong: true},
		"mx_replica_type": {Field: "mxReplicaType", Wrong: true},
		"psRootPort":      {Field: "PsRootPort"},
		"runtimeid":       {Field: "RuntimeId"},
		"runtimeId":       {Field: "RuntimeId"},
	}}
}

// reader reads one MxJob.
type reader struct {
	o     *manifest.Object
	later bool   // MXJob of kubeflow.org
	list  string // path of the replica specs, as it is spelled
	spec  spec
}

func read(o *manifest.Object) *repo.Job {
	version, _ := o.Content()["apiVersion"].(string)
	r := reader{o: o, later: strings.HasPrefix(version, successor+"/")}
	job := o.Job(options())
	o.Keys(options(), "spec", "status")
	o.Decode("spec", &r.spec, options())
	r.list = o.Written("spec", "replicaSpecs", options())

	job.Retry = repo.Retry{Mode: repo.ByFault}
	job.Success = repo.AllRoles
	if r.later {
		r.successor(job)
		return job
	}
	r.unknown()
	job.Rules = rules.All(nil, o.Settings(), rules.MxJob())
	if o.Settings().Defaults.Cleanup == nil {
		job.Cleanup.Pods = repo.CleanupNone // upstream deleted nothing when a job ended
	}
	r.roles(job)
	r.mode(job)
	return job
}

// mode checks that the roles are those of the job's mode, and makes one of
// them decide: the worker of a local job, the scheduler of a distributed one.
func (r *reader) mode(job *repo.Job) {
	decides := replicaspec.RoleName(scheduler)
	switch r.spec.JobMode {
	case local:
		decides = replicaspec.RoleName(worker)
		r.local(job)
	case dist:
		for _, kind := range []string{scheduler, server, worker} {
			if job.Role(replicaspec.RoleName(kind)) == nil {
				r.o.Errorf(r.list, "dist job mode without replica type %s", kind)
			}
		}
	case "":
		r.o.Errorf("spec.jobMode", "required, one of local, dist")
	default:
		r.o.Errorf("spec.jobMode", "%q is not one of local, dist%s", r.spec.JobMode, manifest.Nearest(r.spec.JobMode, local, dist))
	}
	if role := job.Role(decides); role != nil {
		role.Daemon, role.MinSucceeded = false, role.Replicas
	}
}

func (r *reader) local(job *repo.Job) {
	for i := range job.Roles {
		role := &job.Roles[i]
		role.Env.Vars, role.Env.Containers = nil, nil
		switch {
		case role.Name != replicaspec.RoleName(worker):
			r.o.Errorf(r.list, "job mode is local, but its replicas set have replicas type other than worker")
		case role.Replicas > 1:
			r.o.Errorf(r.list, "job mode is local, but it has more than 1 worker")
		}
	}
	if w := job.Role(replicaspec.RoleName(worker)); w == nil || w.Replicas == 0 {
		r.o.Errorf(r.list, "job mode is local, but it has no worker: it would never end")
	}
}

func (r *reader) roles(job *repo.Job) {
	for i, s := range r.spec.ReplicaSpecs {
		at := manifest.Item(r.list, i)
		if s == nil {
			r.o.Errorf(at, "ReplicaSpecs contain nil")
			continue
		}
		if s.MxReplicaType == "" {
			s.MxReplicaType = worker
		}
		role, ok := r.role(at, s)
		if !ok {
			continue
		}
		if slices.ContainsFunc(job.Roles, func(other repo.Role) bool { return other.Name == role.Name }) {
			r.o.Errorf(at+".mxReplicaType", "there are two replica specs of type %s: make them one, with more replicas", s.MxReplicaType)
			continue
		}
		job.Roles = append(job.Roles, role)
	}
}

func (r *reader) role(at string, s *replica) (role repo.Role, ok bool) {
	kind := s.MxReplicaType
	ok = kind == scheduler || kind == server || kind == worker
	if !ok {
		r.o.Errorf(at+".mxReplicaType", "%s is not one of SCHEDULER, SERVER, WORKER", kind)
	}
	role = repo.Role{
		Name: replicaspec.RoleName(kind), Replicas: replicaspec.Replicas(r.o, at, s.Replicas),
		// A replica that fails for good fails the job, whatever its role.
		Daemon: true, MinSucceeded: repo.Never, MinFailed: 1,
		Retry: replicaspec.Retry(), MainContainer: container,
		Port: replicaspec.Port(r.o, at+".PsRootPort", s.PsRootPort, defaultPort),
	}
	if r.later { // the chief alone decides
		role.MinFailed = repo.Never
	}
	if kind == scheduler && role.Replicas != 1 {
		r.o.Errorf(at+".replicas", "The SCHEDULER must have Replicas = 1")
	}
	if s.Template == nil {
		r.o.Errorf(at+".template", "required: Replica is missing Template")
		return role, ok
	}
	if !replicaspec.HasContainer(s.Template, container) {
		r.o.Errorf(at+".template.spec.containers", "no container named mxnet: Replica type %s is missing a container for mxnet", kind)
	}
	if !ok { // its name is no role's
		replicaspec.Template(r.o, at+".template", "", container, s.Template)
		return role, false
	}
	role.Template = replicaspec.Template(r.o, at+".template", role.Name, container, s.Template)
	if r.later {
		r.finish(&role, kind)
		return role, true
	}
	role.Env = repo.Env{
		Vars:       rendezvous.DMLC(replicaspec.RoleName(scheduler), replicaspec.RoleName(server), replicaspec.RoleName(worker), role.Name),
		Containers: []string{container},
		Labels:     replicaspec.Labels(r.o, "spec.RuntimeId", group, kind, r.spec.RuntimeID),
	}
	return role, true
}
