package kubeflow

import (
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

const (
	managedByOperator = "kubeflow.org/training-operator"
	managedByKueue    = "kueue.x-k8s.io/multikueue"
	annotationQueue   = "scheduling.volcano.sh/queue-name"
	// maxSeconds is what a time.Duration can hold, with room to spare.
	maxSeconds = 1 << 32
)

// runPolicy reads the run policy, wherever its fields are written.
func (j *Job) runPolicy(s *Spec) {
	p := &s.RunPolicy
	clean := early(j, "cleanPodPolicy", &p.CleanPodPolicy, s.CleanPodPolicy)
	ttl := early(j, "ttlSecondsAfterFinished", &p.TTLSecondsAfterFinished, s.TTLSecondsAfterFinished)
	deadline := early(j, "activeDeadlineSeconds", &p.ActiveDeadlineSeconds, s.ActiveDeadlineSeconds)
	backoff := early(j, "backoffLimit", &p.BackoffLimit, s.BackoffLimit)

	j.Suspend = j.Suspend || p.Suspend
	j.cleanup(clean, p.CleanPodPolicy, ttl, p.TTLSecondsAfterFinished)
	if d := p.ActiveDeadlineSeconds; d != nil {
		if *d < 1 || *d > maxSeconds {
			j.O.Errorf(deadline, "want a number of seconds from 1, not %d", *d)
		} else {
			j.Deadline = time.Duration(*d) * time.Second
		}
	}
	if n := p.BackoffLimit; n != nil {
		if *n < 0 {
			j.O.Errorf(backoff, "want a number from 0, not %d", *n)
		}
		j.FailureBudget = n
	}
	manager := j.Kind.Manager
	if manager == "" {
		manager = managedByOperator
	}
	switch p.ManagedBy {
	case "", manager:
	case managedByKueue:
		j.O.Errorf("spec.runPolicy.managedBy", "%s sends jobs to other clusters, which is not done here; remove it", managedByKueue)
	default:
		j.O.Errorf("spec.runPolicy.managedBy", "%q is not one of %s, %s", p.ManagedBy, manager, managedByKueue)
	}
	j.scheduling(p.SchedulingPolicy)
}

// early takes a field from where it stood before there was a run policy. It
// returns the path that the field has in the file.
func early[T any](j *Job, field string, policy **T, direct *T) (at string) {
	at = "spec.runPolicy." + field
	switch {
	case direct == nil:
		return at
	case *policy != nil:
		j.O.Warnf("spec."+field, "ignored: %s is what counts", at)
		return at
	case !j.Early:
		j.O.Warnf("spec."+field, "the place of the first operators; read as %s", at)
	}
	*policy = direct
	return "spec." + field
}

// cleanup: what is kept by cleanPodPolicy is kept until the time to live is
// over, for then upstream removes the job and all that belongs to it.
func (j *Job) cleanup(at string, policy *string, ttlAt string, ttl *int32) {
	otherwise := repo.CleanupNone
	if c, ok := j.Kind.Early[j.version]; ok {
		otherwise = c
	}
	if d := j.O.Settings().Defaults.Cleanup; d != nil && ttl == nil {
		otherwise = d.Pods
	}
	written := repo.CleanupPods("")
	if policy != nil {
		written = repo.CleanupPods(*policy)
		j.Cleanup.After = 0
	}
	j.Cleanup.Pods = manifest.OneOf(j.O, at, written, otherwise, repo.CleanupAll, repo.CleanupRunning, repo.CleanupNone)
	switch {
	case ttl == nil:
	case *ttl < 0:
		j.O.Errorf(ttlAt, "want a number of seconds from 0, not %d", *ttl)
	case j.Cleanup.Pods == repo.CleanupAll:
		j.Cleanup.After = 0
	default:
		j.Cleanup = repo.Cleanup{Pods: repo.CleanupAll, After: time.Duration(*ttl) * time.Second}
	}
}

// scheduling: upstream leaves it to Volcano or another scheduler of gangs.
func (j *Job) scheduling(s *SchedulingPolicy) {
	const at = "spec.runPolicy.schedulingPolicy"
	if s == nil {
		return
	}
	n := s.MinAvailable
	j.Gang = n == nil || *n == j.total
	if !j.Gang {
		if *n < 0 || *n > j.total {
			j.O.Errorf(at+".minAvailable", "want 0 to %d, the number of replicas, not %d", j.total, *n)
		} else {
			j.O.Warnf(at+".minAvailable", "%d of %d replicas: only all replicas can be started together, so these start one by one", *n, j.total)
		}
	}
	if len(s.MinResources) > 0 {
		j.O.Warnf(at+".minResources", "ignored: what the pods ask for is what counts")
	}
	if t := s.ScheduleTimeoutSeconds; t != nil {
		if *t < 1 {
			j.O.Errorf(at+".scheduleTimeoutSeconds", "want a number of seconds from 1, not %d", *t)
		} else {
			j.StartDeadline = time.Duration(*t) * time.Second
		}
	}
	for i := range j.Roles {
		t := &j.Roles[i].Template
		if s.PriorityClass != "" && t.Spec.PriorityClassName == "" {
			t.Spec.PriorityClassName = s.PriorityClass
		}
		if s.Queue == "" {
			continue
		}
		if t.Annotations == nil {
			t.Annotations = map[string]string{}
		}
		if t.Annotations[annotationQueue] == "" {
			t.Annotations[annotationQueue] = s.Queue
		}
	}
}

// CheckElastic checks what the elastic policies of two kinds have in common.
func CheckElastic(j *Job, lowest, highest *int32, metrics []any) {
	const at = "spec.elasticPolicy"
	if lowest != nil && *lowest < 1 {
		j.O.Errorf(at+".minReplicas", "want a number from 1, not %d", *lowest)
	}
	if lowest != nil && highest != nil && *lowest > *highest {
		j.O.Errorf(at+".maxReplicas", "%d is less than minReplicas, %d", *highest, *lowest)
	}
	if len(metrics) > 0 {
		j.O.Warnf(at+".metrics", "ignored: nothing scales the job by itself, its replicas stay as they are written")
	}
}
