package jax

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {containers: [{name: jax, image: a/b}, {name: side, image: c}]}}"
	workers  = "  jaxReplicaSpecs: {Worker: {replicas: 3, " + template + "}}\n"
)

func TestJob(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+workers)
	p := manifesttest.Pod(t, j, "worker", 2)
	for _, container := range []string{"jax", "side"} {
		assert.Equal(t, []string{"PYTHONUNBUFFERED=1", "COORDINATOR_PORT=6666", "COORDINATOR_ADDRESS=worker-0.example", "NUM_PROCESSES=3", "PROCESS_ID=2"},
			manifesttest.Env(t, p, container))
	}
	w := j.Role("worker")
	assert.False(t, w.Daemon)
	assert.Equal(t, int32(3), w.MinSucceeded)
	assert.Equal(t, int32(1), w.MinFailed)
	assert.Zero(t, w.Retry.Limit, "Never is the default")
	assert.Equal(t, "jaxjob-port", w.Template.Spec.Containers[0].Ports[0].Name)
	assert.Empty(t, p.Labels["training.kubeflow.org/job-role"])
	assert.Equal(t, "master", manifesttest.Pod(t, j, "worker", 0).Labels["training.kubeflow.org/job-role"])
}

func TestProblems(t *testing.T) {
	_, said := manifesttest.Read(t, Format(), head+"  jaxReplicaSpecs: {Worker: {"+template+"}, Master: {"+template+"}}\n")
	assert.Contains(t, said, "JAXReplicaType is Master but must be one of [Worker]")
	_, said = manifesttest.Read(t, Format(), head+"  jaxReplicaSpecs: {Worker: {template: {spec: {containers: [{name: a, image: a}]}}}}\n")
	assert.Contains(t, said, "There is no container named jax in Worker")
}

func FuzzRead(f *testing.F) { manifesttest.Fuzz(f, Format(), head+workers) }
