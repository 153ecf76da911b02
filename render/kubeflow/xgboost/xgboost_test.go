package xgboost

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: kubeflow.org/v1\nkind: XGBoostJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {containers: [{name: xgboost, image: a/b}, {name: side, image: c}]}}"
	pair     = "  xgbReplicaSpecs: {Master: {replicas: 1, " + template + "}, Worker: {replicas: 2, " + template + "}}\n"
)

func TestVariables(t *testing.T) {
	want := func(rank string) []string {
		return []string{"MASTER_PORT=9999", "MASTER_ADDR=master-0.example", "WORLD_SIZE=3", "RANK=" + rank, "PYTHONUNBUFFERED=1",
			"WORKER_PORT=9999", "WORKER_ADDRS=worker-0.example,worker-1.example"}
	}
	j := manifesttest.Good(t, Format(), head+pair)
	for _, container := range []string{"xgboost", "side"} {
		assert.Equal(t, want("0"), manifesttest.Env(t, manifesttest.Pod(t, j, "master", 0), container))
		assert.Equal(t, want("2"), manifesttest.Env(t, manifesttest.Pod(t, j, "worker", 1), container))
	}
	j = manifesttest.Good(t, Format(), head+"  xgbReplicaSpecs: {Master: {"+template+"}}\n")
	assert.Equal(t, []string{"MASTER_PORT=9999", "MASTER_ADDR=master-0.example", "WORLD_SIZE=1", "RANK=0", "PYTHONUNBUFFERED=1"},
		manifesttest.Env(t, manifesttest.Pod(t, j, "master", 0), "xgboost"), "LightGBM's are for several replicas")
}

func TestSuccess(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+pair)
	assert.False(t, j.Role("master").Daemon)
	assert.True(t, j.Role("worker").Daemon)
	for i := range j.Roles {
		assert.Equal(t, int32(1), j.Roles[i].MinFailed)
		assert.Zero(t, j.Roles[i].Retry.Limit, "Never is the default")
		assert.Equal(t, "xgboostjob-controller", manifesttest.Pod(t, j, j.Roles[i].Name, 0).Labels["training.kubeflow.org/operator-name"])
	}
	assert.Equal(t, "master", manifesttest.Pod(t, j, "master", 0).Labels["training.kubeflow.org/job-role"])
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"no master", "  xgbReplicaSpecs: {Worker: {" + template + "}}\n", "Master ReplicaSpec must be present"},
		{"two masters", "  xgbReplicaSpecs: {Master: {replicas: 2, " + template + "}}\n", "There must be only 1 master replica"},
		{"type", "  xgbReplicaSpecs: {Master: {" + template + "}, Slave: {" + template + "}}\n", "XGBoostReplicaType is Slave but must be one of [Master Worker]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), head+c.spec)
			assert.Contains(t, said, c.want)
		})
	}
}

func FuzzRead(f *testing.F) { manifesttest.Fuzz(f, Format(), head+pair) }
