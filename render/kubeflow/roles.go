package kubeflow

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/replicaspec"
)

// Labels of the pods.
const (
	labelOperator = "training.kubeflow.org/operator-name"
	labelJob      = "training.kubeflow.org/job-name"
	labelType     = "training.kubeflow.org/replica-type"
	labelIndex    = "training.kubeflow.org/replica-index"
	labelPart     = "training.kubeflow.org/job-role"
	partMaster    = "master"
)

// roles makes a role of each replica spec.
func (j *Job) roles(replicas map[string]*ReplicaSpec) {
	if n := len(replicas); n > manifest.MaxRoles {
		j.O.Errorf(j.field(), "%d types of replicas are too many; %d are the most", n, manifest.MaxRoles)
		return
	}
	if missing := j.empty(replicas); missing && len(replicas) == 0 {
		j.O.Errorf(j.field(), "required: %sSpec is not valid", j.Kind.Name)
		return
	}
	for _, written := range j.order(replicas) {
		t, known := j.Kind.proper(written)
		at := manifest.Join(j.field(), written)
		switch {
		case known && j.Type(t) != nil:
			j.O.Errorf(at, "there are two replica specs of type %s: keep one of them", t)
			continue
		case !known && !j.Kind.Open:
			j.O.Errorf(at, "%sReplicaType is %s but must be one of [%s]%s", strings.TrimSuffix(j.Kind.Name, "Job"), written,
				strings.Join(j.Kind.Types, " "), manifest.Nearest(written, j.Kind.Types...))
			continue
		case !known:
			j.O.Warnf(at, "%q is no type of replica that a %s knows (%s): it runs, and counts for nothing%s", written, j.Kind.Name,
				strings.Join(j.Kind.Types, ", "), manifest.Nearest(written, j.Kind.Types...))
			manifest.CheckRoleName(j.O, at, RoleName(t))
		}
		j.paths[RoleName(t)] = at
		j.Roles = append(j.Roles, j.role(at, t, replicas[written]))
	}
	for i := range j.Roles {
		j.total += j.Roles[i].Replicas
	}
}

// empty reports replica specs of which nothing is written, and says whether
// there is nothing at all.
func (j *Job) empty(replicas map[string]*ReplicaSpec) bool {
	spec, _ := j.O.Content()["spec"].(map[string]any)
	written, isMap := spec[j.Kind.Replicas].(map[string]any)
	for _, t := range slices.Sorted(maps.Keys(written)) {
		if written[t] == nil {
			j.O.Errorf(manifest.Join(j.field(), t), "%sSpec is not valid: containers definition expected in %s", j.Kind.Name, t)
		}
	}
	return !isMap || len(written) == len(replicas)
}

// order is that of the kind's types; others come behind them.
func (j *Job) order(replicas map[string]*ReplicaSpec) []string {
	place := func(written string) int {
		t, _ := j.Kind.proper(written)
		if i := slices.Index(j.Kind.Types, t); i >= 0 {
			return i
		}
		return len(j.Kind.Types)
	}
	names := slices.Sorted(maps.Keys(replicas))
	slices.SortStableFunc(names, func(a, b string) int { return place(a) - place(b) })
	return names
}

func (j *Job) role(at, t string, s *ReplicaSpec) repo.Role {
	role := repo.Role{
		Name: RoleName(t), Replicas: replicaspec.Replicas(j.O, at, s.Replicas),
		// A replica that fails for good fails the job, whatever its type.
		Daemon: true, MinSucceeded: repo.Never, MinFailed: 1, MainContainer: j.Kind.Container,
		// Upstream puts its variables behind those of the template.
		Env: repo.Env{Last: true, Labels: j.labels(t)},
	}
	policy := manifest.OneOf(j.O, at+".restartPolicy", s.RestartPolicy, j.Kind.Restart, Always, OnFailure, Never, ExitCode)
	j.policies[role.Name] = policy
	role.Template = *s.Template.DeepCopy()
	if !j.containers(at+".template.spec", t, &role.Template.Spec) {
		return role
	}
	manifest.CheckTemplate(j.O, at+".template", &role.Template)
	if own := role.Template.Spec.RestartPolicy; own != "" && RestartPolicy(own) != policy {
		j.O.Warnf(at+".template.spec.restartPolicy", "overridden by the replica spec's restartPolicy, which is %s", policy)
	}
	// A pod runs once; a try again is a pod of its own, which is counted.
	role.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if role.MainContainer == "" {
		role.MainContainer = role.Template.Spec.Containers[0].Name
	}
	role.Port = j.port(&role.Template.Spec)
	manifest.SetRole(&role.Template, role.Name)
	return role
}

// containers checks what upstream does of a pod. It says whether there are any.
func (j *Job) containers(at, t string, spec *corev1.PodSpec) bool {
	at += ".containers"
	if len(spec.Containers) == 0 {
		j.O.Errorf(at, "%sSpec is not valid: containers definition expected in %s", j.Kind.Name, t)
		return false
	}
	named := j.Kind.Container == ""
	for i := range spec.Containers {
		c := &spec.Containers[i]
		named = named || c.Name == j.Kind.Container
		if c.Image == "" {
			j.O.Errorf(manifest.Item(at, i)+".image", "required: Image is undefined in the container of %s", t)
		}
	}
	if !named {
		j.O.Errorf(at, "%sSpec is not valid: There is no container named %s in %s", j.Kind.Name, j.Kind.Container, t)
	}
	return true
}

// port is the one of the kind's name, which the container is given when it has none.
func (j *Job) port(spec *corev1.PodSpec) int32 {
	if j.Kind.PortName == "" {
		return 0
	}
	c := &spec.Containers[max(0, slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == j.Kind.Container }))]
	for _, p := range c.Ports {
		if p.Name == j.Kind.PortName {
			return p.ContainerPort
		}
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: j.Kind.PortName, ContainerPort: j.Kind.Port})
	return j.Kind.Port
}

// labels of a task's pod, as the operators set them. Before v1 two of them were
// written in one way in some releases and in the other in some.
func (j *Job) labels(t string) map[string]string {
	if !j.Early {
		return map[string]string{labelOperator: j.Kind.Operator, labelJob: "{{.Job}}", labelType: RoleName(t), labelIndex: "{{.Index}}"}
	}
	p := j.Kind.Prefix
	return map[string]string{
		"group-name": group, "group_name": group, p + "-job-name": "{{.Job}}", p + "_job_name": "{{.Job}}",
		p + "-replica-type": RoleName(t), p + "-replica-index": "{{.Index}}",
	}
}

// Master labels replicas of a type as the job's master: all of them, or the
// first one only.
func (j *Job) Master(t string, first bool) {
	role := j.Type(t)
	if role == nil {
		return
	}
	label, value := labelPart, partMaster
	if j.Early {
		label = j.Kind.Prefix + "-job-role"
	}
	if first { // the others have the label too, and nothing in it
		value = "{{if eq .Index 0}}" + partMaster + "{{end}}"
	}
	role.Env.Labels[label] = value
}
