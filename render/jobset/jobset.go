// Package jobset reads JobSet of jobset.x-k8s.io/v1alpha2 into a repo.Job: each
// replicated job becomes a role, and a restart of the set an attempt of the
// run. What a run of roles cannot do (order, restarts of single jobs) is an
// error or a warning, never silently left out.
package jobset

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/batchjob"
	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rules"
)

const (
	controller  = "jobset.sigs.k8s.io/jobset-controller"
	exclusive   = "alpha.jobset.sigs.k8s.io/exclusive-topology"
	maxReplicas = 10000
)

// Format reads JobSet.
func Format() manifest.Format {
	const template = "spec.replicatedJobs[*].template.spec"
	return manifest.Format{
		Kinds:     []schema.GroupVersionKind{{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}},
		Spec:      Spec{},
		Read:      read,
		Neutral:   manifest.Neutral("spec.suspend", "spec.ttlSecondsAfterFinished", "spec.managedBy"),
		Replicas:  []string{"spec.replicatedJobs[*].replicas", template + ".parallelism", template + ".completions"},
		Templates: []string{template + ".template"},
		MergeKeys: map[string]string{"spec.replicatedJobs": "name"},
	}
}

// reader reads one JobSet.
type reader struct {
	o    *manifest.Object
	job  *repo.Job
	spec Spec
	// completions are those of one job, by replicated job.
	completions map[string]int32
	// rules are the templates' own; last are for what no other rule is for.
	rules, last []repo.FailureRule
}

func read(o *manifest.Object) *repo.Job {
	r := reader{o: o, job: o.Job(manifest.Options{}), completions: map[string]int32{}}
	job := r.job
	o.Keys(manifest.Options{}, "spec", "status")
	o.Decode("spec", &r.spec, manifest.Options{})

	job.Suspend = job.Suspend || r.spec.Suspend
	job.Success = repo.AllRoles
	batchjob.Cleanup(o, "spec.ttlSecondsAfterFinished", job, r.spec.TTLSecondsAfterFinished)
	// A restart is of the whole set, at once, whatever it was that failed.
	job.Retry = repo.Retry{Mode: repo.ByCount}
	r.notTaken()
	if n := len(r.spec.ReplicatedJobs); n == 0 || n > manifest.MaxRoles {
		o.Errorf("spec.replicatedJobs", "want 1 to %d replicated jobs, not %d", manifest.MaxRoles, n)
		return job
	}
	for i := range r.spec.ReplicatedJobs {
		r.role(manifest.Item("spec.replicatedJobs", i), &r.spec.ReplicatedJobs[i])
	}
	r.success()
	r.failure()
	r.environment()
	job.Rules = rules.All(r.rules, o.Settings(), slices.Concat(rules.Kubeflow(), r.last))
	return job
}

// notTaken reports what there is nothing for here.
func (r *reader) notTaken() {
	if len(r.spec.VolumeClaimPolicies) > 0 {
		r.o.Errorf("spec.volumeClaimPolicies", "not taken: write the PersistentVolumeClaim as a document beside the JobSet, and name it in the templates")
	}
	if m := r.spec.ManagedBy; m != "" && m != controller {
		r.o.Errorf("spec.managedBy", "%q is another controller, which this job would be left to; remove it", m)
	}
	if p := r.spec.StartupPolicy; p != nil && manifest.OneOf(r.o, "spec.startupPolicy.startupPolicyOrder", p.StartupPolicyOrder, "AnyOrder", "AnyOrder", "InOrder") == "InOrder" {
		r.o.Warnf("spec.startupPolicy.startupPolicyOrder", "InOrder is read as AnyOrder: all replicated jobs start together")
	}
	for i := range r.spec.ReplicatedJobs {
		at := manifest.Item("spec.replicatedJobs", i)
		for k, d := range r.spec.ReplicatedJobs[i].DependsOn {
			here := manifest.Item(at+".dependsOn", k)
			if !slices.ContainsFunc(r.spec.ReplicatedJobs[:i], func(j ReplicatedJob) bool { return j.Name == d.Name }) {
				r.o.Errorf(here+".name", "no replicated job before this one is named %q", d.Name)
			}
			switch manifest.OneOf(r.o, here+".status", d.Status, "", "Ready", "Complete") {
			case "Ready":
				r.o.Warnf(here, "not waited for: all replicated jobs start together")
			case "Complete":
				r.o.Errorf(here, "not taken: all replicated jobs start together; make what comes first an init container, or a job of its own")
			}
		}
	}
	metadata, _ := r.o.Content()["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations[exclusive] != nil {
		r.o.Warnf(manifest.Join("metadata.annotations", exclusive), "ignored: pods are placed as their templates say")
	}
}

