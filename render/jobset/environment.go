package jobset

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/batchjob"
)

// Names that JobSet and Job give to pods.
const (
	prefix           = "jobset.sigs.k8s.io/"
	labelCoordinator = prefix + "coordinator"
	labelName        = prefix + "jobset-name"
	labelCompletion  = "batch.kubernetes.io/job-completion-index"
	podVariable      = "JOB_COMPLETION_INDEX"
	jobVariable      = "JOBSET_JOB_INDEX" // ours: upstream has a label only
	defaultGroup     = "default"
)

// environment tells each pod its place in the set, and how the others are named.
func (r *reader) environment() {
	if r.hostnames() {
		r.service()
	}
	coordinator := r.coordinator()
	all, groups := int32(0), map[string]int32{}
	replicas := func(role *repo.Role) int32 { return role.Replicas / max(1, r.completions[role.Name]) }
	for i := range r.job.Roles {
		all += replicas(&r.job.Roles[i])
		groups[r.group(r.job.Roles[i].Name)] += replicas(&r.job.Roles[i])
	}
	before, inGroup := int32(0), map[string]int32{}
	for i := range r.job.Roles {
		role := &r.job.Roles[i]
		group, n, size := r.group(role.Name), replicas(role), r.completions[role.Name]
		job, pod := fmt.Sprintf("{{div .Index %d}}", size), fmt.Sprintf("{{mod .Index %d}}", size)
		from := func(first int32) string { return fmt.Sprintf("{{add %d (div .Index %d)}}", first, size) }
		labels := map[string]string{
			labelName: r.job.Name, prefix + "jobset-uid": "{{.Run}}", prefix + "replicatedjob-name": role.Name, prefix + "restart-attempt": "{{.RunAttempt}}",
			prefix + "replicatedjob-replicas": number(n), prefix + "global-replicas": number(all), prefix + "job-index": job,
			prefix + "job-global-index": from(before), prefix + "group-name": group, prefix + "group-replicas": number(groups[group]),
			prefix + "job-group-index": from(inGroup[group]),
		}
		if coordinator != "" {
			labels[labelCoordinator] = coordinator
		}
		before, inGroup[group] = before+n, inGroup[group]+n
		role.Env = repo.Env{Init: true, Annotations: labels, Labels: map[string]string{}, Vars: []corev1.EnvVar{{Name: jobVariable, Value: job}}}
		for k, v := range labels {
			role.Env.Labels[k] = v
		}
		name := fmt.Sprintf("%s-%s-%s", r.job.Name, role.Name, job)
		role.Env.Labels["job-name"], role.Env.Labels["batch.kubernetes.io/job-name"] = name, name
		if r.replicated(role.Name).Template.Spec.CompletionMode == batchjob.Indexed {
			role.Env.Vars = append(role.Env.Vars, corev1.EnvVar{Name: podVariable, Value: pod})
			role.Env.Labels[labelCompletion] = pod
			role.Env.Annotations[labelCompletion] = pod
			r.hostname(role, n)
		}
	}
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func (r *reader) replicated(name string) *ReplicatedJob {
	for i := range r.spec.ReplicatedJobs {
		if r.spec.ReplicatedJobs[i].Name == name {
			return &r.spec.ReplicatedJobs[i]
		}
	}
	return &ReplicatedJob{}
}

func (r *reader) group(role string) string {
	group := r.replicated(role).GroupName
	if group == "" {
		return defaultGroup
	}
	if strings.Contains(group, "{{") { // it becomes part of a template
		return defaultGroup
	}
	return group
}

// hostname is the one by which upstream's pods find each other.
func (r *reader) hostname(role *repo.Role, jobs int32) {
	longest := r.host(role.Name, jobs-1, r.completions[role.Name]-1)
	if len(longest) > validation.DNS1123LabelMaxLength {
		r.o.Errorf("metadata.name", "%q would be the host name of a pod, and is longer than %d characters", longest, validation.DNS1123LabelMaxLength)
		return
	}
	if !r.hostnames() {
		return
	}
	role.Template.Spec.Subdomain = r.subdomain()
	role.Template.Spec.Hostname = r.host(role.Name, "{{"+jobVariable+"}}", "{{"+podVariable+"}}")
	role.Env.Placeholders = []string{jobVariable, podVariable}
}

// service is the headless one in which the pods' host names are found.
func (r *reader) service() {
	if why := validation.IsDNS1035Label(r.subdomain()); len(why) > 0 {
		r.o.Errorf("spec.network.subdomain", "%q is the name of a Service: %s", r.subdomain(), why[0])
		return
	}
	notReady := r.spec.Network.PublishNotReadyAddresses
	s := corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: r.subdomain()},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{labelName: r.job.Name},
			PublishNotReadyAddresses: notReady == nil || *notReady,
		},
	}
	raw, err := json.Marshal(s)
	if err != nil {
		r.o.Errorf("", "%v", err)
	}
	r.job.Objects = append(r.job.Objects, repo.Object{APIVersion: s.APIVersion, Kind: s.Kind, Name: s.Name, Raw: raw})
}

// coordinator is the host name of the pod that is one, or "".
func (r *reader) coordinator() string {
	c := r.spec.Coordinator
	if c == nil {
		return ""
	}
	const at = "spec.coordinator"
	role := r.job.Role(c.ReplicatedJob)
	if role == nil {
		r.o.Errorf(at+".replicatedJob", "no replicated job is named %q", c.ReplicatedJob)
		return ""
	}
	size := r.completions[role.Name]
	switch {
	case c.JobIndex < 0 || c.JobIndex >= role.Replicas/max(1, size):
		r.o.Errorf(at+".jobIndex", "%q has no job %d", role.Name, c.JobIndex)
	case c.PodIndex < 0 || c.PodIndex >= size:
		r.o.Errorf(at+".podIndex", "the jobs of %q have no pod %d", role.Name, c.PodIndex)
	}
	name := r.host(role.Name, c.JobIndex, c.PodIndex) + "." + r.subdomain()
	if len(name) > validation.LabelValueMaxLength {
		r.o.Errorf(at, "%q is longer than a label may be, %d characters", name, validation.LabelValueMaxLength)
	}
	if strings.Contains(name, "{{") {
		return ""
	}
	return name
}
