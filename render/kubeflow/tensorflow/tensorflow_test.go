package tensorflow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {containers: [{name: tensorflow, image: a/b}]}}"
)

// job reads the replicas of a job, each written as TYPE: {…}.
func job(t *testing.T, replicas string) *repo.Job {
	t.Helper()
	return manifesttest.Good(t, Format(), head+"  tfReplicaSpecs: {"+replicas+"}\n")
}

func TestDefaults(t *testing.T) { // D.1
	j := job(t, "Worker: {"+template+"}")
	assert.Equal(t, repo.AllRoles, j.Success)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupNone}, j.Cleanup)
	assert.Nil(t, j.FailureBudget)
	assert.False(t, j.Gang)
	require.Len(t, j.Roles, 1)
	r := j.Roles[0]
	assert.Equal(t, "worker", r.Name)
	assert.Equal(t, int32(1), r.Replicas)
	assert.Equal(t, int32(2222), r.Port)
	assert.Equal(t, "tensorflow", r.MainContainer)
	assert.Zero(t, r.Retry.Limit, "Never")
	c := r.Template.Spec.Containers[0]
	require.Len(t, c.Ports, 1)
	assert.Equal(t, "tfjob-port", c.Ports[0].Name)
	assert.Empty(t, manifesttest.Env(t, manifesttest.Pod(t, j, "worker", 0), "tensorflow"), "D.4: one replica has no TF_CONFIG")
}

func TestConfig(t *testing.T) { // D.4
	j := job(t, `worker: {replicas: 2, `+template+`}, PS: {template: {spec: {containers: [
    {name: side, image: a}, {name: tensorflow, image: a, env: [{name: TF_CONFIG, value: mine}], ports: [{name: tfjob-port, containerPort: 3333}]}]}}}`)
	const cluster = `TF_CONFIG={"cluster":{"ps":["ps-0.example:3333"],"worker":["worker-0.example:2222","worker-1.example:2222"]},`
	p := manifesttest.Pod(t, j, "worker", 1)
	assert.Equal(t, []string{cluster + `"task":{"type":"worker","index":1},"environment":"cloud"}`}, manifesttest.Env(t, p, "tensorflow"))
	p = manifesttest.Pod(t, j, "ps", 0)
	assert.Equal(t, []string{"TF_CONFIG=mine", cluster + `"task":{"type":"ps","index":0},"environment":"cloud"}`}, manifesttest.Env(t, p, "tensorflow"), "ours wins")
	assert.Empty(t, manifesttest.Env(t, p, "side"))
	assert.Len(t, p.Spec.Containers[1].Ports, 1)
}

func TestDynamicWorkers(t *testing.T) { // D.4, D.7
	j := manifesttest.Good(t, Format(), head+"  enableDynamicWorker: true\n  tfReplicaSpecs: {Chief: {"+template+"}, Worker: {replicas: 3, "+template+"}, PS: {replicas: 2, "+template+"}}\n")
	for _, c := range []struct {
		role  string
		index int32
		want  string
	}{
		{"worker", 1, `{"cluster":{"worker":{"1":"worker-1.example:2222"},"ps":["ps-0.example:2222","ps-1.example:2222"]},"task":{"type":"worker","index":1}}`},
		{"ps", 1, `{"cluster":{"worker":{},"ps":["ps-1.example:2222"]},"task":{"type":"ps","index":1}}`},
		{"chief", 0, `{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}`},
	} {
		assert.Equal(t, []string{"TF_CONFIG=" + c.want}, manifesttest.Env(t, manifesttest.Pod(t, j, c.role, c.index), "tensorflow"))
	}
	assert.Equal(t, repo.Never, j.Role("worker").MinFailed, "a worker that fails does not fail the job")
	assert.Equal(t, int32(1), j.Role("ps").MinFailed)
	assert.True(t, j.Rescale)
}

func TestSuccess(t *testing.T) { // D.7
	first := []repo.SuccessRule{{Indexes: []repo.CodeRange{{Min: 0, Max: 0}}, Count: 1}}
	two := "{replicas: 2, " + template + "}"
	for _, c := range []struct {
		name, policy, replicas, decides string
		minSucceeded                    int32
		when                            []repo.SuccessRule
	}{
		{"chief", "", "Chief: {" + template + "}, Worker: " + two, "chief", 1, nil},
		{"master", "", "MASTER: " + two + ", Worker: " + two, "master", 2, nil},
		{"worker 0", "", "Worker: " + two + ", PS: " + two, "worker", 1, first},
		{"all workers", "AllWorkers", "Worker: " + two + ", Evaluator: " + two, "worker", 2, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := manifesttest.Good(t, Format(), head+"  successPolicy: \""+c.policy+"\"\n  tfReplicaSpecs: {"+c.replicas+"}\n")
			for i := range j.Roles {
				r := &j.Roles[i]
				assert.Equal(t, r.Name != c.decides, r.Daemon, r.Name)
				assert.Equal(t, int32(1), r.MinFailed, "any replica's failure fails the job")
			}
			assert.Equal(t, c.minSucceeded, j.Role(c.decides).MinSucceeded)
			assert.Equal(t, c.when, j.Role(c.decides).SucceedWhen)
		})
	}
}

