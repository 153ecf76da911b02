// Package batchjob reads Job of batch/v1, Kubernetes' own, into a repo.Job: a
// plain Job in the repository is run, retried and recorded as any other. It is
// as strict as the API server: an unknown field is an error.
package batchjob

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rules"
)

const (
	// roleName is what the one role of a Job is called, in its pods' names too.
	roleName       = "main"
	defaultBackoff = 6
	maxTasks       = 10000
	// maxSeconds is what a time.Duration can hold, with room to spare.
	maxSeconds = 1 << 32
	controller = "kubernetes.io/job-controller"
)

// Labels, annotation and variable that Kubernetes gives to the pods of a Job.
const (
	labelJob        = "batch.kubernetes.io/job-name"
	labelUID        = "batch.kubernetes.io/controller-uid"
	labelEarlyJob   = "job-name"
	labelEarlyUID   = "controller-uid"
	labelIndex      = "batch.kubernetes.io/job-completion-index" // an annotation too
	indexVariable   = "JOB_COMPLETION_INDEX"
	indexInHostname = "{{" + indexVariable + "}}"
)

// Format reads Job.
func Format() manifest.Format {
	return manifest.Format{
		Kinds: []schema.GroupVersionKind{{Group: "batch", Version: "v1", Kind: "Job"}},
		Spec:  Spec{},
		Read:  read,
		Neutral: manifest.Neutral("spec.suspend", "spec.ttlSecondsAfterFinished", "spec.podReplacementPolicy", "spec.selector",
			"spec.manualSelector", "spec.managedBy"),
		Replicas:  []string{"spec.parallelism", "spec.completions"},
		Templates: []string{"spec.template"},
	}
}

func read(o *manifest.Object) *repo.Job {
	job := o.Job(manifest.Options{})
	o.Keys(manifest.Options{}, "spec", "status")
	var s Spec
	o.Decode("spec", &s, manifest.Options{})

	role := Role(o, "spec", roleName, &s)
	role.Env = environment(&s)
	if s.CompletionMode == Indexed {
		hostname(o, job, &role)
		// Kubernetes lets both be changed together.
		job.Rescale = role.Replicas == role.Parallelism
	}
	job.Success, job.Retry = repo.AllRoles, repo.Retry{Mode: repo.ByFault}
	job.Roles = []repo.Role{role}
	// What the cluster did is nobody's fault. Kubernetes counts it too, unless
	// the policy says otherwise; no job has to answer for it here.
	job.Rules = rules.All(FailureRules(o, "spec", &s), o.Settings(), rules.Kubeflow())
	job.Suspend = job.Suspend || s.Suspend || s.Parallelism != nil && *s.Parallelism == 0
	job.FailureBudget = Budget(&s)
	if d := s.ActiveDeadlineSeconds; d != nil {
		job.Deadline = seconds(o, "spec.activeDeadlineSeconds", 1, *d)
	}
	Cleanup(o, "spec.ttlSecondsAfterFinished", job, s.TTLSecondsAfterFinished)
	return job
}

// Cleanup: without a time to live the pods that have ended stay, so that their
// logs can be read, and those that have not are stopped.
func Cleanup(o *manifest.Object, at string, job *repo.Job, ttl *int32) {
	switch {
	case ttl != nil:
		job.Cleanup = repo.Cleanup{Pods: repo.CleanupAll, After: seconds(o, at, 0, int64(*ttl))}
	case o.Settings().Defaults.Cleanup == nil:
		job.Cleanup = repo.Cleanup{Pods: repo.CleanupRunning}
	}
}

func seconds(o *manifest.Object, at string, lowest, n int64) time.Duration {
	if n < lowest || n > maxSeconds {
		o.Errorf(at, "want a number of seconds from %d, not %d", lowest, n)
		return 0
	}
	return time.Duration(n) * time.Second
}

