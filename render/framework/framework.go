// Package framework reads Framework of FrameworkController
// (frameworkcontroller.microsoft.com/v1) and of the launcher before it
// (launcher.microsoft.com/v1) into a repo.Job. What upstream ignored it reports
// as a warning; it never corrects what it warns of, for that would change what runs.
package framework

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rules"
)

const (
	launcherGroup = "launcher.microsoft.com"
	maxTasks      = 10000
	// The wait before the retry of a Framework whose tasks stood in each other's way.
	minConflictDelay = 60 * time.Second
	maxConflictDelay = 900 * time.Second
)

// Format reads Framework of both groups.
func Format() manifest.Format {
	return manifest.Format{
		Kinds: []schema.GroupVersionKind{
			{Group: launcherGroup, Version: "v1", Kind: "Framework"},
			{Group: "frameworkcontroller.microsoft.com", Version: "v1", Kind: "Framework"},
		},
		Spec:      spec{},
		Read:      read,
		Neutral:   manifest.Neutral("spec.description", "spec.executionType"),
		Replicas:  []string{"spec.taskRoles[*].taskNumber"},
		Templates: []string{"spec.taskRoles[*].task.pod"},
		MergeKeys: map[string]string{"spec.taskRoles": "name"},
	}
}

// reader reads one Framework.
type reader struct {
	o        *manifest.Object
	launcher bool
	name     string // of the job
	barred   bool   // a role has a barrier
}

func read(o *manifest.Object) *repo.Job {
	version, _ := o.Content()["apiVersion"].(string)
	r := reader{o: o, launcher: strings.HasPrefix(version, launcherGroup+"/")}
	// The launcher's decoder took keys in any case, FrameworkController's does not.
	opts := manifest.Options{Lenient: true, Fold: r.launcher}
	job := o.Job(opts)
	o.Keys(opts, "spec", "status")
	var s spec
	o.Decode("spec", &s, opts)

	r.name = job.Name
	r.plain("metadata.name", job.Name)
	job.Description = s.Description
	r.executionType(job, s.ExecutionType)
	job.Success = repo.AnyRole
	job.Rescale = !r.launcher
	job.Retry = r.retry("spec.retryPolicy", s.RetryPolicy)
	if s.RetryPolicy.Fancy {
		job.Retry.ConflictDelay = r.delay()
	}
	table := rules.Launcher()
	if !r.launcher {
		table = rules.FrameworkController(o.Settings())
	}
	job.Rules = rules.All(nil, o.Settings(), table)
	r.roles(job, s.TaskRoles)
	r.barrierFiles(job)
	return job
}

var plainName = regexp.MustCompile(`^[a-z0-9]{1,63}$`)

// plain warns of a name that is fine here and would not be upstream.
func (r *reader) plain(field, name string) {
	if name != "" && !plainName.MatchString(name) {
		r.o.Warnf(field, "%q: FrameworkController accepts only [a-z0-9]{1,63}; accepted here because it is a valid DNS label", name)
	}
}

func (r *reader) executionType(job *repo.Job, t string) {
	const at = "spec.executionType"
	if r.launcher {
		t = manifest.OneOf(r.o, at, t, "Start", "Start", "Stop")
	} else {
		t = manifest.OneOf(r.o, at, t, "Start", "Create", "Start", "Stop")
	}
	job.Hold = t == "Create"
	job.Stop = job.Stop || t == "Stop"
}

// retry has no back-off: upstream retries at once.
func (r *reader) retry(at string, p retry) repo.Retry {
	if p.Max < repo.Always {
		r.o.Errorf(at+".maxRetryCount", "want -2 (always), -1 (after every failure) or a number from 0, not %d", p.Max)
	}
	out := repo.Retry{Limit: p.Max, Mode: repo.ByCount}
	if p.Fancy {
		out.Mode = repo.ByClass
	}
	return out
}

// delay is before a Framework is tried again whose tasks stood in each other's way.
func (r *reader) delay() repo.Span {
	if d := r.o.Settings().FrameworkDelay; d != nil && !r.launcher {
		return *d
	}
	return repo.Span{Min: minConflictDelay, Max: maxConflictDelay}
}

func (r *reader) roles(job *repo.Job, roles []taskRole) {
	if len(roles) > manifest.MaxRoles {
		r.o.Errorf("spec.taskRoles", "%d task roles are too many; %d are the most", len(roles), manifest.MaxRoles)
		return
	}
	total, seen := int32(0), map[string]bool{}
	for i := range roles {
		at := manifest.Item("spec.taskRoles", i)
		role := r.role(at, &roles[i])
		if seen[role.Name] {
			r.o.Errorf(at+".name", "task role %q is defined twice", role.Name)
		}
		seen[role.Name] = true
		total += role.Replicas
		job.Roles = append(job.Roles, role)
	}
	if total == 0 {
		r.o.Warnf("spec.taskRoles", "a Framework without tasks never ends")
	}
	r.endless(job)
}

