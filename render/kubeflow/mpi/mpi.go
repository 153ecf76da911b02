// Package mpi reads MPIJob of kubeflow.org/v1 (the training operator's) and
// v2beta1 (the MPI operator's) into a repo.Job. It makes the host file, as a
// ConfigMap; it never makes keys, which do not belong into a repository.
package mpi

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
)

// The types of replicas.
const (
	launcher = "Launcher"
	worker   = "Worker"
)

const (
	version2       = "v2beta1"
	defaultBackoff = 6 // of the Job that the MPI operator makes of the launcher
	labelPart      = "training.kubeflow.org/job-role"
	labelIndex     = "training.kubeflow.org/replica-index"
	labelType      = "training.kubeflow.org/replica-type"
)

func kind(version string) *kubeflow.Kind {
	k := &kubeflow.Kind{
		Name: "MPIJob", Replicas: "mpiReplicaSpecs", Types: []string{launcher, worker}, Restart: kubeflow.Never, Operator: "mpijob-controller",
		Neutral: []string{"spec.launcherCreationPolicy"},
	}
	if version == version2 {
		k.Operator, k.Manager = "mpi-operator", "kubeflow.org/mpi-operator"
	}
	return k
}

// Format reads MPIJob.
func Format() manifest.Format {
	f := kind("").Format(spec{}, read)
	f.Kinds = append(f.Kinds, schema.GroupVersionKind{Group: "kubeflow.org", Version: version2, Kind: "MPIJob"})
	return f
}

// reader reads one MPIJob.
type reader struct {
	*kubeflow.Job
	spec   spec
	second bool // v2beta1
}

func read(o *manifest.Object) *repo.Job {
	apiVersion, _ := o.Content()["apiVersion"].(string)
	_, version, _ := strings.Cut(apiVersion, "/")
	r := reader{Job: kind(version).Begin(o), second: version == version2}
	r.Decode(&r.spec)
	r.defaults()
	r.Take(&r.spec.Spec, r.spec.Replicas)
	if l := r.Type(launcher); l == nil && len(r.Roles) > 0 {
		o.Errorf(r.Path(launcher), "required: an MPIJob has a Launcher")
	} else if l != nil && l.Replicas != 1 {
		o.Errorf(r.Path(launcher)+".replicas", "must be 1")
	}
	r.Decides(launcher)
	r.otherVersion()
	for i := range r.Roles {
		// A worker that fails takes a process from mpirun, which then ends as it
		// thinks fit: the launcher's end is what counts.
		if r.Roles[i].Daemon {
			r.Roles[i].MinFailed = repo.Never
		}
		r.role(&r.Roles[i])
	}
	r.Objects = []repo.Object{r.hosts()}
	job := r.Done()
	r.launcherRetries()
	return job
}

// defaults are what is absent, and differs between the versions.
func (r *reader) defaults() {
	s := &r.spec
	slots := int32(1)
	switch n := s.SlotsPerWorker; {
	case n == nil:
		s.SlotsPerWorker = &slots
	case *n < 1:
		r.O.Errorf("spec.slotsPerWorker", "want a number from 1, not %d", *n)
		s.SlotsPerWorker = &slots
	}
	s.Implementation = manifest.OneOf(r.O, "spec.mpiImplementation", s.Implementation, openMPI, openMPI, intel, mpich)
	if s.SSHAuthMountPath == "" {
		s.SSHAuthMountPath = "/root/.ssh"
	}
	policy := manifest.OneOf(r.O, "spec.launcherCreationPolicy", s.LauncherCreationPolicy, "AtStartup", "AtStartup", "WaitForWorkersReady")
	if policy == "WaitForWorkersReady" {
		r.O.Warnf("spec.launcherCreationPolicy", "read as AtStartup: the launcher starts with the workers, and is tried again when it cannot reach them")
	}
	for _, t := range []string{launcher, worker} {
		if at, replica := r.written(t); replica != nil {
			r.replica(at, t, replica)
		}
	}
}