func TestLabels(t *testing.T) { // D.3
	const prefix = "training.kubeflow.org/"
	j := job(t, "Worker: {replicas: 2, "+template+"}, PS: {"+template+"}")
	for _, c := range []struct {
		role  string
		index int32
		want  map[string]string
	}{
		{"worker", 0, map[string]string{"operator-name": "tfjob-controller", "job-name": "j", "replica-type": "worker", "replica-index": "0", "job-role": "master"}},
		{"worker", 1, map[string]string{"replica-index": "1", "job-role": ""}},
		{"ps", 0, map[string]string{"replica-type": "ps", "job-role": ""}},
	} {
		p := manifesttest.Pod(t, j, c.role, c.index)
		for label, want := range c.want {
			assert.Equal(t, want, p.Labels[prefix+label], "%s-%d %s", c.role, c.index, label)
		}
	}
	chief := job(t, "Worker: {"+template+"}, chief: {"+template+"}")
	assert.Equal(t, "master", manifesttest.Pod(t, chief, "chief", 0).Labels[prefix+"job-role"])
	assert.NotContains(t, manifesttest.Pod(t, chief, "worker", 0).Labels, prefix+"job-role")
}

func TestEarly(t *testing.T) { // D, head
	for _, version := range []string{"v1alpha2", "v1beta1", "v1beta2"} {
		j := manifesttest.Good(t, Format(), "apiVersion: kubeflow.org/"+version+"\nkind: TFJob\nmetadata: {name: j}\nspec:\n  backoffLimit: 3\n  tfReplicaSpecs: {Worker: {restartPolicy: ExitCode, "+template+"}}\n")
		assert.Equal(t, repo.CleanupRunning, j.Cleanup.Pods)
		assert.Equal(t, int32(3), *j.FailureBudget)
		labels := manifesttest.Pod(t, j, "worker", 0).Labels
		for label, want := range map[string]string{"group-name": "kubeflow.org", "tf-job-name": "j", "tf-replica-type": "worker", "tf-replica-index": "0", "tf-job-role": "master", "tf_job_name": "j"} {
			assert.Equal(t, want, labels[label], label)
		}
		var classes []repo.Class
		for _, r := range j.Rules {
			if r.Container == "tensorflow" {
				classes = append(classes, r.Class)
			}
		}
		assert.Equal(t, []repo.Class{repo.Transient, repo.Permanent}, classes, "the few retryable codes first")
	}
}

func TestProblems(t *testing.T) { // D.2
	for _, c := range []struct{ name, spec, want string }{
		{"no replicas", "  successPolicy: AllWorkers\n", "required: TFJobSpec is not valid"},
		{"no containers", "  tfReplicaSpecs: {Worker: {}}\n", "containers definition expected in Worker"},
		{"nothing written", "  tfReplicaSpecs: {Worker: }\n", "containers definition expected in Worker"},
		{"no image", "  tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow}]}}}}\n", "Image is undefined in the container of Worker"},
		{"no tensorflow", "  tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tf, image: a}]}}}}\n", "There is no container named tensorflow in Worker"},
		{"two chiefs", "  tfReplicaSpecs: {Chief: {" + template + "}, Master: {" + template + "}}\n", "more than 1 chief/master found"},
		{"twice", "  tfReplicaSpecs: {worker: {" + template + "}, Worker: {" + template + "}}\n", "two replica specs of type Worker"},
		{"no worker", "  tfReplicaSpecs: {Worker: {replicas: 0, " + template + "}}\n", "0 replicas never succeed"},
		{"success policy", "  successPolicy: AllWorker\n  tfReplicaSpecs: {Worker: {" + template + "}}\n", `did you mean "AllWorkers"?`},
		{"unknown type", "  tfReplicaSpecs: {Worker: {" + template + "}, Chef: {" + template + "}}\n", `did you mean "Chief"?`},
		{"servers alone", "  tfReplicaSpecs: {PS: {" + template + "}}\n", "neither a Chief nor a Worker"},
		{"unknown field", "  tfReplicaSpec: {}\n  tfReplicaSpecs: {Worker: {" + template + "}}\n", `unknown field ignored; did you mean "tfReplicaSpecs"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), head+c.spec)
			assert.Contains(t, said, c.want)
		})
	}
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+"  tfReplicaSpecs: {Worker: {"+template+"}}\n",
		head+"  enableDynamicWorker: true\n  runPolicy: {backoffLimit: 1, schedulingPolicy: {minAvailable: 2}}\n  tfReplicaSpecs: {ps: {restartPolicy: ExitCode, replicas: 2, "+template+"}, WORKER: {"+template+"}}\n")
}
