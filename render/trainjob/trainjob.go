// Package trainjob reads TrainJob of trainer.kubeflow.org/v1alpha1 into a
// repo.Job, where the file says all that a run needs. It never asks a cluster
// for a runtime: jobs of other runtimes than the known ones are refused.
package trainjob

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rules"
)

const (
	group      = "trainer.kubeflow.org"
	controller = "trainer.kubeflow.org/trainjob-controller"
	// node is the role, and the container, as Trainer names them.
	node           = "node"
	port           = 29500
	maxNodes       = 10000
	maxSeconds     = 1 << 32
	defaultBackoff = 6
	indexVariable  = "JOB_COMPLETION_INDEX"
	labelIndex     = "batch.kubernetes.io/job-completion-index"
)

// Format reads TrainJob.
func Format() manifest.Format {
	return manifest.Format{
		Kinds:    []schema.GroupVersionKind{{Group: group, Version: "v1alpha1", Kind: "TrainJob"}},
		Spec:     Spec{},
		Read:     read,
		Neutral:  manifest.Neutral("spec.suspend", "spec.managedBy"),
		Replicas: []string{"spec.trainer.numNodes"},
		// The container's variables merge as those of a pod do.
		MergeKeys: map[string]string{"spec.trainer.env": "name"},
	}
}

func read(o *manifest.Object) *repo.Job {
	job := o.Job(manifest.Options{})
	o.Keys(manifest.Options{}, "spec", "status")
	var s Spec
	o.Decode("spec", &s, manifest.Options{})

	job.Suspend = job.Suspend || s.Suspend
	job.Success, job.Retry = repo.AllRoles, repo.Retry{Mode: repo.ByFault}
	// The pods are those of one Job, whose limit the runtimes leave alone.
	job.FailureBudget = new(int32(defaultBackoff))
	job.Rules = rules.All(nil, o.Settings(), rules.Kubeflow())
	if d := s.ActiveDeadlineSeconds; d != nil {
		if *d < 1 || *d > maxSeconds {
			o.Errorf("spec.activeDeadlineSeconds", "want a number of seconds from 1, not %d", *d)
		} else {
			job.Deadline = time.Duration(*d) * time.Second
		}
	}
	if o.Settings().Defaults.Cleanup == nil {
		job.Cleanup = repo.Cleanup{Pods: repo.CleanupRunning}
	}
	notTaken(o, &s)
	kind := runtimeOf(o, s.RuntimeRef)
	if s.Trainer == nil {
		o.Errorf("spec.trainer", "required: what the runtime alone would run is not known here")
		return job
	}
	job.Roles = []repo.Role{role(o, kind, s.Trainer)}
	return job
}

func notTaken(o *manifest.Object, s *Spec) {
	if s.Initializer != nil {
		o.Errorf("spec.initializer", "not taken: datasets and models are not fetched; do it in the container, or mount a volume")
	}
	if len(s.RuntimePatches) > 0 {
		o.Errorf("spec.runtimePatches", "not taken: patch the pods of role %s in an overlay", node)
	}
	if m := s.ManagedBy; m != "" && m != controller {
		o.Errorf("spec.managedBy", "%q is another controller, which this job would be left to; remove it", m)
	}
}

// runtimes are the known ones.
func runtimes() []string {
	return []string{torch, jax, xgboost}
}

// The runtimes, as Trainer ships them.
const (
	torch   = "torch-distributed"
	jax     = "jax-distributed"
	xgboost = "xgboost-distributed"
)

func runtimeOf(o *manifest.Object, ref RuntimeRef) string {
	const at = "spec.runtimeRef"
	manifest.OneOf(o, at+".apiGroup", ref.APIGroup, group, group)
	kind := manifest.OneOf(o, at+".kind", ref.Kind, "ClusterTrainingRuntime", "ClusterTrainingRuntime", "TrainingRuntime")
	known := strings.Join(runtimes(), ", ")
	switch {
	case ref.Name == "":
		o.Errorf(at+".name", "required: %s", known)
	case kind == "TrainingRuntime":
		o.Errorf(at+".kind", "a TrainingRuntime is an object of the cluster, and is not read; known are the ClusterTrainingRuntimes %s", known)
	case ref.Name == "deepspeed-distributed" || ref.Name == "mlx-distributed":
		o.Errorf(at+".name", "%s is not taken: it needs SSH keys that Trainer makes; an MPIJob does the same with keys of your own", ref.Name)
	case strings.HasPrefix(ref.Name, "torchtune-"):
		o.Errorf(at+".name", "%s is not taken: its command, and the volume of its model, are made by Trainer; use %s with a command of your own", ref.Name, torch)
	case !slices.Contains(runtimes(), ref.Name):
		o.Errorf(at+".name", "the runtime %q is an object of the cluster, and is not read; known are %s%s", ref.Name, known, manifest.Nearest(ref.Name, runtimes()...))
	}
	return ref.Name
}

