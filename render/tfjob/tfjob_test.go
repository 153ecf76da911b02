package tfjob

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	tf1      = "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: j}\nspec:\n"
	first    = "apiVersion: mlkube.io/v1beta1\nkind: TfJob\nmetadata: {name: j}\nspec:\n"
	kubeflow = "apiVersion: kubeflow.org/v1alpha1\nkind: TFJob\nmetadata: {name: j}\nspec:\n"
	template = "template: {spec: {restartPolicy: OnFailure, containers: [{name: tensorflow, image: a/b}]}}"
)

func TestDefaults(t *testing.T) {
	job := manifesttest.Good(t, Format(), tf1+"  replicaSpecs: [{"+template+"}]\n")
	assert.Equal(t, repo.AllRoles, job.Success)
	assert.Equal(t, repo.CleanupNone, job.Cleanup.Pods)
	assert.Equal(t, repo.Retry{Mode: repo.ByFault}, job.Retry)
	require.Len(t, job.Roles, 1)
	r := job.Roles[0]
	assert.Equal(t, "master", r.Name)
	assert.Equal(t, int32(1), r.Replicas)
	assert.Equal(t, int32(2222), r.Port)
	assert.Equal(t, "tensorflow", r.MainContainer)
	assert.False(t, r.Daemon)
	assert.Equal(t, int32(0), *r.Chief)
	assert.Equal(t, int32(1), r.MinSucceeded)
	assert.Equal(t, int32(1), r.MinFailed)
	assert.Equal(t, repo.ByClass, r.Retry.Mode)
	assert.Zero(t, r.Retry.Limit, "what is retryable is retried without limit, the rest not at all")
	assert.Equal(t, "Never", string(r.Template.Spec.RestartPolicy))

	assert.Equal(t, repo.CleanupAll, manifesttest.Good(t, Format(), kubeflow+"  replicaSpecs: [{"+template+"}]\n").Cleanup.Pods)
}

func TestDistributed(t *testing.T) {
	job := manifesttest.Good(t, Format(), tf1+`  RuntimeId: 76no
  tfImage: my/image:2
  replicaSpecs:
  - {tfReplicaType: MASTER, template: {spec: {restartPolicy: OnFailure, containers: [{name: side}, {name: tensorflow, env: [{name: TF_CONFIG, value: mine}]}]}}}
  - {tfReplicaType: WORKER, replicas: 2, tfPort: 3333, `+template+`}
  - {tfReplicaType: PS, replicas: 2}
`)
	for _, name := range []string{"worker", "ps"} {
		r := job.Role(name)
		assert.True(t, r.Daemon)
		assert.Equal(t, repo.Never, r.MinFailed, "a %s never fails the job", name)
		assert.Equal(t, repo.Never, r.MinSucceeded)
		assert.Nil(t, r.Chief)
	}
	const cluster = `TF_CONFIG={"cluster":{"master":["master-0.example:2222"],"ps":["ps-0.example:2222","ps-1.example:2222"],"worker":["worker-0.example:3333","worker-1.example:3333"]},`
	p := manifesttest.Pod(t, job, "ps", 1)
	assert.Equal(t, []string{cluster + `"task":{"type":"ps","index":1},"environment":"cloud"}`}, manifesttest.Env(t, p, "tensorflow"))
	assert.Equal(t, "my/image:2", p.Spec.Containers[0].Image)
	assert.Equal(t, "python", p.Spec.Containers[0].Command[0])
	for label, want := range map[string]string{"tensorflow.org": "", "job_type": "PS", "runtime_id": "76no", "tf_job_name": "j", "task_index": "1"} {
		got, ok := p.Labels[label]
		assert.True(t, ok && got == want, "%s: %q", label, got)
	}
	p = manifesttest.Pod(t, job, "master", 0)
	assert.Equal(t, []string{"TF_CONFIG=mine", cluster + `"task":{"type":"master","index":0},"environment":"cloud"}`}, manifesttest.Env(t, p, "tensorflow"), "ours wins")
	assert.Empty(t, manifesttest.Env(t, p, "side"))
}

