package trainingjob

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const short = `apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: j}
spec:
  roles:
  - name: worker
    template: {spec: {containers: [{name: main, command: [train]}]}}
`

const full = `apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: bert-lr, namespace: nlp, labels: {team: nlp}}
spec:
  description: a try
  schedule: {cron: "0 2 * * *", timeZone: Europe/Berlin, concurrencyPolicy: Replace, startingDeadline: 1h}
  onChange: Restart
  deadline: 2d12h
  startDeadline: 30m
  progressDeadline: 90s
  retry: {limit: 2, backoff: {initial: 1s, factor: 3, max: 1m}}
  failureRules:
  - {exitCodes: [42, 200-209], class: Transient}
  - {logPattern: "CUDA error: .*ECC", class: Transient, avoidNode: true}
  rendezvous: pytorch
  gang: true
  cleanup: {pods: Running, after: 10m}
  metrics: {log: '(?P<name>loss|acc)=(?P<value>[0-9.]+)'}
  roles:
  - name: worker
    replicas: 4
    gpus: {count: 8, class: a100}
    volumes: [{name: data, nfs: {server: 10.0.0.1, path: /data}, mountPath: /data, readOnly: true}]
    retry: {limit: -1}
    minSucceeded: 3
    minFailed: never
    port: 4000
    forceDeleteAfter: 5m
    template:
      spec:
        restartPolicy: OnFailure
        initContainers: [{name: prepare, command: [p]}]
        containers: [{name: train, image: "ghcr.io/acme/bert@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", command: [torchrun, train.py]}]
  - name: ps
    replicas: 2
    daemon: true
    template: {spec: {containers: [{name: ps, command: [serve]}]}}
`

func TestDefaults(t *testing.T) {
	job := manifesttest.Good(t, Format(), short)
	assert.Equal(t, repo.Key{Namespace: "default", Name: "j"}, job.Key)
	assert.Equal(t, "trainyard.dev/v1", job.APIVersion)
	assert.Equal(t, "TrainingJob", job.Kind)
	assert.Equal(t, repo.Finish, job.OnChange)
	assert.Equal(t, repo.AllRoles, job.Success)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupAll, After: 24 * time.Hour}, job.Cleanup)
	backoff := repo.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 10 * time.Minute}
	conflict := repo.Span{Min: time.Minute, Max: 15 * time.Minute}
	assert.Equal(t, repo.Retry{Limit: 0, Mode: repo.ByFault, Backoff: backoff, ConflictDelay: conflict}, job.Retry)
	require.Len(t, job.Roles, 1)
	r := job.Roles[0]
	assert.Equal(t, int32(1), r.Replicas)
	assert.Equal(t, int32(1), r.MinSucceeded)
	assert.Equal(t, int32(1), r.MinFailed)
	assert.Equal(t, "main", r.MainContainer)
	assert.Equal(t, int32(0), r.Port)
	assert.Nil(t, r.ForceDeleteAfter)
	assert.Empty(t, r.Env.Vars)
	assert.Equal(t, "Never", string(r.Template.Spec.RestartPolicy))
	assert.Equal(t, map[string]string{repo.LabelRole: "worker"}, r.Template.Labels)
}

