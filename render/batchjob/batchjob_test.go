package batchjob

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head    = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n"
	pod     = "  template: {spec: {restartPolicy: Never, containers: [{name: main, image: a/b}]}}\n"
	indexed = "  completionMode: Indexed\n  completions: 5\n"
)

func TestDefaults(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+pod)
	assert.Equal(t, repo.AllRoles, j.Success)
	assert.Equal(t, int32(6), *j.FailureBudget)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupRunning}, j.Cleanup)
	assert.Zero(t, j.Retry.Limit)
	assert.Zero(t, j.Deadline)
	assert.False(t, j.Suspend)
	require.Len(t, j.Roles, 1)
	r := j.Roles[0]
	assert.Equal(t, "main", r.Name)
	assert.Equal(t, int32(1), r.Replicas)
	assert.Equal(t, int32(1), r.MinSucceeded)
	assert.Equal(t, repo.Never, r.MinFailed, "the budget of the job ends it")
	assert.False(t, r.Drain)
	assert.Empty(t, r.MainContainer, "any container's failure is the pod's")
	assert.Equal(t, repo.Retry{Limit: repo.Unlimited, Mode: repo.ByFault, Backoff: repo.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 10 * time.Minute}}, r.Retry)
	p := manifesttest.Pod(t, j, "main", 0)
	assert.Equal(t, "j", p.Labels["job-name"])
	assert.Equal(t, "j", p.Labels["batch.kubernetes.io/job-name"])
	assert.Empty(t, manifesttest.Env(t, p, "main"))
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		spec                              string
		replicas, succeeded, parallelism  int32
		drain, suspend, rescales, warning bool
	}{
		{spec: "  completions: 5\n", replicas: 5, succeeded: 5, parallelism: 1},
		{spec: "  completions: 5\n  parallelism: 2\n", replicas: 5, succeeded: 5, parallelism: 2},
		{spec: "  completions: 2\n  parallelism: 5\n", replicas: 2, succeeded: 2, parallelism: 2},
		{spec: "  parallelism: 1\n", replicas: 1, succeeded: 1, parallelism: 1},
		{spec: "  parallelism: 3\n", replicas: 3, succeeded: 1, drain: true},
		{spec: "  completions: 5\n  parallelism: 0\n", replicas: 5, succeeded: 5, parallelism: 1, suspend: true, warning: true},
		{spec: "  suspend: true\n", replicas: 1, succeeded: 1, parallelism: 1, suspend: true},
		{spec: "  completionMode: Indexed\n", replicas: 1, succeeded: 1, parallelism: 1, rescales: true},
		{spec: indexed, replicas: 5, succeeded: 5, parallelism: 1},
		{spec: indexed + "  parallelism: 5\n", replicas: 5, succeeded: 5, parallelism: 5, rescales: true},
	} {
		j, said := manifesttest.Read(t, Format(), head+pod+c.spec)
		require.NotNil(t, j, said)
		assert.Equal(t, c.warning, said != "", said)
		r := j.Roles[0]
		assert.Equal(t, c.replicas, r.Replicas, c.spec)
		assert.Equal(t, c.succeeded, r.MinSucceeded, c.spec)
		assert.Equal(t, c.parallelism, r.Parallelism, c.spec)
		assert.Equal(t, c.drain, r.Drain, c.spec)
		assert.Equal(t, c.suspend, j.Suspend, c.spec)
		assert.Equal(t, c.rescales, j.Rescale, c.spec)
	}
}

