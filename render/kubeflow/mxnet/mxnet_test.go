package mxnet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: kubeflow.org/v1\nkind: MXJob\nmetadata: {name: j}\nspec:\n  jobMode: MXTrain\n"
	template = "template: {spec: {containers: [{name: mxnet, image: a/b}, {name: side, image: c}]}}"
	dist     = "  mxReplicaSpecs: {Scheduler: {" + template + "}, Server: {" + template + "}, Worker: {replicas: 2, " + template + "}}\n"
)

func TestVariables(t *testing.T) { // D.4
	const config = `MX_CONFIG={"cluster":{"scheduler":[{"url":"scheduler-0.example","port":9091}],"server":[{"url":"server-0.example","port":9091}],` +
		`"worker":[{"url":"worker-0.example","port":9091},{"url":"worker-1.example","port":9091}]},"labels":{"scheduler":"","server":"","worker":""},`
	common := []string{"DMLC_PS_ROOT_PORT=9091", "DMLC_PS_ROOT_URI=scheduler-0.example", "DMLC_NUM_SERVER=1", "DMLC_NUM_WORKER=2"}
	j := manifesttest.Good(t, Format(), head+dist)
	for _, container := range []string{"mxnet", "side"} {
		assert.Equal(t, append(append([]string{config + `"task":{"type":"worker","index":1}}`}, common...), "DMLC_ROLE=worker", "DMLC_USE_KUBERNETES=1", "DMLC_WORKER_ID=1"),
			manifesttest.Env(t, manifesttest.Pod(t, j, "worker", 1), container))
		assert.Equal(t, append(append([]string{config + `"task":{"type":"server","index":0}}`}, common...), "DMLC_ROLE=server", "DMLC_USE_KUBERNETES=1"),
			manifesttest.Env(t, manifesttest.Pod(t, j, "server", 0), container))
	}
	assert.Equal(t, "master", manifesttest.Pod(t, j, "server", 0).Labels["training.kubeflow.org/job-role"])
	assert.NotContains(t, manifesttest.Pod(t, j, "scheduler", 0).Labels, "training.kubeflow.org/job-role")
}

func TestTuning(t *testing.T) { // D.4
	j, said := manifesttest.Read(t, Format(), `apiVersion: kubeflow.org/v1
kind: MXJob
metadata: {name: j}
spec:
  jobMode: MXTune
  mxReplicaSpecs:
    TunerTracker: {label: cpu, `+template+`}
    TunerServer: {template: {metadata: {annotations: {tuner-server-key: "2080{{ti}}\""}}, spec: {containers: [{name: mxnet, image: a}]}}}
    Tuner: {`+template+`}
`)
	require.NotNil(t, j, said)
	assert.Contains(t, said, "here it has succeeded when every Tuner has")
	env := manifesttest.Env(t, manifesttest.Pod(t, j, "tuner", 0), "mxnet")
	assert.Contains(t, env[0], `"labels":{"tuner":"","tunerserver":"2080{{ti}}\"","tunertracker":"cpu"},"task":{"type":"tuner","index":0}}`)
	assert.Equal(t, []string{"DMLC_PS_ROOT_PORT=0", "DMLC_PS_ROOT_URI=", "DMLC_NUM_SERVER=0", "DMLC_NUM_WORKER=0", "DMLC_ROLE=tuner", "DMLC_USE_KUBERNETES=1"}, env[1:])
	assert.False(t, j.Role("tuner").Daemon)
	assert.True(t, j.Role("tunerserver").Daemon)
}

func TestSuccess(t *testing.T) { // D.7
	j := manifesttest.Good(t, Format(), head+dist)
	assert.Equal(t, repo.CleanupNone, j.Cleanup.Pods)
	for i := range j.Roles {
		r := &j.Roles[i]
		assert.Equal(t, r.Name != "scheduler", r.Daemon, r.Name)
		assert.Equal(t, int32(1), r.MinFailed)
		assert.Zero(t, r.Retry.Limit, "Never is the default")
	}
	alone := manifesttest.Good(t, Format(), head+"  mxReplicaSpecs: {worker: {"+template+"}}\n")
	assert.False(t, alone.Role("worker").Daemon)
	assert.Equal(t, int32(1), alone.Role("worker").MinSucceeded)
}

func TestEarly(t *testing.T) { // D, head
	for version, want := range map[string]repo.CleanupPods{"v1alpha2": repo.CleanupRunning, "v1beta1": repo.CleanupAll} {
		j := manifesttest.Good(t, Format(), "apiVersion: kubeflow.org/"+version+"\nkind: MXJob\nmetadata: {name: j}\nspec:\n  jobMode: MXTrain\n"+dist)
		assert.Equal(t, want, j.Cleanup.Pods)
		assert.Equal(t, "server", manifesttest.Pod(t, j, "server", 0).Labels["mxnet-replica-type"])
	}
}

func TestProblems(t *testing.T) { // D.2
	for _, c := range []struct{ name, file, want string }{
		{"no mode", "apiVersion: kubeflow.org/v1\nkind: MXJob\nmetadata: {name: j}\nspec:\n" + dist, "spec.jobMode: required, one of MXTrain, MXTune"},
		{"mode", "apiVersion: kubeflow.org/v1\nkind: MXJob\nmetadata: {name: j}\nspec:\n  jobMode: mxtrain\n" + dist, `warning: spec.jobMode: "mxtrain" is not one of`},
		{"two schedulers", head + "  mxReplicaSpecs: {Scheduler: {replicas: 2, " + template + "}}\n", "more than 1 scheduler found"},
		{"workers alone", head + "  mxReplicaSpecs: {Worker: {replicas: 2, " + template + "}}\n", "there is no Scheduler, and upstream such a job never ends"},
		{"servers alone", head + "  mxReplicaSpecs: {Server: {" + template + "}}\n", "no Scheduler, Worker or Tuner"},
		{"no mxnet", head + "  mxReplicaSpecs: {Scheduler: {template: {spec: {containers: [{name: a, image: a}]}}}}\n", "There is no container named mxnet in Scheduler"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), c.file)
			assert.Contains(t, said, c.want)
		})
	}
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+dist, head+"  mxReplicaSpecs: {Worker: {template: {metadata: {annotations: {tuner-server-key: \"{{\"}}, spec: {containers: [{name: mxnet, image: a}]}}}}\n")
}
