package repo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTemplateSetsNothingOfOurs: by labels and annotations pods are found and
// judged, owners and finalizers keep pods or collect them.
func TestTemplateSetsNothingOfOurs(t *testing.T) {
	now := metav1.Now()
	run := &Run{ID: "bert-abc", Environment: "prod", Revision: "r1", Job: Job{Key: Key{Namespace: "nlp", Name: "bert"}, Digest: "d1", Roles: []Role{{
		Name: "worker", Replicas: 1,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Name: "other", GenerateName: "other-", Namespace: "kube-system", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now,
			Labels: map[string]string{LabelManagedBy: "me", LabelRun: "other", LabelEnvironment: "dev", "trainyard.dev/later": "x", LabelGPUClass: "a100", "team": "nlp"},
			Annotations: map[string]string{
				AnnotationGang: "theirs", AnnotationGangSize: "2", AnnotationAddress: "javascript:0", AnnotationOutput: "2100-01-01T00:00:00Z", "note": "kept",
			},
			Finalizers:      []string{"example.org/never"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "u"}},
		}},
	}}}}
	pod, err := run.Pod(TaskAttempt{Task: Task{Role: "worker"}}, func(Task) Address { return Address{} })
	require.NoError(t, err)
	assert.Equal(t, metav1.ObjectMeta{
		Name: "bert-abc-worker-0-0-0", Namespace: "nlp", Finalizers: []string{Finalizer},
		Labels: map[string]string{
			LabelManagedBy: ManagedBy, LabelEnvironment: "prod", LabelJob: "bert", LabelRun: "bert-abc", LabelRole: "worker",
			LabelIndex: "0", LabelRunAttempt: "0", LabelAttempt: "0", LabelGPUClass: "a100", "team": "nlp",
		},
		Annotations: map[string]string{AnnotationRevision: "r1", AnnotationDigest: "d1", "note": "kept"},
	}, pod.ObjectMeta)
	assert.Len(t, run.Job.Roles[0].Template.Labels, 6, "the definition stays as it is")
}