func TestIndexed(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+strings.Replace(pod, "{restartPolicy", "{subdomain: svc, initContainers: [{name: init, image: a}], restartPolicy", 1)+indexed)
	p := manifesttest.Pod(t, j, "main", 3)
	assert.Equal(t, []string{"JOB_COMPLETION_INDEX=3"}, manifesttest.Env(t, p, "main"))
	assert.Equal(t, []string{"JOB_COMPLETION_INDEX=3"}, manifesttest.Env(t, p, "init"))
	assert.Equal(t, "3", p.Annotations["batch.kubernetes.io/job-completion-index"])
	assert.Equal(t, "3", p.Labels["batch.kubernetes.io/job-completion-index"])
	assert.Equal(t, "j-3", p.Spec.Hostname, "the name by which a Service finds it")
	assert.Equal(t, "svc", p.Spec.Subdomain)

	j = manifesttest.Good(t, Format(), head+strings.Replace(pod, "image: a/b", "image: a/b, env: [{name: JOB_COMPLETION_INDEX, value: mine}]", 1)+indexed)
	env := manifesttest.Env(t, manifesttest.Pod(t, j, "main", 3), "main")
	assert.Equal(t, "JOB_COMPLETION_INDEX=mine", env[len(env)-1], "the job's own wins")
}

func TestLimits(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+pod+"  backoffLimit: 0\n")
	assert.Equal(t, int32(0), *j.FailureBudget)
	j = manifesttest.Good(t, Format(), head+pod+indexed+"  backoffLimitPerIndex: 2\n")
	assert.Nil(t, j.FailureBudget, "each index has its own")
	assert.Equal(t, int32(2), j.Roles[0].Retry.Limit)
	assert.Equal(t, repo.Never, j.Roles[0].MinFailed, "all indexes are tried to their end")
	j = manifesttest.Good(t, Format(), head+pod+indexed+"  backoffLimitPerIndex: 0\n  maxFailedIndexes: 2\n  backoffLimit: 9\n")
	assert.Equal(t, int32(9), *j.FailureBudget)
	assert.Equal(t, int32(3), j.Roles[0].MinFailed)
	j = manifesttest.Good(t, Format(), head+pod+indexed+"  backoffLimitPerIndex: 0\n  maxFailedIndexes: 5\n")
	assert.Equal(t, repo.Never, j.Roles[0].MinFailed)

	j = manifesttest.Good(t, Format(), head+pod+"  activeDeadlineSeconds: 90\n  ttlSecondsAfterFinished: 0\n")
	assert.Equal(t, 90*time.Second, j.Deadline)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupAll}, j.Cleanup)
	j = manifesttest.Good(t, Format(), head+pod+"  ttlSecondsAfterFinished: 60\n")
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupAll, After: time.Minute}, j.Cleanup)
}

func TestPodFailurePolicy(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+pod+indexed+`  backoffLimitPerIndex: 1
  podFailurePolicy:
    rules:
    - {action: FailJob, onExitCodes: {containerName: main, operator: In, values: [1, 42]}}
    - {action: FailIndex, onExitCodes: {operator: NotIn, values: [0, 1, 3, 4, 9]}}
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}
    - {action: Count, onExitCodes: {operator: In, values: [137]}}
`)
	codes := func(pairs ...int32) (out []repo.CodeRange) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, repo.CodeRange{Min: pairs[i], Max: pairs[i+1]})
		}
		return out
	}
	assert.Equal(t, []repo.FailureRule{
		{Name: "PodFailurePolicy", Container: "main", ExitCodes: codes(1, 1, 42, 42), Class: repo.Permanent, FailRun: true},
		{Name: "FailIndex", ExitCodes: codes(2, 2, 5, 8, 10, math.MaxInt32), Class: repo.Permanent},
		{Reasons: []string{"DisruptionTarget"}, Class: repo.Transient, Free: true},
		{ExitCodes: codes(137, 137), Class: repo.Unknown},
	}, j.Rules[:4])
	assert.Greater(t, len(j.Rules), 4)
}

func TestSuccessPolicy(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+pod+indexed+`  successPolicy:
    rules:
    - {succeededIndexes: "0,2-3", succeededCount: 1}
    - {succeededIndexes: "4"}
    - {succeededCount: 2}
`)
	assert.Equal(t, []repo.SuccessRule{
		{Indexes: []repo.CodeRange{{Min: 0, Max: 0}, {Min: 2, Max: 3}}, Count: 1},
		{Indexes: []repo.CodeRange{{Min: 4, Max: 4}}},
		{Count: 2},
	}, j.Roles[0].SucceedWhen)
}

