package paddle

import (
	"testing"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head       = "apiVersion: kubeflow.org/v1\nkind: PaddleJob\nmetadata: {name: j}\nspec:\n"
	template   = "template: {spec: {containers: [{name: paddle, image: a/b}, {name: side, image: c}]}}"
	collective = "  paddleReplicaSpecs: {Worker: {replicas: 2, " + template + "}}\n"
	servers    = "  paddleReplicaSpecs: {Master: {replicas: 2, " + template + "}, Worker: {replicas: 2, " + template + "}}\n"
)

func TestVariables(t *testing.T) {
	const ip, own = "POD_IP_DUMMY=<status.podIP>", "PADDLE_MASTER=$(POD_IP_DUMMY):36543"
	for _, c := range []struct {
		name, spec, role string
		index            int32
		want             []string
	}{
		{"collective, where all meet", collective, "worker", 0, []string{"PADDLE_NNODES=2", ip, own}},
		{"collective", collective, "worker", 1, []string{"PADDLE_NNODES=2", ip, "PADDLE_MASTER=worker-0.example:36543"}},
		{"servers, where all meet", servers, "master", 0, []string{"PADDLE_NNODES=4", ip, own, "PADDLE_SERVER_NUM=1"}},
		{"servers", servers, "master", 1, []string{"PADDLE_NNODES=4", ip, "PADDLE_MASTER=master-0.example:36543", "PADDLE_SERVER_NUM=1"}},
		{"trainers", servers, "worker", 0, []string{"PADDLE_NNODES=4", "PADDLE_MASTER=master-0.example:36543", "PADDLE_TRAINER_NUM=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := manifesttest.Good(t, Format(), head+c.spec)
			want := append([]string{"PYTHONUNBUFFERED=1", "PADDLE_JOB_ID=j"}, c.want...)
			assert.Equal(t, want, manifesttest.Env(t, manifesttest.Pod(t, j, c.role, c.index), "side"))
		})
	}
}

func TestSuccess(t *testing.T) {
	j := manifesttest.Good(t, Format(), head+collective)
	assert.False(t, j.Role("worker").Daemon)
	assert.Equal(t, int32(2), j.Role("worker").MinSucceeded)
	assert.Equal(t, repo.Unlimited, j.Role("worker").Retry.Limit, "OnFailure is the default")
	assert.Equal(t, int32(36543), j.Role("worker").Port)
	assert.Equal(t, "master", j.Role("worker").Template.Spec.Containers[0].Ports[0].Name)

	j = manifesttest.Good(t, Format(), head+servers)
	assert.False(t, j.Role("master").Daemon)
	assert.Equal(t, int32(2), j.Role("master").MinSucceeded)
	assert.True(t, j.Role("worker").Daemon)
}

func TestElastic(t *testing.T) {
	assert.True(t, manifesttest.Good(t, Format(), head+collective+"  elasticPolicy: {minReplicas: 1, maxReplicas: 4, maxRestarts: 3}\n").Rescale)
	_, said := manifesttest.Read(t, Format(), head+collective+"  elasticPolicy: {minReplicas: 4, maxReplicas: 1, metrics: [{}]}\n")
	assert.Contains(t, said, "1 is less than minReplicas, 4")
	assert.Contains(t, said, "nothing scales the job by itself")
}

func TestProblems(t *testing.T) {
	_, said := manifesttest.Read(t, Format(), head+"  paddleReplicaSpecs: {Worker: {"+template+"}, PServer: {"+template+"}}\n")
	assert.Contains(t, said, "PaddleReplicaType is PServer but must be one of [Master Worker]")
	_, said = manifesttest.Read(t, Format(), head+"  paddleReplicaSpecs: {Worker: {replicas: 0, "+template+"}}\n")
	assert.Contains(t, said, "0 replicas never succeed")
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+collective, head+servers+"  elasticPolicy: {metrics: [{}]}\n")
}