// Budget is how many pods may fail, nil for any number.
func Budget(s *Spec) *int32 {
	n := s.BackoffLimit
	switch {
	case n == nil && s.BackoffLimitPerIndex != nil, n != nil && *n == math.MaxInt32:
		return nil
	case n == nil:
		return new(int32(defaultBackoff))
	}
	return n
}

// Role makes the role of a job's spec at a path, without its environment.
func Role(o *manifest.Object, at, name string, s *Spec) repo.Role {
	s.CompletionMode = manifest.OneOf(o, at+".completionMode", s.CompletionMode, NonIndexed, NonIndexed, Indexed)
	role := repo.Role{Name: name, MinFailed: repo.Never, Retry: repo.Retry{
		Limit: repo.Unlimited, Mode: repo.ByFault, // the budget of all tasks is what ends them
		Backoff: repo.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 10 * time.Minute},
	}}
	counts(o, at, s, &role)
	limits(o, at, s, &role)
	role.SucceedWhen = success(o, at+".successPolicy", s, role.Replicas)
	ignored(o, at, s)
	role.Template = template(o, at+".template", name, s)
	return role
}

// counts reads how many tasks there are, and how many of them have to succeed.
func counts(o *manifest.Object, at string, s *Spec, role *repo.Role) {
	number := func(field string, n *int32) int32 {
		switch {
		case n == nil:
			return 1
		case *n < 0 || *n > maxTasks:
			o.Errorf(at+"."+field, "want 0 to %d, not %d", maxTasks, *n)
			return 1
		}
		return *n
	}
	parallelism, completions := number("parallelism", s.Parallelism), number("completions", s.Completions)
	if s.Parallelism != nil && *s.Parallelism == 0 {
		o.Warnf(at+".parallelism", "0 suspends the job")
		parallelism = 1
	}
	switch {
	case s.Completions == nil && s.Parallelism != nil && s.CompletionMode == Indexed:
		o.Errorf(at+".completions", "required when completionMode is Indexed")
	case s.Completions == nil && parallelism > 1: // a work queue
		role.Replicas, role.MinSucceeded, role.Drain = parallelism, 1, true
		return
	case s.Completions != nil && *s.Completions == 0:
		o.Errorf(at+".completions", "0 is a job that does nothing; suspend: true keeps one from running")
		completions = 1
	}
	role.Replicas, role.MinSucceeded, role.Parallelism = completions, completions, min(parallelism, completions)
}

// limits reads how often tasks are tried again.
func limits(o *manifest.Object, at string, s *Spec, role *repo.Role) {
	if n := s.BackoffLimit; n != nil && *n < 0 {
		o.Errorf(at+".backoffLimit", "want a number from 0, not %d", *n)
	}
	n, most := s.BackoffLimitPerIndex, s.MaxFailedIndexes
	switch {
	case n == nil && most != nil:
		o.Errorf(at+".maxFailedIndexes", "goes with backoffLimitPerIndex, which is not given")
	case n == nil:
	case *n < 0:
		o.Errorf(at+".backoffLimitPerIndex", "want a number from 0, not %d", *n)
	case s.CompletionMode != Indexed:
		o.Errorf(at+".backoffLimitPerIndex", "goes with completionMode: Indexed")
	default:
		role.Retry.Limit = *n
		if most != nil && (*most < 0 || *most > role.Replicas) {
			o.Errorf(at+".maxFailedIndexes", "want 0 to %d, the number of completions, not %d", role.Replicas, *most)
		} else if most != nil && *most < role.Replicas {
			role.MinFailed = *most + 1
		}
	}
}