func TestEveryField(t *testing.T) {
	job := manifesttest.Good(t, Format(), full)
	assert.Equal(t, map[string]string{"team": "nlp"}, job.Labels)
	assert.Equal(t, "a try", job.Description)
	assert.Equal(t, &repo.Schedule{Cron: "0 2 * * *", TimeZone: "Europe/Berlin", Concurrency: repo.Replace, StartingDeadline: time.Hour}, job.Schedule)
	assert.Equal(t, repo.Restart, job.OnChange)
	assert.Equal(t, 60*time.Hour, job.Deadline)
	assert.Equal(t, 30*time.Minute, job.StartDeadline)
	assert.Equal(t, 90*time.Second, job.ProgressDeadline)
	assert.Equal(t, repo.Backoff{Initial: time.Second, Factor: 3, Max: time.Minute}, job.Retry.Backoff)
	assert.Equal(t, int32(2), job.Retry.Limit)
	assert.True(t, job.Gang)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupRunning, After: 10 * time.Minute}, job.Cleanup)
	assert.Equal(t, []repo.CodeRange{{Min: 42, Max: 42}, {Min: 200, Max: 209}}, job.Rules[0].ExitCodes)
	assert.True(t, job.Rules[1].AvoidNode)
	assert.Equal(t, "OverOwnLimit", job.Rules[2].Name, "the built-in table comes last")

	w := job.Role("worker")
	assert.Equal(t, int32(3), w.MinSucceeded)
	assert.Equal(t, repo.Never, w.MinFailed)
	assert.Equal(t, repo.Unlimited, w.Retry.Limit)
	assert.Equal(t, "train", w.MainContainer)
	assert.Equal(t, int32(4000), w.Port)
	assert.Equal(t, 5*time.Minute, *w.ForceDeleteAfter)
	assert.Equal(t, "a100", w.Template.Labels["trainyard.dev/gpu-class"])
	gpus := w.Template.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
	assert.Equal(t, "8", gpus.String())
	assert.Equal(t, "10.0.0.1", w.Template.Spec.Volumes[0].NFS.Server)
	for _, c := range append(w.Template.Spec.InitContainers, w.Template.Spec.Containers...) {
		require.Len(t, c.VolumeMounts, 1)
		assert.Equal(t, "/data", c.VolumeMounts[0].MountPath)
		assert.True(t, c.VolumeMounts[0].ReadOnly)
	}
	ps := job.Role("ps")
	assert.True(t, ps.Daemon)
	assert.Equal(t, repo.Never, ps.MinSucceeded)
	assert.Equal(t, int32(1), ps.MinFailed)
	assert.Equal(t, int32(29500), ps.Port)

	env := manifesttest.Env(t, manifesttest.Pod(t, job, "worker", 2), "train")
	assert.Equal(t, []string{"PYTHONUNBUFFERED=1", "MASTER_ADDR=worker-0.example", "PET_MASTER_ADDR=worker-0.example", "MASTER_PORT=4000", "PET_MASTER_PORT=4000",
		"WORLD_SIZE=4", "PET_NNODES=4", "RANK=2", "PET_NODE_RANK=2", "LOCAL_RANK=0", "PET_NPROC_PER_NODE=8"}, env)
}

// Any vendor's resource can be counted, and every container has the shared memory.
func TestGPUsAndSharedMemory(t *testing.T) {
	text := strings.Replace(short, "  - name: worker\n", "  - name: worker\n    gpus: {count: 4, resource: amd.com/gpu, class: mi300}\n    shm: 8Gi\n", 1)
	text = strings.Replace(text, "{spec: {containers", "{spec: {initContainers: [{name: prepare, command: [p]}], containers", 1)
	pod := manifesttest.Good(t, Format(), text).Roles[0].Template
	assert.Equal(t, "mi300", pod.Labels[repo.LabelGPUClass])
	limits := pod.Spec.Containers[0].Resources.Limits
	require.Len(t, limits, 1)
	assert.Equal(t, int64(4), limits.Name("amd.com/gpu", "").Value())
	assert.Equal(t, int64(4), repo.GPUs(&pod.Spec))
	require.Len(t, pod.Spec.Volumes, 1)
	assert.Equal(t, "Memory", string(pod.Spec.Volumes[0].EmptyDir.Medium))
	assert.Equal(t, "8Gi", pod.Spec.Volumes[0].EmptyDir.SizeLimit.String())
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		require.Len(t, c.VolumeMounts, 1, c.Name)
		assert.Equal(t, "/dev/shm", c.VolumeMounts[0].MountPath)
	}
}