func TestChief(t *testing.T) {
	job := manifesttest.Good(t, Format(), kubeflow+`  schedulerName: volcano
  cleanupPodPolicy: Running
  terminationPolicy: {chief: {replicaName: WORKER, replicaIndex: 1}}
  replicaSpecs:
  - {tfReplicaType: WORKER, replicas: 2, `+template+`}
  - {tfReplicaType: PS, `+template+`}
`)
	w := job.Role("worker")
	assert.Equal(t, int32(1), *w.Chief)
	assert.False(t, w.Daemon)
	assert.Equal(t, "volcano", w.Template.Spec.SchedulerName)
	assert.Equal(t, repo.CleanupRunning, job.Cleanup.Pods)
	assert.Contains(t, manifesttest.Pod(t, job, "ps", 0).Labels, "kubeflow.org")
}

func TestReadBackFromTheOperator(t *testing.T) {
	job, said := manifesttest.Read(t, Format(), strings.Replace(tf1, "{name: j}", "{name: j, uid: x, creationTimestamp: 2017-10-20T22:27:38Z, clusterName: \"\"}", 1)+`  RuntimeId: 76no
  replicaSpecs:
  - {IsDefaultPS: false, tfPort: 2222, tfReplicaType: MASTER, template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: tensorflow, resources: {}}]}}}
  - {IsDefaultPS: true, replicas: 2, tfReplicaType: PS, template: {spec: {containers: [{name: tensorflow, image: a/b, volumeMounts: [{name: ps-config-volume, mountPath: /ps-server}]}]}}}
  tensorboard: {logDir: /tmp, serviceType: "", volumeMounts: null, volumes: null}
status: {phase: Done}
`)
	require.NotNil(t, job, said)
	assert.Contains(t, said, "warning: status: status and server-set metadata ignored")
	c := job.Role("ps").Template.Spec.Containers[0]
	assert.Empty(t, c.VolumeMounts)
	assert.Equal(t, "python", c.Command[0])
	assert.Empty(t, job.Role("master").Template.Spec.Containers[0].Command)
}

func TestSpellings(t *testing.T) {
	const specs = "  replica_specs: [{tf_replica_type: MASTER, tf_port: 5, " + template + "}]\n  runtimeid: ab12\n"
	job, said := manifesttest.Read(t, Format(), tf1+specs)
	require.NotNil(t, job)
	assert.Contains(t, said, "f.yaml:5:3: warning: spec.replica_specs: the spelling used before August 2017; read as replicaSpecs")
	assert.Equal(t, int32(5), job.Roles[0].Port)
	manifesttest.Good(t, Format(), first+specs)

	_, said = manifesttest.Read(t, Format(), tf1+"  replica_specs: []\n  replicaSpecs: []\n")
	assert.Contains(t, said, `"replicaSpecs" and "replica_specs" both mean "replicaSpecs": keep one of them`)
	_, said = manifesttest.Read(t, Format(), tf1+"  ReplicaSpecs: [{TFPort: two, "+template+"}]\n")
	assert.Contains(t, said, `warning: spec.ReplicaSpecs: written "ReplicaSpecs"; read as "replicaSpecs"`)
	assert.Contains(t, said, `f.yaml:5:19: spec.ReplicaSpecs[0].TFPort: want a number, not the text "two"`)
}

