// Package replicaspec holds what the TfJob and the MxJob operator share, which
// began as one program: lists of replicas by type, each with a pod template
// whose one container of a fixed name is the one that counts. It reads no job itself.
package replicaspec

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

const maxReplicas = 10000

// Retry is without limit for failures that are Transient by the format's rules,
// and none for others. The wait is that of Kubernetes, whose restarts it stands for.
func Retry() repo.Retry {
	return repo.Retry{Mode: repo.ByClass, Backoff: repo.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 5 * time.Minute}}
}

// Replicas is a number of replicas, 1 when it is absent.
func Replicas(o *manifest.Object, at string, n *int32) int32 {
	switch {
	case n == nil:
		return 1
	case *n < 0 || *n > maxReplicas:
		o.Errorf(at+".replicas", "want 0 to %d, not %d", maxReplicas, *n)
		return 1
	}
	return *n
}

// Port is where a replica listens.
func Port(o *manifest.Object, at string, port *int32, otherwise int32) int32 {
	switch {
	case port == nil:
		return otherwise
	case *port < 1 || *port > 65535:
		o.Errorf(at, "%d is no port: want 1 to 65535", *port)
		return otherwise
	}
	return *port
}

// Template finishes a role's pod template. container is the one that counts,
// and that is given what the operator's configuration has for its accelerators.
func Template(o *manifest.Object, at, role, container string, t *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	t = t.DeepCopy()
	manifest.CheckTemplate(o, at, t)
	accelerate(o, at, container, &t.Spec)
	if t.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		o.Warnf(at+".spec.restartPolicy", "Always is read as OnFailure: a container that has succeeded is not started again")
	}
	// Upstream lets Kubernetes restart the container in its pod, while its own
	// status already calls the replica failed, or not, by the exit code. Here
	// one rule does both: the pod runs once, and a failure that the rule calls
	// retryable gets a new pod, which is counted.
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	manifest.SetRole(t, role)
	return *t
}

// Cleanup is what a job's cleanupPodPolicy says, or the repository's default, or
// what the operator did.
func Cleanup(o *manifest.Object, policy string, otherwise repo.CleanupPods) repo.CleanupPods {
	if d := o.Settings().Defaults.Cleanup; d != nil {
		otherwise = d.Pods
	}
	return manifest.OneOf(o, "spec.cleanupPodPolicy", repo.CleanupPods(policy), otherwise, repo.CleanupAll, repo.CleanupRunning, repo.CleanupNone)
}

// HasContainer says whether a template has the container that counts.
func HasContainer(t *corev1.PodTemplateSpec, name string) bool {
	return slices.ContainsFunc(t.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
}

// Labels of a task's pod, as the operators set them, for repo.Env. The runtime
// ID, 4 random characters upstream, is the run's when the job does not give it.
func Labels(o *manifest.Object, at, group, replicaType, runtimeID string) map[string]string {
	if runtimeID == "" || len(validation.IsValidLabelValue(runtimeID)) > 0 {
		if runtimeID != "" {
			o.Errorf(at, "%q cannot be a label's value", runtimeID)
		}
		runtimeID = "{{.Run}}"
	}
	return map[string]string{group: "", "job_type": replicaType, "runtime_id": runtimeID, "task_index": "{{.Index}}"}
}

// RoleName is the role of a replica type: WORKER is worker.
func RoleName(replicaType string) string { return strings.ToLower(replicaType) }