// written is the replica spec of a type, in whatever case it is written.
func (r *reader) written(t string) (at string, s *kubeflow.ReplicaSpec) {
	for name, s := range r.spec.Replicas {
		if strings.EqualFold(name, t) {
			return manifest.Join("spec.mpiReplicaSpecs", name), s
		}
	}
	return "", nil
}

func (r *reader) replica(at, t string, s *kubeflow.ReplicaSpec) {
	switch {
	case t == worker && r.second && (s.Replicas == nil || *s.Replicas == 0):
		r.O.Errorf(at+".replicas", "must be greater than or equal to 1")
	case t == worker && s.Replicas == nil:
		s.Replicas = new(int32(0))
	}
	if !r.second {
		return
	}
	otherwise := kubeflow.Never
	if t == launcher {
		otherwise = kubeflow.OnFailure
	}
	s.RestartPolicy = manifest.OneOf(r.O, at+".restartPolicy", s.RestartPolicy, otherwise, kubeflow.Never, kubeflow.OnFailure)
}

// otherVersion warns of fields that the job's version does not have.
func (r *reader) otherVersion() {
	spec, _ := r.O.Content()["spec"].(map[string]any)
	fields, other := []string{"mpiImplementation", "sshAuthMountPath", "launcherCreationPolicy", "runLauncherAsWorker"}, "kubeflow.org/v2beta1"
	if r.second {
		fields, other = []string{"mainContainer"}, "kubeflow.org/v1"
	}
	for _, f := range fields {
		if spec[f] != nil {
			r.O.Warnf("spec."+f, "ignored: a field of %s", other)
		}
	}
	if !r.second {
		r.spec.Implementation, r.spec.RunLauncherAsWorker = openMPI, r.launcherHasGPUs()
	}
}

// launcherHasGPUs: in v1 such a launcher is a host as well.
func (r *reader) launcherHasGPUs() bool {
	role := r.Type(launcher)
	if role == nil {
		return false
	}
	for i := range role.Template.Spec.Containers {
		for name := range role.Template.Spec.Containers[i].Resources.Limits {
			if strings.HasSuffix(string(name), ".com/gpu") || strings.Contains(string(name), "gpu") {
				return true
			}
		}
	}
	return false
}

// launcherRetries: the MPI operator makes a Job of the launcher, whose retries
// are new pods under either restart policy, as many as the run policy says.
func (r *reader) launcherRetries() {
	role := r.Type(launcher)
	if !r.second || role == nil {
		return
	}
	role.Retry.Limit = defaultBackoff
	if n := r.spec.RunPolicy.BackoffLimit; n != nil {
		role.Retry.Limit = *n
	}
	r.FailureBudget = nil
}

// role finishes a replica's pod: variables and files of its first container.
func (r *reader) role(role *repo.Role) {
	pod := &role.Template.Spec
	if len(pod.Containers) == 0 {
		return
	}
	c := &pod.Containers[0]
	role.Env.Containers = []string{c.Name}
	isLauncher := role.Name == kubeflow.RoleName(launcher)
	if isLauncher {
		role.Env.Vars = r.variables(c)
	}
	r.labels(role, isLauncher)
	if pod.HostNetwork && pod.DNSPolicy == "" {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	if r.second {
		if !isLauncher && len(c.Command)+len(c.Args) == 0 {
			c.Command = []string{"/usr/sbin/sshd", "-De"}
		}
		role.Env.Vars = append(role.Env.Vars, corev1.EnvVar{Name: "K_MPI_JOB_ROLE", Value: role.Name})
		r.keys(pod)
	} else if !isLauncher && len(c.Command) == 0 {
		c.Command, c.Args = []string{"sleep"}, []string{"365d"}
	}
	if isLauncher || !r.second { // v1: OpenMPI looks for kubexec.sh in every rank
		r.mount(pod)
	}
}

func (r *reader) labels(role *repo.Role, isLauncher bool) {
	if !r.second {
		if isLauncher {
			r.Master(launcher, false)
		}
		return
	}
	delete(role.Env.Labels, labelType)
	role.Env.Labels[labelPart] = role.Name
	if r.spec.RunLauncherAsWorker && !isLauncher {
		role.Env.Labels[labelIndex] = "{{add .Index 1}}"
	}
}
