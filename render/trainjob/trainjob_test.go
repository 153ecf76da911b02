package trainjob

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head    = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: j}\nspec:\n"
	runtime = "  runtimeRef: {name: torch-distributed}\n"
	trainer = "  trainer: {image: a/b, command: [torchrun, train.py], numNodes: 2}\n"
)

func TestTorch(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+runtime+trainer+"  suspend: true\n  activeDeadlineSeconds: 60\n  managedBy: trainer.kubeflow.org/trainjob-controller\n")
	assert.True(t, j.Suspend)
	assert.Equal(t, time.Minute, j.Deadline)
	assert.Equal(t, int32(6), *j.FailureBudget)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupRunning}, j.Cleanup)
	r := j.Roles[0]
	assert.Equal(t, "node", r.Name)
	assert.Equal(t, int32(2), r.Replicas)
	assert.Equal(t, int32(2), r.MinSucceeded)
	assert.Equal(t, repo.Unlimited, r.Retry.Limit)
	p := manifesttest.Pod(t, j, "node", 1)
	assert.Equal(t, []string{"torchrun", "train.py"}, p.Spec.Containers[0].Command)
	assert.Equal(t, []string{"PET_NNODES=2", "PET_NPROC_PER_NODE=1", "PET_NODE_RANK=1", "PET_MASTER_ADDR=node-0.example", "PET_MASTER_PORT=29500", "JOB_COMPLETION_INDEX=1"},
		manifesttest.Env(t, p, "node"))
	assert.Equal(t, "1", p.Labels["batch.kubernetes.io/job-completion-index"])
}

func TestProcesses(t *testing.T) {
	for resources, want := range map[string]string{
		"numProcPerNode: 8": "8",
		"resourcesPerNode: {limits: {nvidia.com/gpu: 4}}":                                  "auto",
		"numProcPerNode: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 4}}":               "2",
		"resourcesPerNode: {limits: {cpu: 4}}":                                             "4",
		"resourcesPerNode: {requests: {cpu: 2}, limits: {cpu: 4}}":                         "2",
		"resourcesPerNode: {requests: {cpu: 1500m, memory: 1Gi}, limits: {memory: 100Gi}}": "2",
	} {
		j := manifesttest.Good(t, Format(), head+runtime+strings.Replace(trainer, "numNodes: 2", resources, 1))
		assert.Contains(t, manifesttest.Env(t, manifesttest.Pod(t, j, "node", 0), "node"), "PET_NPROC_PER_NODE="+want, resources)
		assert.Equal(t, int32(1), j.Roles[0].Replicas)
	}
}

func TestOtherRuntimes(t *testing.T) {
	env := func(name string) []string {
		j := manifesttest.Good(t, Format(), head+strings.Replace(runtime, "torch", name, 1)+strings.Replace(trainer, "numNodes: 2", "numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 2}}", 1))
		return manifesttest.Env(t, manifesttest.Pod(t, j, "node", 1), "node")
	}
	assert.Equal(t, []string{"JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1", "JAX_COORDINATOR_ADDRESS=node-0.example:29500", "JOB_COMPLETION_INDEX=1"}, env("jax"))
	assert.Equal(t, []string{"DMLC_TRACKER_URI=node-0.example", "DMLC_TRACKER_PORT=29500", "DMLC_TASK_ID=1", "DMLC_NUM_WORKER=4", "JOB_COMPLETION_INDEX=1"}, env("xgboost"))
}

func TestProblems(t *testing.T) {
	with := func(text string) string { return head + runtime + strings.Replace(trainer, "numNodes: 2", text, 1) }
	ref := func(text string) string { return head + "  runtimeRef: {" + text + "}\n" + trainer }
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", head + runtime + trainer + "  podTemplateOverrides: []\n", "spec.podTemplateOverrides: unknown field"},
		{"no runtime", head + trainer, "spec.runtimeRef.name: required: torch-distributed, jax-distributed, xgboost-distributed"},
		{"own runtime", ref("name: ours"), `the runtime "ours" is an object of the cluster, and is not read`},
		{"nearly", ref("name: torch-distribute"), `did you mean "torch-distributed"?`},
		{"namespaced", ref("name: torch-distributed, kind: TrainingRuntime"), "a TrainingRuntime is an object of the cluster"},
		{"kind", ref("name: torch-distributed, kind: Runtime"), "is not one of ClusterTrainingRuntime, TrainingRuntime"},
		{"group", ref("name: torch-distributed, apiGroup: x"), `"x" is not one of trainer.kubeflow.org`},
		{"mpi", ref("name: deepspeed-distributed"), "an MPIJob does the same with keys of your own"},
		{"torchtune", ref("name: torchtune-llama3.2-1b"), "is not taken: its command"},
		{"no trainer", head + runtime, "spec.trainer: required"},
		{"no image", head + runtime + "  trainer: {command: [x]}\n", "spec.trainer.image: required"},
		{"image", head + runtime + "  trainer: {image: <IMAGE>}\n", `f.yaml:6:13: spec.trainer.image: "<IMAGE>" is not a valid image reference`},
		{"resources", with("resourcesPerNode: {requests: {nvidia.com/gpu: 1}}"), "warning: spec.trainer.resourcesPerNode.requests[\"nvidia.com/gpu\"]: has no matching limit"},
		{"tune", strings.Replace(with("numNodes: 1"), "torchrun, train.py", "tune, run", 1), "tune run is not taken"},
		{"nodes", with("numNodes: 0"), "want 1 to 10000, not 0"},
		{"processes", with("numProcPerNode: 0"), "want a number from 1, not 0"},
		{"reserved", with("env: [{name: PET_NNODES, value: \"3\"}]"), "spec.trainer.env[0].name: PET_NNODES is the runtime's own: it may not be set"},
		{"initializer", head + runtime + trainer + "  initializer: {dataset: {storageUri: hf://x}}\n", "spec.initializer: not taken"},
		{"patches", head + runtime + trainer + "  runtimePatches: [{manager: x}]\n", "spec.runtimePatches: not taken"},
		{"manager", head + runtime + trainer + "  managedBy: kueue.x-k8s.io/multikueue\n", "is another controller"},
		{"deadline", head + runtime + trainer + "  activeDeadlineSeconds: 0\n", "want a number of seconds from 1, not 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), c.text)
			assert.Contains(t, said, c.want)
		})
	}
	_, said := manifesttest.Read(t, Format(), strings.Replace(with("numProcPerNode: 2, env: [{name: JAX_PROCESS_ID, value: x}]"), "torch-d", "jax-d", 1))
	assert.Contains(t, said, "numProcPerNode: ignored")
	assert.Contains(t, said, "JAX_PROCESS_ID is the runtime's own, which wins")
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+runtime+trainer, head+strings.Replace(runtime, "torch", "xgboost", 1)+trainer)
}