// endless warns of a server that keeps a Framework from ending: upstream ends
// it by the rules of its roles, or when every task of every role has ended.
func (r *reader) endless(job *repo.Job) {
	if len(job.Roles) < 2 || slices.ContainsFunc(job.Roles, func(role repo.Role) bool { return role.MinSucceeded >= 1 && role.Replicas > 0 }) {
		return
	}
	for i := range job.Roles {
		if role := &job.Roles[i]; server.MatchString(role.Name) && role.Replicas > 0 {
			r.o.Warnf(manifest.Item("spec.taskRoles", i)+".frameworkAttemptCompletionPolicy",
				"no completion rule can end this Framework while role %q keeps running: give the role whose success matters a minSucceededTaskCount", role.Name)
		}
	}
}

// server are the names that people give to roles that serve until they are stopped.
var server = regexp.MustCompile(`^(ps|pserver|parameter-?server|server|scheduler)$`)

func (r *reader) role(at string, t *taskRole) repo.Role {
	manifest.CheckRoleName(r.o, at+".name", t.Name)
	r.plain(at+".name", t.Name)
	if t.TaskNumber < 0 || t.TaskNumber > maxTasks {
		r.o.Errorf(at+".taskNumber", "want 0 to %d, not %d", maxTasks, t.TaskNumber)
		t.TaskNumber = 0
	}
	role := repo.Role{
		Name: t.Name, Replicas: t.TaskNumber, Retry: r.retry(at+".task.retryPolicy", t.Task.RetryPolicy),
		MinFailed:    r.count(at+".frameworkAttemptCompletionPolicy.minFailedTaskCount", t.Policy.MinFailed, t.TaskNumber),
		MinSucceeded: r.count(at+".frameworkAttemptCompletionPolicy.minSucceededTaskCount", t.Policy.MinSucceeded, t.TaskNumber),
		Env:          r.environment(),
	}
	if s := t.Task.ForceDeleteAfter; s != nil {
		switch {
		case *s < 0 || *s > 1<<31:
			r.o.Errorf(at+".task.podGracefulDeletionTimeoutSec", "want a number of seconds from 0, not %d", *s)
		case r.launcher:
			r.o.Warnf(at+".task.podGracefulDeletionTimeoutSec", "ignored: it came with frameworkcontroller.microsoft.com/v1")
		default:
			d := time.Duration(*s) * time.Second
			role.ForceDeleteAfter = &d
		}
	}
	role.Template = r.template(at+".task.pod", t.Task.Pod.DeepCopy())
	manifest.SetRole(&role.Template, role.Name)
	role.Port = firstPort(&role.Template)
	return role
}

// count reads a completion rule. The launcher's rule holds unless it is -1, so
// that 0, and nothing at all, mean 1; later only a number from 1 is a rule.
func (r *reader) count(at string, n, tasks int32) int32 {
	switch {
	case n < -1:
		r.o.Errorf(at, "want -1 (no rule) or a number, not %d", n)
	case n > tasks && tasks > 0:
		r.o.Warnf(at, "%d can never be reached by %d tasks", n, tasks)
	case n == 0 && r.launcher:
		return 1
	}
	if n < 1 {
		return repo.Never
	}
	return n
}

func (r *reader) template(at string, t *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	manifest.RenameResources(r.o, at+".spec", &t.Spec)
	checked := t.DeepCopy()
	if !r.launcher {
		checked = withoutPlaceholders(t)
	}
	manifest.CheckTemplate(r.o, at, checked)
	t.ObjectMeta = metav1.ObjectMeta{Labels: t.Labels, Annotations: t.Annotations}
	r.barrier(at, &t.Spec)
	for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range list {
			if list[i].TerminationMessagePolicy == "" {
				list[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
			}
		}
	}
	if p := t.Spec.RestartPolicy; p == "" || p == corev1.RestartPolicyAlways {
		t.Spec.RestartPolicy = corev1.RestartPolicyAlways // Kubernetes' default, which upstream leaves alone
		r.o.Warnf(at+".spec.restartPolicy", "Always (the default) restarts a container that has ended, so the task never does; want Never or OnFailure")
	}
	return *t
}

func firstPort(t *corev1.PodTemplateSpec) int32 {
	for i := range t.Spec.Containers {
		if ports := t.Spec.Containers[i].Ports; len(ports) > 0 {
			return ports[0].ContainerPort
		}
	}
	return 0
}
