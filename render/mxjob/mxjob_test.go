package mxjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: mxnet.mlkube.io/v1beta1\nkind: MxJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {restartPolicy: OnFailure, containers: [{name: mxnet, image: a/b}]}}"
	roles    = "  jobMode: dist\n  replicaSpecs:\n  - {mxReplicaType: SCHEDULER, PsRootPort: 9999, " + template + "}\n  - {mxReplicaType: SERVER, replicas: 2, " + template + "}\n"
)

func TestDist(t *testing.T) {
	job := manifesttest.Good(t, Format(), head+roles+`  - replicas: 3
    template:
      spec:
        containers:
        - {name: side}
        - {name: mxnet, env: [{name: A, value: "1"}, {name: B, value: "2"}, {name: C, value: "3"}, {name: D, value: "4"}, {name: DMLC_ROLE, value: mine}]}
`)
	s := job.Role("scheduler")
	assert.False(t, s.Daemon)
	assert.Equal(t, int32(1), s.MinSucceeded)
	assert.Equal(t, int32(9999), s.Port)
	for _, name := range []string{"server", "worker"} {
		r := job.Role(name)
		assert.True(t, r.Daemon)
		assert.Equal(t, int32(1), r.MinFailed, "any replica that fails for good fails the job")
		assert.Equal(t, int32(9091), r.Port)
		assert.Equal(t, repo.ByClass, r.Retry.Mode)
	}
	assert.Equal(t, repo.CleanupNone, job.Cleanup.Pods)
	p := manifesttest.Pod(t, job, "worker", 2)
	assert.Equal(t, []string{
		"DMLC_PS_ROOT_PORT=9999", "DMLC_PS_ROOT_URI=scheduler-0.example", "DMLC_NUM_SERVER=2", "DMLC_NUM_WORKER=3", "DMLC_ROLE=worker",
		"A=1", "B=2", "C=3", "D=4", "DMLC_ROLE=mine",
	}, manifesttest.Env(t, p, "mxnet"), "added, and nothing of the job's own is overwritten")
	assert.Empty(t, manifesttest.Env(t, p, "side"))
	assert.Equal(t, "WORKER", p.Labels["job_type"])
	assert.Equal(t, "2", p.Labels["task_index"])
	assert.Contains(t, p.Labels, "mxnet.mlkube.io")
	assert.Contains(t, manifesttest.Env(t, manifesttest.Pod(t, job, "scheduler", 0), "mxnet"), "DMLC_ROLE=scheduler")
}

func TestLocal(t *testing.T) {
	job := manifesttest.Good(t, Format(), head+"  jobMode: local\n  replicaSpecs: [{"+template+"}]\n")
	require.Len(t, job.Roles, 1)
	r := job.Roles[0]
	assert.Equal(t, "worker", r.Name)
	assert.False(t, r.Daemon)
	assert.Equal(t, int32(1), r.MinSucceeded)
	assert.Equal(t, "Never", string(r.Template.Spec.RestartPolicy))
	assert.Empty(t, manifesttest.Env(t, manifesttest.Pod(t, job, "worker", 0), "mxnet"))
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, said := manifesttest.Read(t, Format(), `apiVersion: mlkube.io/v1beta1
kind: MxJob
metadata: {name: j}
spec:
  replica_specs:
  - replicas: 1
    PsRootPort: 9091
    mxReplicaType: MASTER
    template: {spec: {containers: [{name: tensorflow, image: a/b}]}}
`)
	assert.Equal(t, `f.yaml:4:1: spec.jobMode: required, one of local, dist
f.yaml:5:3: spec.replica_specs: unknown field; did you mean "replicaSpecs"?
f.yaml:8:5: spec.replica_specs[0].mxReplicaType: MASTER is not one of SCHEDULER, SERVER, WORKER
f.yaml:9:23: spec.replica_specs[0].template.spec.containers: no container named mxnet: Replica type MASTER is missing a container for mxnet`, said)
}

func TestMistakes(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"mode", "  jobMode: lokal\n  replicaSpecs: [{" + template + "}]", `"lokal" is not one of local, dist; did you mean "local"?`},
		{"role missing", roles, "dist job mode without replica type WORKER"},
		{"local with a server", "  jobMode: local\n  replicaSpecs: [{" + template + "}, {mxReplicaType: SERVER, " + template + "}]", "job mode is local, but its replicas set have replicas type other than worker"},
		{"local with two", "  jobMode: local\n  replicaSpecs: [{replicas: 2, " + template + "}]", "job mode is local, but it has more than 1 worker"},
		{"local with none", "  jobMode: local", "it would never end"},
		{"schedulers", "  jobMode: dist\n  replicaSpecs: [{mxReplicaType: SCHEDULER, replicas: 2, " + template + "}]", "The SCHEDULER must have Replicas = 1"},
		{"template", "  jobMode: local\n  replicaSpecs: [{}]", "Replica is missing Template"},
		{"nil", "  jobMode: local\n  replicaSpecs: [null]", "ReplicaSpecs contain nil"},
		{"port", "  jobMode: local\n  replicaSpecs: [{psrootport: 70000, " + template + "}]", "70000 is no port"},
		{"twice", "  jobMode: dist\n  replicaSpecs: [{" + template + "}, {" + template + "}]", "two replica specs of type WORKER"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), head+tt.text+"\n")
			assert.Contains(t, said, tt.want)
		})
	}
}

func TestCorpus(t *testing.T) {
	manifesttest.Corpus(t, Format(), func(name, said string) { t.Logf("%s\n%s", name, said) })
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+roles, head+"  jobMode: local\n  replicaSpecs: [{"+template+"}]\n")
}
