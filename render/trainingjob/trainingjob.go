// Package trainingjob reads TrainingJob of trainyard.dev/v1, the form that we
// recommend, into a repo.Job. It is strict: an unknown field is an error.
package trainingjob

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
	"github.com/trainyard/trainyard/render/rules"
)

// Defaults of a TrainingJob.
const (
	defaultBackoff      = 10 * time.Second
	defaultFactor       = 2
	defaultMaxBackoff   = 10 * time.Minute
	defaultCleanupAfter = 24 * time.Hour
	maxReplicas         = 10000
)

// Format reads TrainingJob.
func Format() manifest.Format {
	return manifest.Format{
		Kinds:     []schema.GroupVersionKind{{Group: "trainyard.dev", Version: "v1", Kind: "TrainingJob"}},
		Spec:      Spec{},
		Read:      read,
		Neutral:   manifest.Neutral("spec.description", "spec.suspend", "spec.stop", "spec.schedule", "spec.onChange", "spec.cleanup", "spec.metrics"),
		Replicas:  []string{"spec.roles[*].replicas"},
		Templates: []string{"spec.roles[*].template"},
		MergeKeys: map[string]string{"spec.roles": "name", "spec.roles[*].volumes": "name"},
	}
}

func read(o *manifest.Object) *repo.Job {
	job := o.Job(manifest.Options{})
	o.Keys(manifest.Options{}, "spec", "status")
	var spec Spec
	o.Decode("spec", &spec, manifest.Options{})

	job.Description = spec.Description
	job.Suspend, job.Stop = job.Suspend || spec.Suspend, job.Stop || spec.Stop
	job.OnChange = manifest.OneOf(o, "spec.onChange", spec.OnChange, job.OnChange, repo.Finish, repo.Restart, repo.Ignore)
	job.Schedule = schedule(o, spec.Schedule)
	job.Deadline = deadline(o, "spec.deadline", spec.Deadline, job.Deadline)
	job.StartDeadline = deadline(o, "spec.startDeadline", spec.StartDeadline, 0)
	job.ProgressDeadline = deadline(o, "spec.progressDeadline", spec.ProgressDeadline, 0)
	job.Retry = retry(o, "spec.retry", spec.Retry)
	job.Rules = rules.All(rules.Read(o, "spec.failureRules", spec.FailureRules), o.Settings(), rules.TrainingJob())
	job.Success, job.Gang, job.Rescale = repo.AllRoles, spec.Gang, false
	cleanup(o, job, spec.Cleanup)
	metrics(o, spec.Metrics)
	roles(o, job, &spec)
	return job
}

func schedule(o *manifest.Object, s *Schedule) *repo.Schedule {
	if s == nil {
		return nil
	}
	const at = "spec.schedule"
	switch _, err := cron.ParseStandard(s.Cron); {
	case s.Cron == "":
		o.Errorf(at+".cron", "required")
	case strings.Contains(s.Cron, "TZ="):
		o.Errorf(at+".cron", "the time zone has a field of its own: timeZone")
	case strings.HasPrefix(s.Cron, "@every"):
		o.Errorf(at+".cron", "%q depends on when the daemon was started; write the times: */15 * * * *", s.Cron)
	case err != nil:
		o.Errorf(at+".cron", "%v; want five fields like 0 2 * * *, or @daily and its like", err)
	}
	if _, err := time.LoadLocation(s.TimeZone); err != nil || s.TimeZone == "Local" {
		o.Errorf(at+".timeZone", "%q is no time zone; want a name like Europe/Berlin", s.TimeZone)
	}
	if s.ConcurrencyPolicy == "Allow" {
		o.Errorf(at+".concurrencyPolicy", "Allow is not possible: a job has one run at a time; use Forbid or Replace, or two jobs")
		s.ConcurrencyPolicy = ""
	}
	return &repo.Schedule{
		Cron: s.Cron, TimeZone: s.TimeZone,
		Concurrency:      manifest.OneOf(o, at+".concurrencyPolicy", s.ConcurrencyPolicy, repo.Forbid, repo.Forbid, repo.Replace),
		StartingDeadline: deadline(o, at+".startingDeadline", s.StartingDeadline, 0),
	}
}

// deadline is d, which is not 0 when it is given, or the default.
func deadline(o *manifest.Object, path string, d *manifest.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	if *d == 0 {
		o.Errorf(path, "must not be 0; leave it out for none")
	}
	return time.Duration(*d)
}

