// Package pytorch reads PyTorchJob of kubeflow.org/v1, and of v1alpha2 to
// v1beta2, into a repo.Job. It adds no init container that waits for the
// master's name, as upstream does: where a replica will be is known before it
// starts, and one that comes too early tries again.
package pytorch

import (
	"strconv"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
)

// The types of replicas.
const (
	master = "Master" // rank 0, whose success is the job's
	worker = "Worker"
)

func kind() *kubeflow.Kind {
	return &kubeflow.Kind{
		Name: "PyTorchJob", Replicas: "pytorchReplicaSpecs", Types: []string{master, worker},
		Container: "pytorch", PortName: "pytorchjob-port", Port: 23456, Restart: kubeflow.OnFailure, Operator: "pytorchjob-controller", Prefix: "pytorch",
		Early:   map[string]repo.CleanupPods{"v1alpha2": repo.CleanupNone, "v1beta1": repo.CleanupNone, "v1beta2": repo.CleanupNone},
		Neutral: []string{"spec.elasticPolicy.metrics"},
	}
}

// Format reads PyTorchJob.
func Format() manifest.Format { return kind().Format(spec{}, read) }

// reader reads one PyTorchJob.
type reader struct {
	*kubeflow.Job
	spec spec
}

func read(o *manifest.Object) *repo.Job {
	r := &reader{Job: kind().Begin(o)}
	r.Decode(&r.spec)
	r.Take(&r.spec.Spec, r.spec.Replicas)
	r.success()
	r.elastic()
	r.processes()
	for i := range r.Roles {
		r.Roles[i].Env.Vars = r.variables(r.Roles[i].Name)
	}
	return r.Done()
}

// success is the master's. Without one it is that of all workers, or of any
// when they are elastic.
func (r *reader) success() {
	if m := r.Type(master); m != nil {
		if m.Replicas != 1 {
			r.O.Errorf(r.Path(master)+".replicas", "PyTorchJobSpec is not valid: There must be only 1 master replica")
		}
		r.Decides(master)
		r.Master(master, false)
		return
	}
	if r.Early && len(r.Roles) > 0 {
		r.O.Errorf(r.Path(master), "PyTorchJobSpec is not valid: Master ReplicaSpec must be present")
	}
	r.Decides(worker)
	r.Master(worker, true)
	if w := r.Type(worker); w != nil && r.spec.ElasticPolicy != nil {
		w.MinSucceeded = 1
	}
}

// elastic checks the policy and fills in its defaults.
func (r *reader) elastic() {
	const at = "spec.elasticPolicy"
	e := r.spec.ElasticPolicy
	if e == nil {
		return
	}
	r.Rescale = true
	kubeflow.CheckElastic(r.Job, e.MinReplicas, e.MaxReplicas, e.Metrics)
	w := r.Type(worker)
	if w == nil {
		r.O.Errorf(at, "needs a Worker spec: must be configured if elastic policy is used")
		return
	}
	if e.MinReplicas == nil {
		e.MinReplicas = e.MaxReplicas
	}
	if e.MinReplicas == nil {
		e.MinReplicas = &w.Replicas
	}
	if e.MaxReplicas == nil {
		e.MaxReplicas = e.MinReplicas
	}
	e.RdzvBackend = manifest.OneOf(r.O, at+".rdzvBackend", e.RdzvBackend, "c10d", "c10d", "etcd", "etcd-v2")
	if p := e.RdzvPort; p != nil && (*p < 1 || *p > 65535) {
		r.O.Errorf(at+".rdzvPort", "%d is no port: want 1 to 65535", *p)
	}
}

// processes checks how many a replica starts, in its new place and in the old one.
func (r *reader) processes() {
	e, n := r.spec.ElasticPolicy, r.spec.NprocPerNode
	switch {
	case e != nil && e.NProcPerNode != nil && n != nil:
		r.O.Errorf("spec.elasticPolicy.nProcPerNode", ".spec.elasticPolicy.nProcPerNode is deprecated, use .spec.nprocPerNode instead")
	case e != nil && e.NProcPerNode != nil:
		r.O.Warnf("spec.elasticPolicy.nProcPerNode", "deprecated, read as spec.nprocPerNode")
		if *e.NProcPerNode < 1 {
			r.O.Errorf("spec.elasticPolicy.nProcPerNode", "want a number from 1, not %d", *e.NProcPerNode)
		}
		text := number(strconv.Itoa(int(*e.NProcPerNode)))
		r.spec.NprocPerNode = &text
	case n == nil:
		text := number("auto")
		r.spec.NprocPerNode = &text
	case *n != "auto" && *n != "cpu" && *n != "gpu":
		if count, err := strconv.Atoi(string(*n)); err != nil || count < 1 || count > 10000 {
			r.O.Errorf("spec.nprocPerNode", "%q is not one of auto, cpu, gpu or a number from 1", string(*n))
		}
	}
}
