package jobset

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head    = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec:\n"
	pod     = "template: {spec: {containers: [{name: main, image: a}]}}"
	leader  = "{name: leader, template: {spec: {backoffLimit: 0, " + pod + "}}}"
	workers = "{name: workers, replicas: 2, groupName: gpu, template: {spec: {parallelism: 3, completions: 3, backoffLimit: 0, " + pod + "}}}"
	both    = "  replicatedJobs: [" + leader + ", " + workers + "]\n"
)

func TestRoles(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+both)
	assert.Equal(t, repo.AllRoles, j.Success)
	assert.Equal(t, repo.Retry{Mode: repo.ByCount}, j.Retry)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupRunning}, j.Cleanup)
	assert.Nil(t, j.FailureBudget)
	require.Len(t, j.Roles, 2)
	w := j.Roles[1]
	assert.Equal(t, "workers", w.Name)
	assert.Equal(t, int32(6), w.Replicas)
	assert.Equal(t, int32(6), w.MinSucceeded)
	assert.Equal(t, int32(6), w.Parallelism)
	assert.Equal(t, int32(1), w.MinFailed)
	assert.Zero(t, w.Retry.Limit)

	p := manifesttest.Pod(t, j, "workers", 5)
	assert.Equal(t, []string{"JOBSET_JOB_INDEX=1", "JOB_COMPLETION_INDEX=2"}, manifesttest.Env(t, p, "main"))
	assert.Equal(t, "j-workers-1-2", p.Spec.Hostname)
	assert.Equal(t, "j", p.Spec.Subdomain)
	for k, want := range map[string]string{
		"jobset-name": "j", "replicatedjob-name": "workers", "replicatedjob-replicas": "2", "global-replicas": "3", "job-index": "1",
		"job-global-index": "2", "restart-attempt": "1", "group-name": "gpu", "group-replicas": "2", "job-group-index": "1",
	} {
		assert.Equal(t, want, p.Labels["jobset.sigs.k8s.io/"+k], k)
		assert.Equal(t, want, p.Annotations["jobset.sigs.k8s.io/"+k], k)
	}
	assert.Equal(t, "2", p.Labels["batch.kubernetes.io/job-completion-index"])
	assert.Equal(t, "j-workers-1", p.Labels["batch.kubernetes.io/job-name"])
	assert.Equal(t, "default", manifesttest.Pod(t, j, "leader", 0).Labels["jobset.sigs.k8s.io/group-name"])
	require.Len(t, j.Objects, 1)
	assert.JSONEq(t, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"j"},"spec":{"clusterIP":"None","publishNotReadyAddresses":true,`+
		`"selector":{"jobset.sigs.k8s.io/jobset-name":"j"}},"status":{"loadBalancer":{}}}`, string(j.Objects[0].Raw))
}

func TestNetworkAndTheRest(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+both+"  network: {subdomain: net, publishNotReadyAddresses: false}\n  coordinator: {replicatedJob: workers, jobIndex: 1, podIndex: 2}\n  suspend: true\n  ttlSecondsAfterFinished: 5\n")
	assert.Equal(t, "net", j.Objects[0].Name)
	assert.Equal(t, "j-workers-1-2.net", manifesttest.Pod(t, j, "leader", 0).Labels["jobset.sigs.k8s.io/coordinator"])
	assert.True(t, j.Suspend)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupAll, After: 5 * time.Second}, j.Cleanup)
	j = manifesttest.Good(t, Format(), head+both+"  network: {enableDNSHostnames: false}\n")
	assert.Empty(t, j.Objects)
	assert.Equal(t, "leader-0", manifesttest.Pod(t, j, "leader", 0).Spec.Hostname)
}

func TestSuccessPolicy(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+both+"  successPolicy: {operator: All, targetReplicatedJobs: [leader]}\n")
	assert.Equal(t, repo.AllRoles, j.Success)
	assert.False(t, j.Role("leader").Daemon)
	assert.True(t, j.Role("workers").Daemon)
	assert.Equal(t, int32(1), j.Role("workers").MinFailed, "a job that fails fails the set")
	j = manifesttest.Good(t, Format(), head+both+"  successPolicy: {operator: Any}\n")
	assert.Equal(t, repo.AnyRole, j.Success)
	assert.Equal(t, int32(1), j.Role("leader").MinSucceeded)
	assert.Equal(t, []repo.SuccessRule{{Indexes: []repo.CodeRange{{Min: 0, Max: 2}}}, {Indexes: []repo.CodeRange{{Min: 3, Max: 5}}}}, j.Role("workers").SucceedWhen, "all pods of one job")
}

func TestLimits(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+"  replicatedJobs: [{name: a, template: {spec: {parallelism: 2, completions: 2, backoffLimit: 3, "+pod+"}}}]\n")
	assert.Equal(t, int32(3), *j.FailureBudget, "of the only job")
	assert.Equal(t, repo.Unlimited, j.Roles[0].Retry.Limit)
	j, said := manifesttest.Read(t, Format(), head+strings.Replace(both, "completions: 3, backoffLimit: 0", "completions: 3, backoffLimit: 2", 1))
	require.NotNil(t, j, said)
	assert.Contains(t, said, "2 for each pod")
	assert.Equal(t, int32(2), j.Role("workers").Retry.Limit)
	assert.Equal(t, int32(6), manifesttest.Good(t, Format(), head+strings.Replace(both, "backoffLimit: 0, ", "", 1)).Role("leader").Retry.Limit)
}

func TestFailurePolicy(t *testing.T) {
	policy := "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}, backoffLimit: 0"
	text := head + strings.ReplaceAll(strings.ReplaceAll(both, "backoffLimit: 0", policy), "{spec: {containers", "{spec: {restartPolicy: Never, containers")
	rule := func(role string, class repo.Class, free bool) repo.FailureRule {
		return repo.FailureRule{Name: "PodFailurePolicy", Roles: []string{role}, ExitCodes: []repo.CodeRange{{Min: 42, Max: 42}}, Class: class, Free: free, FailRun: true}
	}
	j := manifesttest.Good(t, Format(), text+"  failurePolicy: {maxRestarts: 3}\n")
	assert.Equal(t, repo.Retry{Limit: 3, Mode: repo.ByCount}, j.Retry)
	assert.Equal(t, []repo.FailureRule{rule("leader", repo.Unknown, false), rule("workers", repo.Unknown, false)}, j.Rules[:2], "restarts the set")

	j = manifesttest.Good(t, Format(), text+`  failurePolicy:
    maxRestarts: 3
    restartStrategy: BlockingRecreate
    rules:
    - {name: broken, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy], targetReplicatedJobs: [leader]}
    - {action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]}
    - {name: lost, action: FailJobSet, targetReplicatedJobs: [leader]}