// ignored reports what has no effect here, and what would have one elsewhere.
func ignored(o *manifest.Object, at string, s *Spec) {
	if len(s.Selector) > 0 || s.ManualSelector {
		field := at + ".selector"
		if len(s.Selector) == 0 {
			field = at + ".manualSelector"
		}
		o.Warnf(field, "ignored: pods are found by the run that they belong to")
	}
	switch s.PodReplacementPolicy {
	case "", "Failed":
	case "TerminatingOrFailed":
		o.Warnf(at+".podReplacementPolicy", "read as Failed: a task's next pod waits until its last one has ended")
		if s.PodFailurePolicy != nil {
			o.Errorf(at+".podReplacementPolicy", "must be Failed with a podFailurePolicy")
		}
	default:
		manifest.OneOf(o, at+".podReplacementPolicy", s.PodReplacementPolicy, "", "Failed", "TerminatingOrFailed")
	}
	if s.ManagedBy != "" && s.ManagedBy != controller {
		o.Errorf(at+".managedBy", "%q is another controller, which this job would be left to; remove it", s.ManagedBy)
	}
}

func template(o *manifest.Object, at, role string, s *Spec) corev1.PodTemplateSpec {
	t := s.Template.DeepCopy()
	for _, label := range []string{labelJob, labelUID, labelEarlyJob, labelEarlyUID} { // of a Job that was read back
		delete(t.Labels, label)
	}
	manifest.CheckTemplate(o, at, t)
	at += ".spec"
	for i := range t.Spec.InitContainers {
		hasImage(o, manifest.Item(at+".initContainers", i), &t.Spec.InitContainers[i])
	}
	for i := range t.Spec.Containers {
		hasImage(o, manifest.Item(at+".containers", i), &t.Spec.Containers[i])
	}
	switch p := t.Spec.RestartPolicy; {
	case p == "" || p == corev1.RestartPolicyAlways:
		o.Errorf(at+".restartPolicy", "required: Never or OnFailure; Always, the default of pods, would start again what has succeeded")
	case s.PodFailurePolicy != nil && p == corev1.RestartPolicyOnFailure:
		o.Errorf(at+".restartPolicy", "must be Never with a podFailurePolicy")
	case s.BackoffLimitPerIndex != nil && p == corev1.RestartPolicyOnFailure:
		o.Errorf(at+".restartPolicy", "must be Never with a backoffLimitPerIndex")
	}
	// OnFailure counts restarts of containers against the same limit: a new pod
	// is one that can be recorded.
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	manifest.SetRole(t, role)
	return *t
}

func hasImage(o *manifest.Object, at string, c *corev1.Container) {
	if c.Image == "" {
		o.Errorf(at+".image", "required")
	}
}

// environment tells a pod its job and, with Indexed, its index. The job's own
// variable of that name is kept.
func environment(s *Spec) repo.Env {
	env := repo.Env{Labels: map[string]string{labelJob: "{{.Job}}", labelEarlyJob: "{{.Job}}", labelUID: "{{.Run}}", labelEarlyUID: "{{.Run}}"}}
	if s.CompletionMode == Indexed {
		env.Init = true
		env.Vars = []corev1.EnvVar{{Name: indexVariable, Value: "{{.Index}}"}}
		env.Labels[labelIndex] = "{{.Index}}"
		env.Annotations = map[string]string{labelIndex: "{{.Index}}"}
	}
	return env
}

// hostname of the pods of an Indexed Job is job-index: by it, and a Service
// that the template names as its subdomain, they find each other.
func hostname(o *manifest.Object, job *repo.Job, role *repo.Role) {
	longest := job.Name + "-" + strings.Repeat("9", digits(role.Replicas-1))
	if len(longest) > validation.DNS1123LabelMaxLength {
		o.Errorf("metadata.name", "%q is too long: with an index it is the host name of a pod, which has at most %d characters", job.Name, validation.DNS1123LabelMaxLength)
		return
	}
	if role.Template.Spec.Hostname == "" && role.Template.Spec.Subdomain != "" {
		role.Template.Spec.Hostname = job.Name + "-" + indexInHostname
		role.Env.Placeholders = []string{indexVariable}
	}
}

func digits(n int32) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}