func TestRetriesAreNewPods(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+strings.Replace(pod, "Never", "OnFailure", 1))
	assert.Equal(t, corev1.RestartPolicyNever, j.Roles[0].Template.Spec.RestartPolicy)
	assert.Equal(t, repo.Unlimited, j.Roles[0].Retry.Limit)
}

func TestReadBack(t *testing.T) {
	j, said := manifesttest.Read(t, Format(), `apiVersion: batch/v1
kind: Job
metadata: {name: j, uid: x, generation: 1}
spec:
  backoffLimit: 6
  completionMode: NonIndexed
  completions: 1
  manualSelector: false
  parallelism: 1
  podReplacementPolicy: TerminatingOrFailed
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: x}}
  suspend: false
  template:
    metadata: {creationTimestamp: null, labels: {job-name: old, controller-uid: x, mine: a}}
    spec: {restartPolicy: Never, containers: [{name: main, image: a}]}
status: {succeeded: 1}
`)
	require.NotNil(t, j, said)
	for _, want := range []string{"status and server-set metadata ignored", "spec.selector: ignored", "spec.podReplacementPolicy: read as Failed"} {
		assert.Contains(t, said, want)
	}
	assert.Equal(t, 3, strings.Count(said, "warning"))
	labels := manifesttest.Pod(t, j, "main", 0).Labels
	assert.Equal(t, "a", labels["mine"])
	assert.Equal(t, "j", labels["job-name"])
	assert.Equal(t, "j-abc", labels["controller-uid"])
}

