// Package kubeflow reads what the jobs of Kubeflow's training operator
// (kubeflow.org/v1 and the versions before it whose replicas are a map) have in
// common: replicas by type, restart policies, the run policy, labels and ports.
// It knows no single kind: each has a package of its own below this one.
package kubeflow

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

const (
	group  = "kubeflow.org"
	latest = "v1"
)

// Kind is what one kind of job differs in from the others.
type Kind struct {
	Name string // TFJob
	// Early are the versions before v1 that are read too, with what they did
	// with the pods of a job that says nothing of it.
	Early map[string]repo.CleanupPods
	// Replicas is the field of the spec that holds the replicas: tfReplicaSpecs.
	Replicas string
	// Types of replicas, in the order of the job's roles.
	Types []string
	// Open takes replicas of other types too, with a warning.
	Open bool
	// Container is the one that counts; "" is the first one, whatever its name.
	Container string
	// PortName is the container's port by which the others find it; "" is none.
	PortName string
	Port     int32         // of that name, when the container has none
	Restart  RestartPolicy // of a replica that says nothing of it
	Operator string        // value of the label that names the operator
	Prefix   string        // of the labels before v1: tf
	// Manager is what runPolicy.managedBy may name; "" is the training operator.
	Manager string
	// Neutral are paths, beside those that all kinds have, that do not change
	// what a run does.
	Neutral []string
}

// Format of the kind. spec is the zero value of the Go type of its spec.
func (k *Kind) Format(spec any, read func(o *manifest.Object) *repo.Job) manifest.Format {
	f := manifest.Format{
		Kinds: []schema.GroupVersionKind{{Group: group, Version: latest, Kind: k.Name}},
		Spec:  spec,
		Read:  read,
		Neutral: manifest.Neutral(append([]string{
			"spec.cleanPodPolicy", "spec.ttlSecondsAfterFinished", "spec.runPolicy.cleanPodPolicy",
			"spec.runPolicy.ttlSecondsAfterFinished", "spec.runPolicy.suspend", "spec.runPolicy.managedBy",
		}, k.Neutral...)...),
	}
	for _, v := range []string{"v1alpha2", "v1beta1", "v1beta2"} {
		if _, ok := k.Early[v]; ok {
			f.Kinds = append(f.Kinds, schema.GroupVersionKind{Group: group, Version: v, Kind: k.Name})
		}
	}
	for _, t := range k.Types {
		for _, written := range spellings(t) {
			f.Replicas = append(f.Replicas, "spec."+k.Replicas+"."+written+".replicas")
			f.Templates = append(f.Templates, "spec."+k.Replicas+"."+written+".template")
		}
	}
	return f
}

// spellings of a type that are in use: upstream takes any case.
func spellings(t string) []string {
	all := []string{t, strings.ToLower(t), strings.ToUpper(t)}
	slices.Sort(all)
	return slices.Compact(all)
}

// proper is a type in its proper case; ok is false for one that is not known.
func (k *Kind) proper(written string) (t string, ok bool) {
	i := slices.IndexFunc(k.Types, func(t string) bool { return strings.EqualFold(t, written) })
	if i < 0 {
		return written, false
	}
	return k.Types[i], true
}

// Job is a job that is being read. Between Begin and Done a format changes what
// is its own.
type Job struct {
	*repo.Job
	O    *manifest.Object
	Kind *Kind
	// Early: the job is of a version before v1.
	Early bool
	// Options by which the spec is decoded.
	Options manifest.Options

	version  string
	total    int32
	policies map[string]RestartPolicy // by role
	paths    map[string]string        // of a role's replica spec
}

// Begin begins a job with its metadata.
func (k *Kind) Begin(o *manifest.Object) *Job {
	j := &Job{O: o, Kind: k, policies: map[string]RestartPolicy{}, paths: map[string]string{}}
	apiVersion, _ := o.Content()["apiVersion"].(string)
	_, j.version, _ = strings.Cut(apiVersion, "/")
	_, j.Early = k.Early[j.version]
	// An API server drops what it does not know, without a word. Before there
	// were schemas, keys were taken in any case.
	j.Options = manifest.Options{Lenient: true, Fold: j.Early}
	j.Job = o.Job(j.Options)
	o.Keys(j.Options, "spec", "status")
	if j.Name != "" && len(validation.IsDNS1123Label(j.Name)) == 0 {
		for _, why := range validation.IsDNS1035Label(j.Name) {
			o.Errorf("metadata.name", "%s name is invalid: %s", k.Name, why)
		}
	}
	j.Success, j.Retry = repo.AllRoles, repo.Retry{Mode: repo.ByFault}
	return j
}

// Decode reads the spec into a pointer to the format's own type.
func (j *Job) Decode(into any) { j.O.Decode("spec", into, j.Options) }

// Take reads what is the same for every kind. Its roles are daemons until
// Decides says which are not.
func (j *Job) Take(s *Spec, replicas map[string]*ReplicaSpec) {
	j.roles(replicas)
	j.runPolicy(s)
}

// Total is the number of replicas of all types.
func (j *Job) Total() int32 { return j.total }

// Type is the role of a replica type, or nil.
func (j *Job) Type(t string) *repo.Role { return j.Role(RoleName(t)) }

// Path is where a type's replica spec is in the file.
func (j *Job) Path(t string) string {
	if p, ok := j.paths[RoleName(t)]; ok {
		return p
	}
	return j.field()
}

func (j *Job) field() string { return "spec." + j.Kind.Replicas }

// RoleName is the role of a replica type: Worker is worker.
func RoleName(t string) string { return strings.ToLower(t) }

// Decides makes replicas of a type decide: the job has succeeded when all of
// them have.
func (j *Job) Decides(t string) {
	role := j.Type(t)
	if role == nil {
		return
	}
	role.Daemon, role.MinSucceeded = false, role.Replicas
	if role.Replicas == 0 {
		j.O.Errorf(j.Path(t)+".replicas", "0 replicas never succeed, and the job waits for the success of %s", t)
	}
}

// Done finishes the job.
func (j *Job) Done() *repo.Job {
	j.restarts()
	return j.Job
}
