package rendezvous

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// stamp is the environment that a task of a job of the roles is given, without
// the variables that every task has.
func stamp(t *testing.T, k Kind, roles []Role, replicas []int32, task repo.Task) map[string]string {
	t.Helper()
	run := &repo.Run{ID: "j-1", Job: repo.Job{Key: repo.Key{Name: "j", Namespace: "n"}}}
	for i, r := range roles {
		run.Job.Roles = append(run.Job.Roles, repo.Role{Name: r.Name, Replicas: replicas[i], Env: Env(k, roles, r.Name),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}})
	}
	ports := func(task repo.Task) repo.Address {
		base := int32(1000)
		for i, r := range roles {
			if r.Name == task.Role {
				base += int32(i) * 100
			}
		}
		return repo.Address{Host: "127.0.0.1", Port: base + task.Index}
	}
	pod, err := run.Pod(repo.TaskAttempt{Task: task}, ports)
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env[8:] {
		got[e.Name] = e.Value
	}
	return got
}

func TestEnvironments(t *testing.T) {
	ranks := []Role{{Name: "store", Daemon: true}, {Name: "chief", Slots: 8}, {Name: "worker"}}
	two := []int32{1, 1, 3}
	tests := []struct {
		name     string
		kind     Kind
		roles    []Role
		replicas []int32
		task     repo.Task
		want     map[string]string
	}{
		{"none", None, ranks, two, repo.Task{Role: "worker"}, map[string]string{}},
		{"tensorflow", TensorFlow, []Role{{Name: "worker"}, {Name: "ps", Daemon: true}}, []int32{2, 1}, repo.Task{Role: "worker", Index: 1}, map[string]string{
			"TF_CONFIG": `{"cluster":{"ps":["127.0.0.1:1100"],"worker":["127.0.0.1:1000","127.0.0.1:1001"]},"task":{"type":"worker","index":1},"environment":"cloud"}`}},
		{"pytorch worker", PyTorch, ranks, two, repo.Task{Role: "worker", Index: 2}, map[string]string{
			"PYTHONUNBUFFERED": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1100", "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "0",
			"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "1100", "PET_NNODES": "4", "PET_NODE_RANK": "3", "PET_NPROC_PER_NODE": "1"}},
		{"pytorch chief", PyTorch, ranks, two, repo.Task{Role: "chief"}, map[string]string{
			"PYTHONUNBUFFERED": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1100", "WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0",
			"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "1100", "PET_NNODES": "4", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "8"}},
		{"pytorch daemon", PyTorch, ranks, two, repo.Task{Role: "store"}, map[string]string{
			"PYTHONUNBUFFERED": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1100", "WORLD_SIZE": "4",
			"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "1100", "PET_NNODES": "4"}},
		{"jax", JAX, ranks[1:], []int32{1, 2}, repo.Task{Role: "worker", Index: 1}, map[string]string{
			"PYTHONUNBUFFERED": "1", "JAX_COORDINATOR_ADDRESS": "127.0.0.1:1000", "JAX_COORDINATOR_PORT": "1000", "JAX_NUM_PROCESSES": "3", "JAX_PROCESS_ID": "2",
			"COORDINATOR_ADDRESS": "127.0.0.1", "COORDINATOR_PORT": "1000", "NUM_PROCESSES": "3", "PROCESS_ID": "2"}},
		{"mxnet", MXNet, []Role{{Name: "scheduler"}, {Name: "server"}, {Name: "worker"}}, []int32{1, 2, 3}, repo.Task{Role: "server"}, map[string]string{
			"DMLC_PS_ROOT_PORT": "1000", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_NUM_SERVER": "2", "DMLC_NUM_WORKER": "3", "DMLC_ROLE": "server"}},
		{"mpi", MPI, []Role{{Name: "launcher"}, {Name: "worker", Slots: 4}, {Name: "extra"}}, []int32{1, 2, 1}, repo.Task{Role: "launcher"}, map[string]string{
			"TRAINYARD_HOSTFILE": "127.0.0.1 slots=4\n127.0.0.1 slots=4\n127.0.0.1 slots=1\n", "TRAINYARD_HOSTS": "127.0.0.1:4,127.0.0.1:4,127.0.0.1:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, stamp(t, tt.kind, tt.roles, tt.replicas, tt.task))
		})
	}
}

func TestCheck(t *testing.T) {
	assert.Contains(t, Check(MXNet, []Role{{Name: "worker"}, {Name: "server"}}), "a role named scheduler")
	assert.Contains(t, Check(PyTorch, []Role{{Name: "ps", Daemon: true}}), "no daemon")
	assert.Empty(t, Check(JAX, []Role{{Name: "a"}}))
	for _, k := range []Kind{TensorFlow, PyTorch, MXNet, JAX, MPI} {
		assert.NotZero(t, Port(k))
	}
	assert.Zero(t, Port(None))
}
