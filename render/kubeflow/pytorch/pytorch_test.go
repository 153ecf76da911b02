package pytorch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {containers: [{name: pytorch, image: a/b, env: [{name: RANK, value: mine}]}, {name: side, image: c}]}}"
	pair     = "  pytorchReplicaSpecs: {Master: {" + template + "}, Worker: {replicas: 2, " + template + "}}\n"
	workers  = "  pytorchReplicaSpecs: {Worker: {replicas: 3, " + template + "}}\n"
)

func env(t *testing.T, j *repo.Job, role string, index int32) []string {
	t.Helper()
	return manifesttest.Env(t, manifesttest.Pod(t, j, role, index), "side")
}

func TestMasterAndWorkers(t *testing.T) { // D.4
	want := func(world, rank, processes string) []string {
		return []string{"PYTHONUNBUFFERED=1", "MASTER_PORT=23456", "PET_MASTER_PORT=23456", "MASTER_ADDR=master-0.example", "PET_MASTER_ADDR=master-0.example",
			"WORLD_SIZE=" + world, "RANK=" + rank, "PET_NPROC_PER_NODE=" + processes, "PET_NODE_RANK=" + rank, "PET_NNODES=3"}
	}
	j := manifesttest.Good(t, Format(), head+pair)
	assert.Equal(t, want("3", "0", "auto"), env(t, j, "master", 0))
	assert.Equal(t, want("3", "2", "auto"), env(t, j, "worker", 1))
	p := manifesttest.Pod(t, j, "worker", 1)
	assert.Equal(t, append([]string{"RANK=mine"}, want("3", "2", "auto")...), manifesttest.Env(t, p, "pytorch"), "ours wins")
	assert.Empty(t, p.Spec.InitContainers)

	for _, n := range []string{"4", `"4"`} {
		j = manifesttest.Good(t, Format(), head+pair+"  nprocPerNode: "+n+"\n")
		assert.Equal(t, want("12", "1", "4"), env(t, j, "worker", 0))
	}
	j = manifesttest.Good(t, Format(), head+pair+"  nprocPerNode: gpu\n")
	assert.Equal(t, want("3", "1", "gpu"), env(t, j, "worker", 0))
}

func TestWorkersAlone(t *testing.T) { // D.4, D.7
	j := manifesttest.Good(t, Format(), head+workers)
	assert.Equal(t, []string{"PYTHONUNBUFFERED=1", "PET_NPROC_PER_NODE=auto", "PET_NNODES=3"}, env(t, j, "worker", 2))
	w := j.Role("worker")
	assert.False(t, w.Daemon)
	assert.Equal(t, int32(3), w.MinSucceeded, "all workers")
	assert.False(t, j.Rescale)
	assert.Equal(t, "master", manifesttest.Pod(t, j, "worker", 0).Labels["training.kubeflow.org/job-role"])
}

func TestSuccess(t *testing.T) { // D.1, D.6, D.7
	j := manifesttest.Good(t, Format(), head+pair)
	assert.Equal(t, repo.AllRoles, j.Success)
	m, w := j.Role("master"), j.Role("worker")
	assert.False(t, m.Daemon)
	assert.Equal(t, int32(1), m.MinSucceeded)
	assert.True(t, w.Daemon)
	for _, r := range []*repo.Role{m, w} {
		assert.Equal(t, int32(1), r.MinFailed)
		assert.Equal(t, repo.Unlimited, r.Retry.Limit, "OnFailure is the default")
		assert.Equal(t, "pytorch", r.MainContainer)
	}
}

