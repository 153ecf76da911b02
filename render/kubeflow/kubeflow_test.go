package kubeflow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

type testSpec struct {
	Spec
	Replicas map[string]*ReplicaSpec `json:"replicaSpecs"`
}

// format is a kind of job as plain as one can be: Main decides.
func format() manifest.Format {
	k := &Kind{
		Name: "TestJob", Replicas: "replicaSpecs", Types: []string{"Main", "Side"}, Container: "main", PortName: "p", Port: 1234, Restart: OnFailure,
		Operator: "test", Prefix: "t", Early: map[string]repo.CleanupPods{"v1beta1": repo.CleanupRunning},
	}
	return k.Format(testSpec{}, func(o *manifest.Object) *repo.Job {
		j := k.Begin(o)
		var s testSpec
		j.Decode(&s)
		j.Take(&s.Spec, s.Replicas)
		j.Decides("Main")
		return j.Done()
	})
}

const (
	head     = "apiVersion: kubeflow.org/v1\nkind: TestJob\nmetadata: {name: j}\nspec:\n"
	older    = "apiVersion: kubeflow.org/v1beta1\nkind: TestJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {containers: [{name: main, image: a}]}}"
	plain    = "  replicaSpecs: {Main: {" + template + "}}\n"
	both     = "  replicaSpecs: {Main: {replicas: 2, " + template + "}, Side: {" + template + "}}\n"
)

func TestRunPolicy(t *testing.T) { // D.1
	j := manifesttest.Good(t, format(), head+plain+`  runPolicy:
    activeDeadlineSeconds: 90
    backoffLimit: 3
    suspend: true
    managedBy: kubeflow.org/training-operator
    schedulingPolicy: {minAvailable: 1, queue: q, priorityClass: high, scheduleTimeoutSeconds: 60}
`)
	assert.Equal(t, 90*time.Second, j.Deadline)
	assert.Equal(t, int32(3), *j.FailureBudget)
	assert.True(t, j.Suspend)
	assert.True(t, j.Gang)
	assert.Equal(t, time.Minute, j.StartDeadline)
	assert.Equal(t, "high", j.Roles[0].Template.Spec.PriorityClassName)
	assert.Equal(t, "q", j.Roles[0].Template.Annotations["scheduling.volcano.sh/queue-name"])

	j, _ = manifesttest.Read(t, format(), head+both+"  runPolicy: {schedulingPolicy: {minAvailable: 2}}\n")
	assert.False(t, j.Gang, "not all of them")
	j, _ = manifesttest.Read(t, format(), head+both+"  runPolicy: {schedulingPolicy: {minAvailable: 3}}\n")
	assert.True(t, j.Gang)

	j = manifesttest.Good(t, format(), head+plain)
	assert.Zero(t, j.Deadline)
	assert.Nil(t, j.FailureBudget)
	assert.False(t, j.Suspend)
	assert.False(t, j.Gang)
}

func TestCleanup(t *testing.T) { // D.1, D.5
	after := func(d time.Duration) repo.Cleanup { return repo.Cleanup{Pods: repo.CleanupAll, After: d} }
	for _, c := range []struct {
		policy string
		want   repo.Cleanup
	}{
		{"{}", repo.Cleanup{Pods: repo.CleanupNone}},
		{"{cleanPodPolicy: None}", repo.Cleanup{Pods: repo.CleanupNone}},
		{"{cleanPodPolicy: Running}", repo.Cleanup{Pods: repo.CleanupRunning}},
		{"{cleanPodPolicy: All}", after(0)},
		{"{ttlSecondsAfterFinished: 60}", after(time.Minute)},
		{"{ttlSecondsAfterFinished: 0}", after(0)},
		{"{cleanPodPolicy: Running, ttlSecondsAfterFinished: 60}", after(time.Minute)},
		{"{cleanPodPolicy: All, ttlSecondsAfterFinished: 60}", after(0)},
	} {
		assert.Equal(t, c.want, manifesttest.Good(t, format(), head+plain+"  runPolicy: "+c.policy+"\n").Cleanup, c.policy)
	}
	assert.Equal(t, repo.CleanupRunning, manifesttest.Good(t, format(), older+plain).Cleanup.Pods)
	assert.Equal(t, repo.CleanupAll, manifesttest.Good(t, format(), older+plain+"  cleanPodPolicy: All\n").Cleanup.Pods)
}

