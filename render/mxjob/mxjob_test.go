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

const later = "apiVersion: kubeflow.org/v1alpha1\nkind: MXJob\nmetadata: {name: j}\nspec:\n"

// TestSuccessor holds how MXJob of kubeflow.org differs (C.9).
func TestSuccessor(t *testing.T) {
	job := manifesttest.Good(t, Format(), later+`  cleanupPodPolicy: Running
  schedulerName: volcano
  mxImage: ignored/x
  replicaSpecs:
  - {mxReplicaType: SCHEDULER, PsRootPort: 9000, `+template+`}
  - {mxReplicaType: SERVER, `+template+`}
  - replicas: 2
    template:
      metadata: {labels: {mine: "1"}}
      spec: {restartPolicy: OnFailure, initContainers: [{name: init}], containers: [{name: side}, {name: mxnet, env: [{name: A, value: "1"}]}]}
`)
	assert.Equal(t, repo.CleanupRunning, job.Cleanup.Pods)
	for _, name := range []string{"scheduler", "server"} {
		r := job.Role(name)
		assert.True(t, r.Daemon)
		assert.Equal(t, repo.Never, r.MinFailed, "the chief alone decides")
	}
	w := job.Role("worker")
	assert.False(t, w.Daemon)
	assert.Equal(t, int32(0), *w.Chief)
	assert.Equal(t, int32(1), w.MinFailed)
	assert.Equal(t, "volcano", w.Template.Spec.SchedulerName)
	p := manifesttest.Pod(t, job, "worker", 1)
	want := []string{
		"DMLC_PS_ROOT_PORT=9000", "DMLC_PS_ROOT_URI=scheduler-0.example", "DMLC_NUM_SERVER=1", "DMLC_NUM_WORKER=2", "DMLC_ROLE=worker", "DMLC_USE_KUBERNETES=1",
	}
	assert.Equal(t, want, manifesttest.Env(t, p, "side"), "all containers")
	assert.Equal(t, append(want, "A=1"), manifesttest.Env(t, p, "mxnet"), "and nothing overwritten")
	assert.Empty(t, manifesttest.Env(t, p, "init"))
	for label, value := range map[string]string{"kubeflow.org": "", "job_type": "WORKER", "mx_job_name": "j", "task_index": "1", "mine": "1"} {
		assert.Equal(t, value, p.Labels[label], label)
	}
	assert.NotContains(t, p.Labels, "mxnet.mlkube.io")

	job = manifesttest.Good(t, Format(), later+"  replicaSpecs: [{"+template+"}]\n")
	assert.Equal(t, repo.CleanupAll, job.Cleanup.Pods)
	assert.Equal(t, []string{"DMLC_NUM_WORKER=1", "DMLC_ROLE=worker", "DMLC_USE_KUBERNETES=1"}, manifesttest.Env(t, manifesttest.Pod(t, job, "worker", 0), "mxnet"))
	job = manifesttest.Good(t, Format(), later+"  terminationPolicy: {chief: {replicaName: SCHEDULER, replicaIndex: 0}}\n  replicaSpecs: [{mxReplicaType: SCHEDULER, "+template+"}]\n")
	assert.False(t, job.Role("scheduler").Daemon)

	for text, want := range map[string]string{
		later + "  jobMode: dist\n  replicaSpecs: [{" + template + "}]\n":                                 "warning: spec.jobMode: ignored",
		later + "  replicaSpecs: [{mxReplicaType: SERVER, " + template + "}]\n":                           "spec.replicaSpecs: Missing ReplicaSpec for chief: WORKER",
		later + "  terminationPolicy: {}\n  replicaSpecs: [{" + template + "}]\n":                         "invalid termination policy",
		later + "  cleanupPodPolicy: some\n  replicaSpecs: [{" + template + "}]\n":                        "is not one of All, Running, None",
		later + "  replicaSpecs: [{replicas: 0, " + template + "}]\n":                                     "WORKER has no replica 0",
		later + "  replicaSpecs: [{mxReplicaType: SCHEDULER, replicas: 2, " + template + "}]\n":           "The SCHEDULER must have Replicas = 1",
		head + "  jobMode: local\n  terminationPolicy: {}\n  replicaSpecs: [{" + template + "}]\n":        "warning: spec.terminationPolicy: ignored: it came with MXJob",
		head + "  jobMode: local\n  CleanupPodPolicy: All\n  replicaSpecs: [{" + template + "}]\n":        "warning: spec.CleanupPodPolicy: ignored",
		head + "  jobMode: local\n  schedulerName: a\n  mxImage: b\n  replicaSpecs: [{" + template + "}]": "warning: spec.mxImage: ignored",
	} {
		_, said := manifesttest.Read(t, Format(), text)
		assert.Contains(t, said, want)
	}
}

func TestCorpus(t *testing.T) {
	manifesttest.Corpus(t, Format(), func(name, said string) { t.Logf("%s\n%s", name, said) })
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+roles, head+"  jobMode: local\n  replicaSpecs: [{"+template+"}]\n", later+"  terminationPolicy: {chief: {replicaName: WORKER, replicaIndex: 0}}\n  replicaSpecs: [{"+template+"}]\n")
}