func TestElastic(t *testing.T) { // D.1, D.4
	j := manifesttest.Good(t, Format(), head+workers+"  elasticPolicy: {minReplicas: 2, maxReplicas: 5, maxRestarts: 9}\n")
	assert.Equal(t, []string{"PYTHONUNBUFFERED=1", "PET_NPROC_PER_NODE=auto", "PET_RDZV_ENDPOINT=worker-0.example:23456", "PET_RDZV_BACKEND=c10d",
		"PET_NNODES=2:5", "PET_MAX_RESTARTS=9"}, env(t, j, "worker", 1))
	assert.Equal(t, int32(1), j.Role("worker").MinSucceeded, "D.7: any one worker")
	assert.True(t, j.Rescale)

	j = manifesttest.Good(t, Format(), head+workers+`  elasticPolicy:
    rdzvBackend: etcd
    rdzvHost: "etcd.{{.Job}}"
    rdzvPort: 2379
    rdzvId: mine
    rdzvConf: [{key: a, value: "1"}, {key: b, value: "2"}]
    standalone: true
`)
	assert.Equal(t, []string{"PYTHONUNBUFFERED=1", "PET_NPROC_PER_NODE=auto", "PET_RDZV_ENDPOINT=etcd.{{.Job}}:2379", "PET_RDZV_BACKEND=etcd",
		"PET_NNODES=3:3", "PET_RDZV_ID=mine", "PET_RDZV_CONF=a=1,b=2", "PET_STANDALONE="}, env(t, j, "worker", 1))

	for policy, nodes := range map[string]string{"{minReplicas: 2}": "PET_NNODES=2:2", "{maxReplicas: 4}": "PET_NNODES=4:4", "{}": "PET_NNODES=3:3"} {
		assert.Contains(t, env(t, manifesttest.Good(t, Format(), head+workers+"  elasticPolicy: "+policy+"\n"), "worker", 0), nodes)
	}

	j, said := manifesttest.Read(t, Format(), head+pair+"  elasticPolicy: {nProcPerNode: 2, metrics: [{type: Resource}]}\n")
	require.NotNil(t, j)
	assert.Contains(t, env(t, j, "worker", 0), "WORLD_SIZE=6", "D.4 BUG: a master and the old field")
	assert.Contains(t, said, "deprecated, read as spec.nprocPerNode")
	assert.Contains(t, said, "spec.elasticPolicy.metrics: ignored: nothing scales the job by itself")
	assert.Equal(t, int32(1), j.Role("master").MinSucceeded)
	assert.True(t, j.Role("worker").Daemon)
}

func TestEarly(t *testing.T) { // D, head
	for _, version := range []string{"v1alpha2", "v1beta1", "v1beta2"} {
		at := "apiVersion: kubeflow.org/" + version + "\nkind: PyTorchJob\nmetadata: {name: j}\nspec:\n"
		j := manifesttest.Good(t, Format(), at+pair)
		assert.Equal(t, repo.CleanupNone, j.Cleanup.Pods)
		assert.Equal(t, "worker", manifesttest.Pod(t, j, "worker", 0).Labels["pytorch-replica-type"])
		_, said := manifesttest.Read(t, Format(), at+workers)
		assert.Contains(t, said, "Master ReplicaSpec must be present")
	}
}

func TestProblems(t *testing.T) { // D.2
	for _, c := range []struct{ name, spec, want string }{
		{"two masters", "  pytorchReplicaSpecs: {Master: {replicas: 2, " + template + "}}\n", "There must be only 1 master replica"},
		{"no master", "  pytorchReplicaSpecs: {Master: {replicas: 0, " + template + "}}\n", "There must be only 1 master replica"},
		{"type", "  pytorchReplicaSpecs: {Master: {" + template + "}, Server: {" + template + "}}\n", "PyTorchReplicaType is Server but must be one of [Master Worker]"},
		{"elastic without workers", "  elasticPolicy: {}\n  pytorchReplicaSpecs: {Master: {" + template + "}}\n", "must be configured if elastic policy is used"},
		{"both places", pair + "  nprocPerNode: 2\n  elasticPolicy: {nProcPerNode: 2}\n", ".spec.elasticPolicy.nProcPerNode is deprecated, use .spec.nprocPerNode instead"},
		{"processes", pair + "  nprocPerNode: many\n", `"many" is not one of auto, cpu, gpu or a number from 1`},
		{"old processes", pair + "  elasticPolicy: {nProcPerNode: 0}\n", "want a number from 1, not 0"},
		{"backend", workers + "  elasticPolicy: {rdzvBackend: c10}\n", `did you mean "c10d"?`},
		{"port", workers + "  elasticPolicy: {rdzvPort: 0}\n", "0 is no port"},
		{"least", workers + "  elasticPolicy: {minReplicas: 0}\n", "want a number from 1, not 0"},
		{"order", workers + "  elasticPolicy: {minReplicas: 3, maxReplicas: 2}\n", "2 is less than minReplicas, 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), head+c.spec)
			assert.Contains(t, said, c.want)
		})
	}
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+pair, head+workers+"  elasticPolicy: {minReplicas: 1, rdzvConf: [{key: a}], rdzvHost: \"{{\"}\n", head+pair+"  nprocPerNode: 2\n")
}
