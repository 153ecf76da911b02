package trainingjob

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
	"github.com/trainyard/trainyard/render/rules"
)

// Spec is what a TrainingJob says. Durations are written 90s, 30m, 12h or 2d.
type Spec struct {
	// Description is free text.
	Description string `json:"description,omitempty"`
	// Suspend stops the pods; the run waits, and goes on when this is removed.
	Suspend bool `json:"suspend,omitempty"`
	// Stop ends the run as Stopped.
	Stop bool `json:"stop,omitempty"`
	// Schedule starts a run at each of its times instead of at a push.
	Schedule *Schedule `json:"schedule,omitempty"`
	// OnChange says what a changed definition does to a run that is going on:
	// Finish (default) lets it end, then runs the new one; Restart stops it
	// first; Ignore does not run the new one by itself.
	OnChange repo.OnChange `json:"onChange,omitempty"`
	// Deadline of the whole run, without the time it was suspended; none by default.
	Deadline *manifest.Duration `json:"deadline,omitempty"`
	// StartDeadline is from a pod's creation to its first running container.
	StartDeadline *manifest.Duration `json:"startDeadline,omitempty"`
	// ProgressDeadline is from the last output of any task.
	ProgressDeadline *manifest.Duration `json:"progressDeadline,omitempty"`
	// Retry of the whole run: all tasks start afresh.
	Retry Retry `json:"retry,omitempty"`
	// FailureRules come before the built-in table; the first match wins.
	FailureRules []rules.Spec `json:"failureRules,omitempty"`
	// Rendezvous chooses the variables by which tasks find each other:
	// tensorflow, pytorch, mxnet, jax, mpi, none (default).
	Rendezvous rendezvous.Kind `json:"rendezvous,omitempty"`
	// Gang starts either all pods or none.
	Gang bool `json:"gang,omitempty"`
	// Cleanup of the pods of a run that has ended.
	Cleanup *Cleanup `json:"cleanup,omitempty"`
	// Metrics are read from the log.
	Metrics *Metrics `json:"metrics,omitempty"`
	// Roles of the job; at least one is no daemon.
	Roles []Role `json:"roles"`
}

// Schedule is a cron schedule.
type Schedule struct {
	// Cron has five fields (minute, hour, day of month, month, day of week), or
	// is one of @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string `json:"cron"`
	// TimeZone is an IANA name, Europe/Berlin; UTC by default.
	TimeZone string `json:"timeZone,omitempty"`
	// ConcurrencyPolicy says what happens when a time comes while a run is
	// going on: Forbid (default) lets it finish first, Replace stops it.
	ConcurrencyPolicy repo.Concurrency `json:"concurrencyPolicy,omitempty"`
	// StartingDeadline is how late a run may start; without limit by default.
	StartingDeadline *manifest.Duration `json:"startingDeadline,omitempty"`
}

// Retry is a budget of retries.
type Retry struct {
	// Limit is how many failures are retried, 0 by default and -1 for all of
	// them. Failures that are nobody's fault (a lost node, preemption) are
	// retried without using it up, Permanent ones are not retried.
	Limit int32 `json:"limit,omitempty"`
	// Backoff is the wait before a retry.
	Backoff Backoff `json:"backoff,omitempty"`
}

// Backoff grows from Initial (10s) by Factor (2) for each retry in a row, up to Max (10m).
type Backoff struct {
	Initial *manifest.Duration `json:"initial,omitempty"`
	Factor  *float64           `json:"factor,omitempty"`
	Max     *manifest.Duration `json:"max,omitempty"`
}

// Cleanup says which pods of a run that has ended are deleted, and when.
type Cleanup struct {
	// Pods: All (default), Running (only what still runs), None.
	Pods repo.CleanupPods `json:"pods,omitempty"`
	// After the run's end; 24h by default.
	After *manifest.Duration `json:"after,omitempty"`
}

// Metrics are found in the log by an RE2 expression with the groups name and value.
type Metrics struct {
	Log string `json:"log"`
}

// Role is a set of identical replicas.
type Role struct {
	// Name is a DNS label, unique in the job.
	Name string `json:"name"`
	// Replicas from 1 (default) to 10,000.
	Replicas *int32 `json:"replicas,omitempty"`
	// Daemon roles serve the others: they count for nothing, and are stopped
	// when the others are done.
	Daemon bool `json:"daemon,omitempty"`
	// GPUs of each task's first container.
	GPUs *GPUs `json:"gpus,omitempty"`
	// Shm is the size of /dev/shm in every container: memory, which counts for
	// the containers that fill it.
	Shm *resource.Quantity `json:"shm,omitempty"`
	// Volumes are mounted into every container.
	Volumes []Volume `json:"volumes,omitempty"`
	// Retry of a task: its pod starts afresh, the others go on.
	Retry Retry `json:"retry,omitempty"`
	// MinSucceeded tasks make the role succeed: a number, or all (default). The
	// run succeeds when every role that is no daemon has.
	MinSucceeded *Count `json:"minSucceeded,omitempty"`
	// MinFailed tasks that failed for good make the run's attempt fail: a
	// number (1 by default), or never.
	MinFailed *Count `json:"minFailed,omitempty"`
	// ForceDeleteAfter gives a pod up that was asked to end and does not, as its
	// node does not answer, that long after it was asked. It may still run then,
	// beside its retry. By default it is waited for until it is surely dead.
	ForceDeleteAfter *manifest.Duration `json:"forceDeleteAfter,omitempty"`
	// Port that a task listens on for the others; by default the rendezvous' own.
	Port int32 `json:"port,omitempty"`
	// Template is the pod of each task. Its first container is the one whose
	// end decides. restartPolicy is Never by default: retries are the run's.
	Template corev1.PodTemplateSpec `json:"template"`
}

// GPUs become a limit of the first container.
type GPUs struct {
	// Count from 0 to 1024; without it none is asked for.
	Count *int64 `json:"count,omitempty"`
	// Resource is what is counted, nvidia.com/gpu by default.
	Resource corev1.ResourceName `json:"resource,omitempty"`
	// Class is put on the pod as label trainyard.dev/gpu-class, for overlays to
	// turn into what it means in their environment: a node selector,
	// tolerations, another resource.
	Class string `json:"class,omitempty"`
}

// Volume is any volume of Kubernetes, with the place where it is mounted.
type Volume struct {
	corev1.Volume `json:",inline"`
	MountPath     string `json:"mountPath"`
	SubPath       string `json:"subPath,omitempty"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// Count is a number of tasks, or a word.
type Count struct {
	Number int32
	Word   string // all, never
}

// UnmarshalJSON reads a number or a word.
func (c *Count) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &c.Number) == nil {
		return nil
	}
	if json.Unmarshal(data, &c.Word) == nil && (c.Word == "all" || c.Word == "never") {
		return nil
	}
	return fmt.Errorf("want a number, all or never, not %s", data)
}

// MarshalJSON writes what UnmarshalJSON reads.
func (c Count) MarshalJSON() ([]byte, error) {
	if c.Word != "" {
		return json.Marshal(c.Word)
	}
	return json.Marshal(c.Number)
}