`)
	assert.Equal(t, repo.ByFault, j.Retry.Mode)
	assert.Equal(t, []repo.FailureRule{rule("leader", repo.Permanent, false), rule("workers", repo.Transient, true)}, j.Rules[:2])
	assert.Equal(t, repo.FailureRule{Name: "lost", Roles: []string{"leader"}, Class: repo.Permanent, FailRun: true}, j.Rules[len(j.Rules)-1], "behind what is nobody's fault")
}

func TestProblems(t *testing.T) {
	one := func(spec string) string {
		return head + "  replicatedJobs: [{name: a, replicas: 2, template: {spec: {" + spec + ", " + pod + "}}}]\n"
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", head + "  suspend: true\n", "want 1 to 100 replicated jobs, not 0"},
		{"unknown field", head + both + "  replicatedJob: []\n", `unknown field; did you mean "replicatedJobs"?`},
		{"twice", head + "  replicatedJobs: [" + leader + ", " + leader + "]\n", "defined twice"},
		{"name", head + strings.Replace(both, "name: leader", "name: Leader", 1), "lower-case"},
		{"replicas", head + strings.Replace(both, "replicas: 2", "replicas: 0", 1), "want at least 1"},
		{"too many", head + strings.Replace(both, "replicas: 2", "replicas: 9999", 1), "at most 10000 pods"},
		{"claims", head + both + "  volumeClaimPolicies: [{}]\n", "spec.volumeClaimPolicies: not taken"},
		{"manager", head + both + "  managedBy: acme.io/x\n", "is another controller"},
		{"order", head + both + "  startupPolicy: {startupPolicyOrder: InOrder}\n", "warning: spec.startupPolicy.startupPolicyOrder: InOrder is read as AnyOrder"},
		{"waits for readiness", head + strings.Replace(both, "name: workers", "name: workers, dependsOn: [{name: leader, status: Ready}]", 1), "not waited for"},
		{"waits for completion", head + strings.Replace(both, "name: workers", "name: workers, dependsOn: [{name: leader, status: Complete}]", 1), "not taken: all replicated jobs start together"},
		{"waits for nobody", head + strings.Replace(both, "name: workers", "name: workers, dependsOn: [{name: x, status: Ready}]", 1), `no replicated job before this one is named "x"`},
		{"placement", strings.Replace(head, "name: j", "name: j, annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}", 1) + both, "ignored: pods are placed"},
		{"deadline", one("activeDeadlineSeconds: 5"), "not taken: a run has one deadline"},
		{"ttl", one("ttlSecondsAfterFinished: 5"), "warning: spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished: ignored"},
		{"suspend", one("suspend: true"), "spec.suspend of the JobSet is what counts"},
		{"paused", one("completions: 2, parallelism: 0"), "0 is not taken of one job of a set"},
		{"queue", one("completionMode: NonIndexed, parallelism: 2"), "a run counts tasks, not jobs"},
		{"success of a job", one("completions: 2, successPolicy: {rules: [{succeededCount: 1}]}"), "a run counts tasks, not jobs"},
		{"operator", head + both + "  successPolicy: {operator: any}\n", `did you mean "Any"?`},
		{"target", head + both + "  successPolicy: {operator: Any, targetReplicatedJobs: [x]}\n", `no replicated job is named "x"`},
		{"restarts", head + both + "  failurePolicy: {maxRestarts: -1}\n", "want a number from 0, not -1"},
		{"strategy", head + both + "  failurePolicy: {restartStrategy: InPlaceRestart}\n", "InPlaceRestart is not taken"},
		{"restart of a job", head + both + "  failurePolicy: {rules: [{action: RestartJob}]}\n", "RestartJob is not taken"},
		{"reason", head + both + "  failurePolicy: {rules: [{action: FailJobSet, onJobFailureReasons: [BackoffLimit]}]}\n", "is not one of BackoffLimitExceeded"},
		{"pattern", head + both + "  failurePolicy: {rules: [{action: FailJobSet, onJobFailureMessagePatterns: [x]}]}\n", "not taken: there are no Jobs here"},
		{"limit and rule", head + strings.Replace(both, "backoffLimit: 0, ", "", 1) + "  failurePolicy: {rules: [{action: FailJobSet}]}\n", "is taken of jobs whose backoffLimit is 0"},
		{"coordinator", head + both + "  coordinator: {replicatedJob: workers, jobIndex: 2}\n", `"workers" has no job 2`},
		{"coordinator's pod", head + both + "  coordinator: {replicatedJob: workers, podIndex: 3}\n", "have no pod 3"},
		{"subdomain", head + both + "  network: {subdomain: 1a}\n", "is the name of a Service"},
		{"long name", strings.Replace(head, "name: j", "name: "+strings.Repeat("j", 60), 1) + both, "would be the host name of a pod"},
		{"group", head + strings.Replace(both, "gpu", "'{{.Run}}'", 1), "lower-case"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), c.text)
			assert.Contains(t, said, c.want)
		})
	}
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+both, head+both+"  failurePolicy: {maxRestarts: 1, rules: [{action: FailJobSet}]}\n  coordinator: {replicatedJob: leader}\n",
		head+both+"  successPolicy: {operator: Any}\n")
}