func TestProblems(t *testing.T) {
	rule := func(text string) string { return pod + "  podFailurePolicy: {rules: [" + text + "]}\n" }
	for _, c := range []struct{ name, spec, want string }{
		{"unknown field", pod + "  backofLimit: 1\n", `f.yaml:6:3: spec.backofLimit: unknown field; did you mean "backoffLimit"?`},
		{"no restart policy", "  template: {spec: {containers: [{name: main, image: a}]}}\n", "restartPolicy: required: Never or OnFailure"},
		{"always", strings.Replace(pod, "Never", "Always", 1), "restartPolicy: required: Never or OnFailure"},
		{"no template", "  parallelism: 1\n", "spec.template.spec.containers: at least one container is required"},
		{"no image", strings.Replace(pod, ", image: a/b", "", 1), "containers[0].image: required"},
		{"placeholder", strings.Replace(pod, "a/b", "a/<SAMPLE IMAGE>", 1), `"a/<SAMPLE IMAGE>" is not a valid image reference (placeholder left in?)`},
		{"parallelism", pod + "  parallelism: -1\n", "spec.parallelism: want 0 to 10000, not -1"},
		{"completions", pod + "  completions: 0\n", "0 is a job that does nothing"},
		{"mode", pod + "  completionMode: indexed\n", `did you mean "Indexed"?`},
		{"indexed without completions", pod + "  completionMode: Indexed\n  parallelism: 2\n", "spec.completions: required when completionMode is Indexed"},
		{"limit", pod + "  backoffLimit: -1\n", "want a number from 0, not -1"},
		{"limit of an index", pod + indexed + "  backoffLimitPerIndex: -1\n", "want a number from 0, not -1"},
		{"limit without index", pod + "  backoffLimitPerIndex: 1\n", "goes with completionMode: Indexed"},
		{"limit of an index on failure", strings.Replace(pod, "Never", "OnFailure", 1) + indexed + "  backoffLimitPerIndex: 1\n", "must be Never with a backoffLimitPerIndex"},
		{"failed indexes alone", pod + indexed + "  maxFailedIndexes: 1\n", "goes with backoffLimitPerIndex"},
		{"failed indexes", pod + indexed + "  backoffLimitPerIndex: 1\n  maxFailedIndexes: 6\n", "want 0 to 5, the number of completions, not 6"},
		{"deadline", pod + "  activeDeadlineSeconds: 0\n", "want a number of seconds from 1, not 0"},
		{"time to live", pod + "  ttlSecondsAfterFinished: -1\n", "want a number of seconds from 0, not -1"},
		{"manager", pod + "  managedBy: kueue.x-k8s.io/multikueue\n", "is another controller"},
		{"replacement", pod + "  podReplacementPolicy: failed\n", `did you mean "Failed"?`},
		{"replacement with policy", rule("{action: Count, onExitCodes: {operator: In, values: [1]}}") + "  podReplacementPolicy: TerminatingOrFailed\n", "must be Failed with a podFailurePolicy"},
		{"policy on failure", strings.Replace(rule("{action: Count, onExitCodes: {operator: In, values: [1]}}"), "Never", "OnFailure", 1), "must be Never with a podFailurePolicy"},
		{"action", rule("{action: Fail, onExitCodes: {operator: In, values: [1]}}"), "is not one of FailJob, FailIndex, Ignore, Count"},
		{"no action", rule("{onExitCodes: {operator: In, values: [1]}}"), "action: required"},
		{"index", rule("{action: FailIndex, onExitCodes: {operator: In, values: [1]}}"), "FailIndex goes with backoffLimitPerIndex"},
		{"both", rule("{action: Count, onExitCodes: {operator: In, values: [1]}, onPodConditions: [{type: DisruptionTarget}]}"), "a rule has one of them"},
		{"neither", rule("{action: Count}"), "has neither onExitCodes nor onPodConditions"},
		{"operator", rule("{action: Count, onExitCodes: {operator: in, values: [1]}}"), `did you mean "In"?`},
		{"no operator", rule("{action: Count, onExitCodes: {values: [1]}}"), "required: In or NotIn"},
		{"zero", rule("{action: Count, onExitCodes: {operator: In, values: [0]}}"), "0 is no failure"},
		{"no values", rule("{action: Count, onExitCodes: {operator: In}}"), "want 1 to 255 exit codes, not 0"},
		{"order", rule("{action: Count, onExitCodes: {operator: In, values: [2, 1]}}"), "1 is behind 2"},
		{"twice", rule("{action: Count, onExitCodes: {operator: In, values: [2, 2]}}"), "2 is there twice"},
		{"container", rule("{action: Count, onExitCodes: {containerName: x, operator: In, values: [1]}}"), `the template has no container "x"`},
		{"condition", rule("{action: Count, onPodConditions: [{type: ConfigIssue}]}"), "warning: spec.podFailurePolicy.rules[0].onPodConditions[0].type: DisruptionTarget is the only condition"},
		{"status", rule(`{action: Count, onPodConditions: [{type: DisruptionTarget, status: "False"}]}`), "only conditions that are True"},
		{"success without index", pod + "  successPolicy: {rules: [{succeededCount: 1}]}\n", "goes with completionMode: Indexed"},
		{"no success rules", pod + indexed + "  successPolicy: {}\n", "want 1 to 20 rules, not 0"},
		{"empty success rule", pod + indexed + "  successPolicy: {rules: [{}]}\n", "has neither succeededIndexes nor succeededCount"},
		{"success count", pod + indexed + "  successPolicy: {rules: [{succeededIndexes: \"0-1\", succeededCount: 3}]}\n", "want 1 to 2, the number of indexes, not 3"},
		{"success index", pod + indexed + "  successPolicy: {rules: [{succeededIndexes: \"5\"}]}\n", `"5" is beyond the last index, 4`},
		{"success order", pod + indexed + "  successPolicy: {rules: [{succeededIndexes: \"2,1\"}]}\n", "indexes have to be in their order"},
		{"success text", pod + indexed + "  successPolicy: {rules: [{succeededIndexes: \"a\"}]}\n", `want indexes and ranges of them like "0,2-4", not "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), head+c.spec)
			assert.Contains(t, said, c.want)
		})
	}
	_, said := manifesttest.Read(t, Format(), strings.Replace(head, "name: j", "name: "+strings.Repeat("j", 62), 1)+pod+indexed)
	assert.Contains(t, said, "is too long: with an index it is the host name")
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+pod, head+pod+indexed+"  backoffLimitPerIndex: 1\n  successPolicy: {rules: [{succeededIndexes: \"0-1\"}]}\n",
		head+pod+"  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: NotIn, values: [1, 3]}}]}\n")
}