func TestMistakes(t *testing.T) {
	tests := []struct{ name, spec, want string }{
		{"no roles", `{}`, `spec.roles: at least one role is required`},
		{"unknown", `{role: []}`, `spec.role: unknown field; did you mean "roles"?`},
		{"case", `{Roles: []}`, `spec.Roles: unknown field; did you mean "roles"?`},
		{"daemons only", `{roles: [{name: a, daemon: true, template: T}]}`, `every role is a daemon`},
		{"same name", `{roles: [{name: a, template: T}, {name: a, template: T}]}`, `spec.roles[1].name: role "a" is defined twice`},
		{"no name", `{roles: [{template: T}]}`, `spec.roles[0].name: required`},
		{"name", `{roles: [{name: A_1, template: T}]}`, `a-1 would do`},
		{"long name", `{roles: [{name: a2345678901234567890123456789012345678901234567890123456789, template: T}]}`, `has 59 characters`},
		{"template", `{roles: [{name: a}]}`, `spec.roles[0].template.spec.containers: at least one container is required`},
		{"replicas", `{roles: [{name: a, replicas: 0, template: T}]}`, `spec.roles[0].replicas: want 1 to 10000, not 0`},
		{"replicas type", `{roles: [{name: a, replicas: two, template: T}]}`, `spec.roles[0].replicas: want a number, not the text "two"`},
		{"min succeeded", `{roles: [{name: a, minSucceeded: 2, template: T}]}`, `want 1 to 1, the role's replicas, not 2`},
		{"min succeeded word", `{roles: [{name: a, minSucceeded: some, template: T}]}`, `want a number, all or never, not "some"`},
		{"min failed", `{roles: [{name: a, minFailed: 0, template: T}]}`, `want 1 to 1, the role's replicas, or never, not 0`},
		{"daemon", `{roles: [{name: b, template: T}, {name: a, daemon: true, minSucceeded: 1, template: T}]}`, `a daemon counts for nothing`},
		{"always", `{roles: [{name: a, template: {spec: {restartPolicy: Always, containers: [{name: c}]}}}]}`, `Always restarts a container that has succeeded`},
		{"cron", `{schedule: {cron: "0 2 * *"}, roles: [{name: a, template: T}]}`, `want five fields like 0 2 * * *`},
		{"every", `{schedule: {cron: "@every 5m"}, roles: [{name: a, template: T}]}`, `depends on when the daemon was started`},
		{"zone in cron", `{schedule: {cron: "CRON_TZ=UTC 0 2 * * *"}, roles: [{name: a, template: T}]}`, `timeZone`},
		{"zone", `{schedule: {cron: "@daily", timeZone: Mars}, roles: [{name: a, template: T}]}`, `"Mars" is no time zone`},
		{"allow", `{schedule: {cron: "@daily", concurrencyPolicy: Allow}, roles: [{name: a, template: T}]}`, `a job has one run at a time`},
		{"duration", `{deadline: 30, roles: [{name: a, template: T}]}`, `spec.deadline: want a duration like 90s, 30m, 12h or 2d, not 30: give it a unit`},
		{"negative duration", `{deadline: -1h, roles: [{name: a, template: T}]}`, `not the text "-1h"`},
		{"zero duration", `{deadline: 0s, roles: [{name: a, template: T}]}`, `must not be 0; leave it out for none`},
		{"zero patience", `{roles: [{name: a, forceDeleteAfter: 0s, template: T}]}`, `spec.roles[0].forceDeleteAfter: must not be 0`},
		{"factor", `{retry: {backoff: {factor: 0.5}}, roles: [{name: a, template: T}]}`, `must be at least 1`},
		{"max", `{retry: {backoff: {max: 1s}}, roles: [{name: a, template: T}]}`, `1s is less than initial, 10s`},
		{"limit", `{retry: {limit: -2}, roles: [{name: a, template: T}]}`, `-1 for no limit`},
		{"rendezvous", `{rendezvous: torch, roles: [{name: a, template: T}]}`, `"torch" is not one of`},
		{"mxnet", `{rendezvous: mxnet, roles: [{name: a, template: T}]}`, `mxnet needs a role named scheduler`},
		{"metrics", `{metrics: {log: "("}, roles: [{name: a, template: T}]}`, `RE2`},
		{"metrics groups", `{metrics: {log: "a=(.*)"}, roles: [{name: a, template: T}]}`, `a group named value`},
		{"volume source", `{roles: [{name: a, volumes: [{name: d, mountPath: /d}], template: T}]}`, `a volume needs a source`},
		{"volume path", `{roles: [{name: a, volumes: [{name: d, emptyDir: {}}], template: T}]}`, `spec.roles[0].volumes[0].mountPath: required`},
		{"gpus", `{roles: [{name: a, gpus: {count: 2}, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}}]}`, `spec.roles[0].gpus.count: the template's first container asks for 1 of nvidia.com/gpu itself: keep one of the two`},
		{"gpus requested", `{roles: [{name: a, gpus: {count: 2}, template: {spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: 1}}}]}}}]}`, `requests["nvidia.com/gpu"]: 1 is not the limit, 2, and Kubernetes takes nvidia.com/gpu only if both are the same`},
		{"gpus negative", `{roles: [{name: a, gpus: {count: -1}, template: T}]}`, `f.yaml:4:33: spec.roles[0].gpus.count: want 0 to 1024, not -1`},
		{"gpus too many", `{roles: [{name: a, gpus: {count: 1025}, template: T}]}`, `want 0 to 1024, not 1025`},
		{"gpus in part", `{roles: [{name: a, gpus: {count: 0.5}, template: T}]}`, `spec.roles[0].gpus.count: want a whole number, not the number 0.5`},
		{"gpus in words", `{roles: [{name: a, gpus: {count: all}, template: T}]}`, `spec.roles[0].gpus.count: want a number, not the text "all"`},
		{"gpus class", `{roles: [{name: a, gpus: {count: 1, class: "a 100"}, template: T}]}`, `f.yaml:4:43: spec.roles[0].gpus.class: "a 100" cannot be a label's value: at most 63 letters`},
		{"gpus class twice", `{roles: [{name: a, gpus: {count: 1, class: a}, template: {metadata: {labels: {trainyard.dev/gpu-class: b}}, spec: {containers: [{name: c}]}}}]}`, `the template has the label trainyard.dev/gpu-class: b itself`},
		{"gpus uncounted", `{roles: [{name: a, gpus: {class: a100}, template: T}]}`, `warning: spec.roles[0].gpus: without count no GPU is asked for`},
		{"gpus resource", `{roles: [{name: a, gpus: {count: 1, resource: gpu}, template: T}]}`, `spec.roles[0].gpus.resource: "gpu" names no vendor; want a name like amd.com/gpu`},
		{"gpus resource name", `{roles: [{name: a, gpus: {count: 1, resource: a/b/c}, template: T}]}`, `"a/b/c" cannot be the name of a resource`},
		{"gpus of nobody", `{roles: [{name: a, gpus: {count: 1, resource: example.com/thing}, template: T}]}`, `warning: spec.roles[0].gpus.resource: example.com/thing is not known as a GPU`},
		{"shm", `{roles: [{name: a, shm: 0, template: T}]}`, `spec.roles[0].shm: want a size like 8Gi, not 0`},
		{"shm size", `{roles: [{name: a, shm: 8GB, template: T}]}`, `spec.roles[0].shm: want a quantity like 4, 500m or 16Gi, not the text "8GB"`},
		{"shm twice", `{roles: [{name: a, shm: 8Gi, volumes: [{name: d, emptyDir: {}, mountPath: /dev/shm/}], template: T}]}`, `spec.roles[0].shm: container "c" mounts a volume at /dev/shm itself: keep one of the two`},
		{"shm's volume", `{roles: [{name: a, shm: 8Gi, volumes: [{name: trainyard-shm, emptyDir: {}, mountPath: /d}], template: T}]}`, `volume "trainyard-shm" is declared twice`},
	}
	const template = `{spec: {containers: [{name: c}]}}`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := strings.ReplaceAll(tt.spec, "template: T", "template: "+template)
			_, said := manifesttest.Read(t, Format(), "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: j}\nspec: "+spec+"\n")
			assert.Contains(t, said, tt.want)
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, said := manifesttest.Read(t, Format(), `apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: My_Job}
spc: {}
spec:
  deadlin: 1h
  roles:
  - name: a
    replicas: two
    template: {spec: {containers: [{name: c, image: <IMAGE>, volumeMounts: [{name: v, mountPath: /v}]}]}}
`)
	assert.Equal(t, `f.yaml:3:12: metadata.name: "My_Job" may have only lower-case letters, digits and dashes, with a letter or digit at both ends; my-job would do
f.yaml:4:1: spc: unknown field; did you mean "spec"?
f.yaml:6:3: spec.deadlin: unknown field; did you mean "deadline"?
f.yaml:9:5: spec.roles[0].replicas: want a number, not the text "two"
f.yaml:10:46: spec.roles[0].template.spec.containers[0].image: "<IMAGE>" is not a valid image reference (placeholder left in?)
f.yaml:10:78: spec.roles[0].template.spec.containers[0].volumeMounts[0].name: the pod declares no volume "v"`, said)
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), short, full)
}