func TestMistakes(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", tf1 + "  replicaSpecs: []", "spec.replicaSpecs: Missing ReplicaSpec for chief: MASTER"},
		{"no chief", tf1 + "  replicaSpecs: [{tfReplicaType: WORKER, " + template + "}]", "Missing ReplicaSpec for chief: MASTER"},
		{"two masters", tf1 + "  replicaSpecs: [{replicas: 2, " + template + "}]", "spec.replicaSpecs[0].replicas: The MASTER must have Replicas = 1"},
		{"type", tf1 + "  replicaSpecs: [{tfReplicaType: master, " + template + "}]", "tfReplicaSpec.TfReplicaType is master but must be one of [MASTER PS WORKER]"},
		{"container", tf1 + "  replicaSpecs: [{template: {spec: {containers: [{name: tf}]}}}]", "Replica type MASTER is missing a container named tensorflow"},
		{"server container", tf1 + "  replicaSpecs: [{" + template + "}, {tfReplicaType: PS, template: {spec: {containers: [{name: tf}]}}}]", "Replica type PS is missing a container named tensorflow"},
		{"no template", tf1 + "  replicaSpecs: [{tfReplicaType: WORKER}]", "spec.replicaSpecs[0].template: required: Replica is missing Template"},
		{"server without template, later", kubeflow + "  replicaSpecs: [{" + template + "}, {tfReplicaType: PS}]", "spec.replicaSpecs[1].template: required"},
		{"twice", tf1 + "  replicaSpecs: [{" + template + "}, {" + template + "}]", "two replica specs of type MASTER"},
		{"empty", tf1 + "  replicaSpecs: [null]", "spec.replicaSpecs[0]: a replica spec is empty"},
		{"port", tf1 + "  replicaSpecs: [{tfPort: 0, " + template + "}]", "0 is no port"},
		{"log dir", tf1 + "  tensorboard: {}\n  replicaSpecs: [{" + template + "}]", "tbReplicaSpec.LogDir must be specified"},
		{"service type", tf1 + "  tensorboard: {logDir: a, serviceType: Cloud}\n  replicaSpecs: [{" + template + "}]", `"Cloud" is not one of ClusterIP, NodePort, LoadBalancer`},
		{"tensorboard, later", kubeflow + "  tensorboard: {logDir: a}\n  replicaSpecs: [{" + template + "}]", "warning: spec.tensorboard: ignored: TFJob of kubeflow.org has no TensorBoard"},
		{"tensorboard's mount", tf1 + "  tensorboard: {logDir: a, volumeMounts: [{name: x, mountPath: /x}]}\n  replicaSpecs: [{" + template + "}]", "f.yaml:5:44: spec.tensorboard.volumeMounts[0].name: the pod declares no volume \"x\""},
		{"tensorboard's volume", tf1 + "  tensorboard: {logDir: a, volumes: [{name: A_b}]}\n  replicaSpecs: [{" + template + "}]", "spec.tensorboard.volumes[0].name: \"A_b\" may have only"},
		{"image", tf1 + "  tfImage: <X>\n  tensorboard: {logDir: a}\n  replicaSpecs: [{" + template + "}]", "f.yaml:5:3: spec.tfImage: \"<X>\" is not a valid image reference"},
		{"runtime id of a service", tf1 + "  RuntimeId: a_b\n  tensorboard: {logDir: a}\n  replicaSpecs: [{" + template + "}]", "spec.RuntimeId: \"a_b\" cannot be part of the name of TensorBoard's Service"},
		{"scheduler, too early", tf1 + "  schedulerName: volcano\n  replicaSpecs: [{" + template + "}]", "warning: spec.schedulerName: ignored"},
		{"termination policy", tf1 + "  terminationPolicy: {}\n  replicaSpecs: [{" + template + "}]", "invalid termination policy"},
		{"chief index", tf1 + "  terminationPolicy: {chief: {replicaName: MASTER, replicaIndex: 1}}\n  replicaSpecs: [{" + template + "}]", "MASTER has no replica 1"},
		{"clean-up", kubeflow + "  cleanupPodPolicy: Some\n  replicaSpecs: [{" + template + "}]", `"Some" is not one of All, Running, None`},
		{"placeholder", tf1 + "  replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, image: x/<SAMPLE IMAGE>}]}}}]",
			`spec.replicaSpecs[0].template.spec.containers[0].image: "x/<SAMPLE IMAGE>" is not a valid image reference (placeholder left in?)`},
		{"gpu", tf1 + "  replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, resources: {requests: {alpha.kubernetes.io/nvidia-gpu: 1}}}]}}}]",
			`resources.requests["alpha.kubernetes.io/nvidia-gpu"]: has no matching limit`},
		{"runtime id", tf1 + "  RuntimeId: \"{{.X}}\"\n  replicaSpecs: [{" + template + "}]", `spec.RuntimeId: "{{.X}}" cannot be a label's value`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), tt.text+"\n")
			assert.Contains(t, said, tt.want)
		})
	}
}