func TestPolicyDirectlyUnderSpec(t *testing.T) { // D, head
	const fields = "  ttlSecondsAfterFinished: 5\n  activeDeadlineSeconds: 6\n  backoffLimit: 7\n"
	check := func(j *repo.Job) {
		require.NotNil(t, j)
		assert.Equal(t, repo.Cleanup{Pods: repo.CleanupAll, After: 5 * time.Second}, j.Cleanup)
		assert.Equal(t, 6*time.Second, j.Deadline)
		assert.Equal(t, int32(7), *j.FailureBudget)
	}
	check(manifesttest.Good(t, format(), older+plain+fields))
	j, said := manifesttest.Read(t, format(), head+plain+fields)
	check(j)
	assert.Contains(t, said, "f.yaml:8:3: warning: spec.backoffLimit: the place of the first operators; read as spec.runPolicy.backoffLimit")
	j, said = manifesttest.Read(t, format(), head+plain+"  backoffLimit: 7\n  runPolicy: {backoffLimit: 1}\n")
	assert.Equal(t, int32(1), *j.FailureBudget)
	assert.Contains(t, said, "ignored: spec.runPolicy.backoffLimit is what counts")
}

func TestRestartPolicies(t *testing.T) { // D.6
	for _, c := range []struct {
		main, side           string
		mainLimit, sideLimit int32
		codes                [][]string // roles of the exit codes' rules
	}{
		{"Never", "Never", 0, 0, nil},
		{"OnFailure", "Always", repo.Unlimited, repo.Always, nil},
		{"ExitCode", "ExitCode", repo.Unlimited, repo.Unlimited, [][]string{nil, nil}},
		{"ExitCode", "Never", repo.Unlimited, 0, [][]string{{"main"}, {"main"}}},
		{"OnFailure", "ExitCode", repo.Unlimited, repo.Unlimited, [][]string{{"side"}, {"side"}}},
	} {
		t.Run(c.main+" "+c.side, func(t *testing.T) {
			j := manifesttest.Good(t, format(), head+"  replicaSpecs: {Main: {restartPolicy: "+c.main+", "+template+"}, Side: {restartPolicy: "+c.side+", "+template+"}}\n")
			assert.Equal(t, c.mainLimit, j.Role("main").Retry.Limit)
			assert.Equal(t, c.sideLimit, j.Role("side").Retry.Limit)
			for i := range j.Roles {
				assert.Equal(t, repo.ByFault, j.Roles[i].Retry.Mode)
				assert.Equal(t, 10*time.Second, j.Roles[i].Retry.Backoff.Initial)
				assert.Equal(t, "Never", string(j.Roles[i].Template.Spec.RestartPolicy))
			}
			var codes [][]string
			for _, r := range j.Rules {
				if r.Container == "main" {
					codes = append(codes, r.Roles)
				}
			}
			assert.Equal(t, c.codes, codes)
		})
	}
	j, said := manifesttest.Read(t, format(), head+"  replicaSpecs: {Main: {restartPolicy: Always, "+template+"}}\n")
	assert.Contains(t, said, "Always is read as OnFailure")
	assert.Equal(t, repo.Unlimited, j.Roles[0].Retry.Limit)
}