// role makes the one role, whose tasks are the nodes.
func role(o *manifest.Object, kind string, t *Trainer) repo.Role {
	n := int32(1)
	if t.NumNodes != nil {
		if n = *t.NumNodes; n < 1 || n > maxNodes {
			o.Errorf("spec.trainer.numNodes", "want 1 to %d, not %d", maxNodes, n)
			n = 1
		}
	}
	role := repo.Role{
		Name: node, Replicas: n, MinSucceeded: n, MinFailed: repo.Never, Port: port, MainContainer: node,
		Retry: repo.Retry{Limit: repo.Unlimited, Mode: repo.ByFault, Backoff: repo.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 10 * time.Minute}},
		Env: repo.Env{Last: true, Labels: map[string]string{labelIndex: "{{.Index}}", "jobset.sigs.k8s.io/jobset-name": "{{.Job}}", "jobset.sigs.k8s.io/replicatedjob-name": node},
			Annotations: map[string]string{labelIndex: "{{.Index}}"}},
	}
	role.Env.Vars = variables(o, kind, t)
	for i, e := range t.Env {
		at := manifest.Item("spec.trainer.env", i) + ".name"
		switch own := slices.ContainsFunc(role.Env.Vars, func(v corev1.EnvVar) bool { return v.Name == e.Name }); {
		case own && kind == jax:
			o.Warnf(at, "%s is the runtime's own, which wins", e.Name)
		case own:
			o.Errorf(at, "%s is the runtime's own: it may not be set", e.Name)
		}
	}
	if !slices.ContainsFunc(t.Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable }) {
		role.Env.Vars = append(role.Env.Vars, corev1.EnvVar{Name: indexVariable, Value: "{{.Index}}"})
	}
	role.Template = template(o, t)
	return role
}

// template is checked as that of a pod; what is wrong is said of the field
// that it came from.
func template(o *manifest.Object, t *Trainer) corev1.PodTemplateSpec {
	if t.Image == "" {
		o.Errorf("spec.trainer.image", "required: the runtime's image is not known here")
	}
	if slices.Equal(t.Command, []string{"tune", "run"}) {
		o.Errorf("spec.trainer.command", "tune run is not taken: Trainer makes its arguments from the runtime; write them all, as in [torchrun, …]")
	}
	p := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: node, Image: t.Image, Command: t.Command, Args: t.Args, Env: t.Env, Resources: t.ResourcesPerNode,
	}}}}
	pod := manifest.NewObject(map[string]any{}, nil, o.Settings())
	manifest.CheckTemplate(pod, "", &p)
	for _, e := range pod.Problems() {
		field := strings.TrimPrefix(e.Field, ".spec.containers[0].")
		if rest, ok := strings.CutPrefix(field, "resources"); ok {
			field = "resourcesPerNode" + rest
		}
		report := o.Errorf
		if e.Warning {
			report = o.Warnf
		}
		report("spec.trainer."+field, "%s", e.Message)
	}
	manifest.SetRole(&p, node)
	return p
}

// variables by which the nodes find each other.
func variables(o *manifest.Object, kind string, t *Trainer) []corev1.EnvVar {
	var vars []corev1.EnvVar
	add := func(name, value string) { vars = append(vars, corev1.EnvVar{Name: name, Value: value}) }
	if t.NumProcPerNode != nil && kind != torch {
		o.Warnf("spec.trainer.numProcPerNode", "ignored: only %s starts several processes on a node", torch)
	}
	const host, nodes, index = `{{host "node" 0}}`, `{{replicas "node"}}`, "{{.Index}}"
	switch kind {
	case torch:
		add("PET_NNODES", nodes)
		add("PET_NPROC_PER_NODE", processes(o, t))
		add("PET_NODE_RANK", index)
		add("PET_MASTER_ADDR", host)
		add("PET_MASTER_PORT", `{{port "node" 0}}`)
	case jax:
		add("JAX_NUM_PROCESSES", nodes)
		add("JAX_PROCESS_ID", index)
		add("JAX_COORDINATOR_ADDRESS", `{{address "node" 0}}`)
	case xgboost:
		workers := max(1, gpus(t.ResourcesPerNode))
		n := int64(1)
		if t.NumNodes != nil {
			n = int64(*t.NumNodes)
		}
		add("DMLC_TRACKER_URI", host)
		add("DMLC_TRACKER_PORT", `{{port "node" 0}}`)
		add("DMLC_TASK_ID", index)
		add("DMLC_NUM_WORKER", strconv.FormatInt(n*min(workers, maxNodes), 10))
	}
	return vars
}

// processes on each node: as many as there are CPUs where there is no GPU.
func processes(o *manifest.Object, t *Trainer) string {
	switch n := t.NumProcPerNode; {
	case n != nil && *n < 1:
		o.Errorf("spec.trainer.numProcPerNode", "want a number from 1, not %d", *n)
	case n != nil:
		return strconv.Itoa(int(*n))
	case gpus(t.ResourcesPerNode) == 0:
		cpu := t.ResourcesPerNode.Requests[corev1.ResourceCPU]
		if cpu.IsZero() {
			cpu = t.ResourcesPerNode.Limits[corev1.ResourceCPU]
		}
		return strconv.FormatInt(max(1, cpu.Value()), 10)
	}
	return "auto"
}

// gpus are those of any vendor.
func gpus(r corev1.ResourceRequirements) (n int64) {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name, q := range list {
			if strings.Contains(strings.ToLower(string(name)), "gpu") {
				n = max(n, q.Value())
			}
		}
	}
	return n
}