// role makes the role of a replicated job.
func (r *reader) role(at string, j *ReplicatedJob) {
	manifest.CheckRoleName(r.o, at+".name", j.Name)
	if r.job.Role(j.Name) != nil {
		r.o.Errorf(at+".name", "replicated job %q is defined twice", j.Name)
		return
	}
	if j.GroupName != "" {
		r.o.Label(at+".groupName", j.GroupName)
	}
	replicas := int32(1)
	if j.Replicas != nil {
		replicas = *j.Replicas
	}
	s := &j.Template.Spec
	if s.CompletionMode == "" {
		s.CompletionMode = batchjob.Indexed
	}
	if s.Template.Spec.RestartPolicy == "" {
		s.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	path := at + ".template.spec"
	role := batchjob.Role(r.o, path, j.Name, s)
	r.completions[j.Name] = role.Replicas
	if replicas < 1 || replicas > maxReplicas || replicas*role.Replicas > maxReplicas {
		r.o.Errorf(at+".replicas", "want at least 1, and at most %d pods of all its jobs together", maxReplicas)
		replicas = 1
	}
	r.jobSpec(path, s, &role, replicas)
	if role.MinFailed == repo.Never && s.BackoffLimitPerIndex == nil {
		role.MinFailed = 1 // a job that fails fails the set
	}
	role.Replicas, role.Parallelism = role.Replicas*replicas, role.Parallelism*replicas
	if role.MinSucceeded *= replicas; role.Drain {
		role.MinSucceeded = 1
	}
	for _, rule := range batchjob.FailureRules(r.o, path, s) {
		rule.Roles = []string{j.Name}
		r.rules = append(r.rules, rule)
	}
	r.job.Roles = append(r.job.Roles, role)
}

// jobSpec reads what of a Job means something else when it is one of a set.
func (r *reader) jobSpec(path string, s *batchjob.Spec, role *repo.Role, replicas int32) {
	if s.Parallelism != nil && *s.Parallelism == 0 {
		r.o.Errorf(path+".parallelism", "0 is not taken of one job of a set: suspend the JobSet")
	}
	if replicas > 1 {
		for field, given := range map[string]bool{
			"successPolicy": s.SuccessPolicy != nil, "maxFailedIndexes": s.MaxFailedIndexes != nil, "completions": role.Drain,
		} {
			if given {
				r.o.Errorf(path+"."+field, "not taken of a replicated job with several replicas: a run counts tasks, not jobs")
			}
		}
	}
	if s.ActiveDeadlineSeconds != nil {
		r.o.Errorf(path+".activeDeadlineSeconds", "not taken: a run has one deadline; give the pod's template an activeDeadlineSeconds")
	}
	if s.TTLSecondsAfterFinished != nil {
		r.o.Warnf(path+".ttlSecondsAfterFinished", "ignored: pods stay until the whole run has ended")
	}
	if s.Suspend {
		r.o.Warnf(path+".suspend", "ignored: spec.suspend of the JobSet is what counts")
	}
	limit := batchjob.Budget(s)
	if limit == nil || s.BackoffLimitPerIndex != nil {
		return
	}
	// What a Job's pods may fail together is here what each of them may, unless
	// it is the only one of the set.
	role.Retry.Limit = *limit
	switch {
	case len(r.spec.ReplicatedJobs) == 1 && replicas == 1:
		role.Retry.Limit, r.job.FailureBudget = repo.Unlimited, limit
	case s.BackoffLimit != nil && *limit > 0 && role.Replicas > 1:
		r.o.Warnf(path+".backoffLimit", "%d for each pod: the pods of one job are not counted together", *limit)
	}
}

// success makes the replicated jobs that count decide.
func (r *reader) success() {
	p := r.spec.SuccessPolicy
	if p == nil {
		return
	}
	r.targets("spec.successPolicy.targetReplicatedJobs", p.TargetReplicatedJobs)
	if p.Operator == "" {
		r.o.Errorf("spec.successPolicy.operator", "required: All or Any")
	}
	anyOne := manifest.OneOf(r.o, "spec.successPolicy.operator", p.Operator, "All", "All", "Any") == "Any"
	if anyOne {
		r.job.Success = repo.AnyRole
	}
	for i := range r.job.Roles {
		role := &r.job.Roles[i]
		switch target := len(p.TargetReplicatedJobs) == 0 || slices.Contains(p.TargetReplicatedJobs, role.Name); {
		case !target:
			role.Daemon, role.MinSucceeded, role.SucceedWhen, role.Drain = true, repo.Never, nil, false
		case anyOne:
			r.anyJob(role)
		}
	}
}

// anyJob makes one job of a role enough: its own tasks, or one when it has one.
func (r *reader) anyJob(role *repo.Role) {
	size := r.completions[role.Name]
	switch {
	case len(role.SucceedWhen) > 0 || role.Drain: // one job, by rules of its own
	case size == 1:
		role.MinSucceeded = 1
	case role.Replicas > size:
		for first := int32(0); first < role.Replicas; first += size {
			role.SucceedWhen = append(role.SucceedWhen, repo.SuccessRule{Indexes: []repo.CodeRange{{Min: first, Max: first + size - 1}}})
		}
	}
}

func (r *reader) targets(at string, names []string) {
	for i, n := range names {
		if r.job.Role(n) == nil {
			r.o.Errorf(manifest.Item(at, i), "no replicated job is named %q", n)
		}
	}
}

// failure reads how often the set starts afresh, and what ends it.
func (r *reader) failure() {
	p := r.spec.FailurePolicy
	if p == nil {
		return
	}
	const at = "spec.failurePolicy"
	if r.job.Retry.Limit = p.MaxRestarts; p.MaxRestarts < 0 {
		r.o.Errorf(at+".maxRestarts", "want a number from 0, not %d", p.MaxRestarts)
	}
	if manifest.OneOf(r.o, at+".restartStrategy", p.RestartStrategy, "Recreate", "Recreate", "BlockingRecreate", "InPlaceRestart") == "InPlaceRestart" {
		r.o.Errorf(at+".restartStrategy", "InPlaceRestart is not taken: each attempt has pods of its own")
	}
	if len(p.Rules) > maxRules {
		r.o.Errorf(at+".rules", "%d rules are too many; %d are the most", len(p.Rules), maxRules)
		return
	}
	for i := range p.Rules {
		r.rule(manifest.Item(at+".rules", i), &p.Rules[i])
	}
	for i := range r.job.Roles {
		r.obey(p, &r.job.Roles[i])
	}
}

func (r *reader) hostnames() bool {
	return r.spec.Network.EnableDNSHostnames == nil || *r.spec.Network.EnableDNSHostnames
}

func (r *reader) subdomain() string {
	if s := r.spec.Network.Subdomain; s != "" {
		return s
	}
	return r.job.Name
}

// host of a pod, whose indexes may be templates.
func (r *reader) host(role string, job, pod any) string {
	return fmt.Sprintf("%s-%s-%v-%v", r.job.Name, role, job, pod)
}