func retry(o *manifest.Object, path string, r Retry) repo.Retry {
	out := repo.Retry{Limit: r.Limit, Mode: repo.ByFault, Backoff: repo.Backoff{Initial: defaultBackoff, Factor: defaultFactor, Max: defaultMaxBackoff}}
	if r.Limit < repo.Unlimited {
		o.Errorf(path+".limit", "want a number from 0, or -1 for no limit")
	}
	b := &out.Backoff
	if r.Backoff.Initial != nil {
		b.Initial = time.Duration(*r.Backoff.Initial)
		b.Max = max(b.Max, b.Initial)
	}
	if f := r.Backoff.Factor; f != nil {
		if b.Factor = *f; *f < 1 {
			o.Errorf(path+".backoff.factor", "must be at least 1")
		}
	}
	if m := r.Backoff.Max; m != nil {
		if b.Max = time.Duration(*m); b.Max < b.Initial {
			o.Errorf(path+".backoff.max", "%s is less than initial, %s", b.Max, b.Initial)
		}
	}
	// A run that is retried because two of its kind wait for each other must
	// not try again at the same time as the other.
	out.ConflictDelay = repo.Span{Min: time.Minute, Max: 15 * time.Minute}
	return out
}

func cleanup(o *manifest.Object, job *repo.Job, c *Cleanup) {
	if o.Settings().Defaults.Cleanup == nil {
		job.Cleanup = repo.Cleanup{Pods: repo.CleanupAll, After: defaultCleanupAfter}
	}
	if c == nil {
		return
	}
	job.Cleanup.Pods = manifest.OneOf(o, "spec.cleanup.pods", c.Pods, job.Cleanup.Pods, repo.CleanupAll, repo.CleanupRunning, repo.CleanupNone)
	if c.After != nil {
		job.Cleanup.After = time.Duration(*c.After)
	}
}

// metrics are checked, so that a file that has them stays valid once they are shown.
func metrics(o *manifest.Object, m *Metrics) {
	if m == nil {
		return
	}
	switch re, err := regexp.Compile(m.Log); {
	case m.Log == "":
		o.Errorf("spec.metrics.log", "required")
	case err != nil:
		o.Errorf("spec.metrics.log", "%v (the syntax is RE2's)", err)
	case !slices.Contains(re.SubexpNames(), "value"):
		o.Errorf("spec.metrics.log", "needs a group named value, and one named name unless there is one metric only: (?P<name>loss)=(?P<value>[0-9.]+)")
	}
}

func roles(o *manifest.Object, job *repo.Job, spec *Spec) {
	kind := manifest.OneOf(o, "spec.rendezvous", spec.Rendezvous, rendezvous.None, rendezvous.TensorFlow, rendezvous.PyTorch, rendezvous.MXNet,
		rendezvous.JAX, rendezvous.MPI, rendezvous.None)
	meet := make([]rendezvous.Role, 0, len(spec.Roles))
	working := false
	for i := range spec.Roles {
		r := &spec.Roles[i]
		m := rendezvous.Role{Name: r.Name, Daemon: r.Daemon}
		if r.GPUs != nil && r.GPUs.Count != nil {
			m.Slots = *r.GPUs.Count
		}
		meet, working = append(meet, m), working || !r.Daemon
	}
	if len(spec.Roles) == 0 {
		o.Errorf("spec.roles", "at least one role is required")
		return
	}
	if len(spec.Roles) > manifest.MaxRoles {
		o.Errorf("spec.roles", "%d roles are too many; %d are the most", len(spec.Roles), manifest.MaxRoles)
		return
	}
	if !working {
		o.Errorf("spec.roles", "every role is a daemon: none could end the run")
		return
	}
	if why := rendezvous.Check(kind, meet); why != "" {
		o.Errorf("spec.rendezvous", "%s", why)
		kind = rendezvous.None
	}
	seen := map[string]bool{}
	for i := range spec.Roles {
		at := manifest.Item("spec.roles", i)
		role := readRole(o, at, &spec.Roles[i], kind)
		if seen[role.Name] {
			o.Errorf(at+".name", "role %q is defined twice", role.Name)
		}
		seen[role.Name] = true
		role.Env = rendezvous.Env(kind, meet, role.Name)
		job.Roles = append(job.Roles, role)
	}
}