// TestTensorBoard holds what TensorBoard becomes (B.10).
func TestTensorBoard(t *testing.T) {
	job := manifesttest.Good(t, Format(), tf1+`  RuntimeId: A6no
  tfImage: my/image:2
  tensorboard: {logDir: /logs/x, serviceType: LoadBalancer, volumes: [{name: v, azureFile: {secretName: s, shareName: d}}], volumeMounts: [{name: v, mountPath: /logs}]}
  replicaSpecs: [{`+template+`}]
`)
	require.Len(t, job.Roles, 2)
	r := job.Role("tensorboard")
	assert.True(t, r.Daemon && r.Outlives)
	assert.Equal(t, repo.Always, r.Retry.Limit)
	assert.Equal(t, repo.ByCount, r.Retry.Mode, "no class of failure ends it")
	assert.Equal(t, repo.Never, r.MinFailed)
	assert.Equal(t, repo.Never, r.MinSucceeded)
	assert.Nil(t, r.Chief)
	p := manifesttest.Pod(t, job, "tensorboard", 0)
	c := p.Spec.Containers[0]
	assert.Equal(t, "tensorboard-a6no", c.Name)
	assert.Equal(t, "my/image:2", c.Image)
	assert.Equal(t, []string{"tensorboard", "--logdir", "/logs/x", "--host", "0.0.0.0", "--port", "$(TRAINYARD_PORT)"}, c.Command)
	assert.Equal(t, int32(6006), c.Ports[0].ContainerPort)
	assert.Equal(t, "/logs", c.VolumeMounts[0].MountPath)
	assert.Contains(t, c.Env, corev1.EnvVar{Name: "TRAINYARD_PORT", Value: "6006"})
	assert.Empty(t, manifesttest.Env(t, p, c.Name), "no TF_CONFIG")
	assert.NotContains(t, manifesttest.Env(t, manifesttest.Pod(t, job, "master", 0), "tensorflow")[0], "tensorboard", "it is no part of the cluster")

	require.Len(t, job.Objects, 1)
	var s corev1.Service
	require.NoError(t, json.Unmarshal(job.Objects[0].Raw, &s))
	assert.Equal(t, "tensorboard-a6no", s.Name)
	assert.Equal(t, corev1.ServiceTypeLoadBalancer, s.Spec.Type)
	assert.Equal(t, []corev1.ServicePort{{Name: "tb-port", Port: 80, TargetPort: intstr.FromInt32(6006)}}, s.Spec.Ports)
	assert.Equal(t, map[string]string{"app": "tensorboard", "tf_job_name": "j", "runtime_id": "A6no", "tensorflow.org": ""}, s.Spec.Selector)
	for k, v := range s.Spec.Selector {
		assert.Equal(t, v, p.Labels[k], "the Service finds the pod by %s", k)
	}
	assert.NotContains(t, p.Labels, "job_type")

	long := strings.Repeat("j", 60)
	job = manifesttest.Good(t, Format(), strings.Replace(first, "{name: j}", "{name: "+long+"}", 1)+"  tensorboard: {logDir: a}\n  replicaSpecs: [{"+template+"}]\n")
	assert.Len(t, job.Objects[0].Name, 63)
	assert.Contains(t, manifesttest.Pod(t, job, "master", 0).Labels, "mlkube.io", "the first group's own label")
	job = manifesttest.Good(t, Format(), tf1+"  tensorboard: {logDir: a}\n  replicaSpecs: [{"+template+"}]\n")
	assert.Equal(t, "tensorboard-j", job.Objects[0].Name, "without an ID of its own")
}

// TestCodes: the releases of kubeflow.org had a table of codes of their own (B.8).
func TestCodes(t *testing.T) {
	for _, row := range []struct {
		head  string
		class repo.Class
	}{{first, repo.Transient}, {tf1, repo.Transient}, {kubeflow, repo.Permanent}} {
		job := manifesttest.Good(t, Format(), row.head+"  replicaSpecs: [{"+template+"}]\n")
		for _, rule := range job.Rules {
			if rule.Container == "tensorflow" && slices.ContainsFunc(rule.ExitCodes, func(c repo.CodeRange) bool { return c.Min <= 139 && 139 <= c.Max }) {
				assert.Equal(t, row.class, rule.Class, row.head)
			}
		}
	}
}

// TestCorpus holds the verdicts on the files that the systems shipped.
func TestCorpus(t *testing.T) {
	manifesttest.Corpus(t, Format(), func(name, said string) { t.Logf("%s\n%s", name, said) })
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), tf1+"  replicaSpecs: [{"+template+"}, {tfReplicaType: PS, replicas: 2}]\n", first+"  replica_specs: [{"+template+"}]\n", kubeflow+"  replicaSpecs: [{"+template+"}]\n",
		tf1+"  RuntimeId: a1b2\n  tensorboard: {logDir: /a, volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /a}]}\n  replicaSpecs: [{"+template+"}]\n")
}