func TestProblems(t *testing.T) { // D.2
	for _, c := range []struct{ name, spec, want string }{
		{"nothing", "  {}\n", "f.yaml:4:1: spec.replicaSpecs: required: TestJobSpec is not valid"},
		{"empty map", "  replicaSpecs: {}\n", "f.yaml:5:3: spec.replicaSpecs: required: TestJobSpec is not valid"},
		{"type", "  replicaSpecs: {Mian: {" + template + "}}\n", `TestReplicaType is Mian but must be one of [Main Side]; did you mean "Main"?`},
		{"restart policy", "  replicaSpecs: {Main: {restartPolicy: Exitcode, " + template + "}}\n", `did you mean "ExitCode"?`},
		{"replicas", "  replicaSpecs: {Main: {replicas: -1, " + template + "}}\n", "want 0 to 10000, not -1"},
		{"deadline", plain + "  runPolicy: {activeDeadlineSeconds: 0}\n", "want a number of seconds from 1, not 0"},
		{"limit", plain + "  runPolicy: {backoffLimit: -1}\n", "want a number from 0, not -1"},
		{"limit in its early place", plain + "  backoffLimit: -1\n", "spec.backoffLimit: want a number from 0, not -1"},
		{"time to live", plain + "  runPolicy: {ttlSecondsAfterFinished: -1}\n", "want a number of seconds from 0, not -1"},
		{"clean-up", plain + "  runPolicy: {cleanPodPolicy: all}\n", `did you mean "All"?`},
		{"another manager", plain + "  runPolicy: {managedBy: me}\n", `"me" is not one of kubeflow.org/training-operator, kueue.x-k8s.io/multikueue`},
		{"kueue", plain + "  runPolicy: {managedBy: kueue.x-k8s.io/multikueue}\n", "sends jobs to other clusters"},
		{"too many", plain + "  runPolicy: {schedulingPolicy: {minAvailable: 2}}\n", "want 0 to 1, the number of replicas, not 2"},
		{"some of the gang", both + "  runPolicy: {schedulingPolicy: {minAvailable: 2}}\n", "2 of 3 replicas: only all replicas can be started together"},
		{"min resources", plain + "  runPolicy: {schedulingPolicy: {minResources: {cpu: 1}}}\n", "warning: spec.runPolicy.schedulingPolicy.minResources: ignored"},
		{"policy of the template", "  replicaSpecs: {Main: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a}]}}}}\n", "overridden by the replica spec's restartPolicy, which is OnFailure"},
		{"unknown field", plain + "  runPolicy: {cleanupPodPolicy: All}\n", `unknown field ignored; did you mean "cleanPodPolicy"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, format(), head+c.spec)
			assert.Contains(t, said, c.want)
		})
	}
	_, said := manifesttest.Read(t, format(), "apiVersion: kubeflow.org/v1\nkind: TestJob\nmetadata: {name: 3d}\nspec:\n"+plain)
	assert.Contains(t, said, "TestJob name is invalid: a DNS-1035 label")
	j, said := manifesttest.Read(t, format(), older+"  ReplicaSpecs: {main: {"+template+"}}\n")
	assert.NotNil(t, j, "before there were schemas, keys were taken in any case")
	assert.Contains(t, said, `written "ReplicaSpecs"; read as "replicaSpecs"`)
}

func TestPorts(t *testing.T) { // D.1
	for containers, want := range map[string]int32{
		"[{name: main, image: a}]": 1234,
		"[{name: main, image: a, ports: [{containerPort: 80}, {name: p, containerPort: 7}]}]": 7,
		"[{name: x, image: a, ports: [{name: p, containerPort: 7}]}, {name: main, image: a}]": 1234,
	} {
		j := manifesttest.Good(t, format(), head+"  replicaSpecs: {Main: {template: {spec: {containers: "+containers+"}}}}\n")
		assert.Equal(t, want, j.Roles[0].Port, containers)
	}
}

func TestLiteral(t *testing.T) {
	for _, text := range []string{"", "plain", `{{.Job}}`, "a\"b{{`\n}}"} {
		job := &repo.Job{Roles: []repo.Role{{Name: "main", Replicas: 1}}}
		job.Name = "j"
		job.Roles[0].Template.Spec.Containers = append(job.Roles[0].Template.Spec.Containers, manifesttest.Good(t, format(), head+plain).Roles[0].Template.Spec.Containers...)
		job.Roles[0].Env.Annotations = map[string]string{"a": Literal(text)}
		assert.Equal(t, text, manifesttest.Pod(t, job, "main", 0).Annotations["a"])
	}
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, format(), head+plain, older+both+"  cleanPodPolicy: All\n", head+both+"  runPolicy: {ttlSecondsAfterFinished: 1, schedulingPolicy: {queue: q}}\n")
}
