package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Job files with a hole for what is spelled in another way, in their last line.
const (
	headTfJob     = "kind: TfJob\nmetadata: {name: j}\nspec: "
	tfJob         = "apiVersion: tensorflow.org/v1alpha1\n" + headTfJob
	tfJobFirst    = "apiVersion: mlkube.io/v1beta1\n" + headTfJob
	tfJobKubeflow = "apiVersion: kubeflow.org/v1alpha1\nkind: TFJob\nmetadata: {name: j}\nspec: "
	mxJob         = "apiVersion: mxnet.mlkube.io/v1beta1\nkind: MxJob\nmetadata: {name: j}\nspec: "
	launcher      = "apiVersion: launcher.microsoft.com/v1\nkind: Framework\nmetadata: {name: j}\nspec: "
	controller    = "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\nmetadata: {name: j}\nspec: "
	later         = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: j}\nspec: "
	beforeV1      = "apiVersion: kubeflow.org/v1beta1\nkind: TFJob\nmetadata: {name: j}\nspec: "
	batch         = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: "
	trainingJob   = "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: j}\nspec: "

	tensorflowPod = "template: {spec: {containers: [{name: tensorflow, image: a}]}}"
	mxnetPod      = "template: {spec: {containers: [{name: mxnet, image: a}]}}"
)

// oneTask is the spec of a Framework with one task, with more in its container and in its pod.
func oneTask(inContainer, inSpec string) string {
	return "{taskRoles: [{name: a, taskNumber: 1, frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceededTaskCount: 1}, task: {pod: {spec: {" +
		inSpec + "restartPolicy: Never, containers: [{name: main, image: a" + inContainer + "}]}}}}]}\n"
}

func ownJob(inContainer string) string {
	return "{roles: [{name: a, template: {spec: {containers: [{name: main, image: a, command: [x]" + inContainer + "}]}}}]}\n"
}

// TestSpellings: what upstream took is taken, and told of unless it was right at
// its time; what it passed over is a warning; what it refused, and all that our
// own kind does not know, is an error. The nearest field is named.
func TestSpellings(t *testing.T) {
	tests := []struct {
		name, file, verdict string
		said                []string // at the key that they are about
	}{
		{"replica_specs at its time", tfJobFirst + "{replica_specs: [{" + tensorflowPod + "}]}", "accept", nil},
		{"replica_specs later", tfJob + "{replica_specs: [{" + tensorflowPod + "}]}", "warn",
			[]string{"warning: spec.replica_specs: the spelling used before August 2017; read as replicaSpecs"}},
		{"replica_specs in the last group", tfJobKubeflow + "{replica_specs: [{" + tensorflowPod + "}]}", "warn",
			[]string{"warning: spec.replica_specs: the spelling used before August 2017; read as replicaSpecs"}},
		{"replica_specs of an MxJob", mxJob + "{jobMode: local, replica_specs: [{" + mxnetPod + "}]}", "reject",
			[]string{`spec.replica_specs: unknown field; did you mean "replicaSpecs"?`}},
		{"both spellings", tfJob + "{replica_specs: [], replicaSpecs: [{" + tensorflowPod + "}]}", "reject",
			[]string{`spec.replica_specs: "replicaSpecs" and "replica_specs" both mean "replicaSpecs": keep one of them`}},
		{"tf_replica_type and tf_port at their time", tfJobFirst + "{replica_specs: [{tf_replica_type: MASTER, tf_port: 5000, " + tensorflowPod + "}]}", "accept", nil},
		{"tf_replica_type and tf_port later", tfJob + "{replicaSpecs: [{tf_replica_type: MASTER, tf_port: 5000, " + tensorflowPod + "}]}", "warn",
			[]string{"warning: spec.replicaSpecs[0].tf_replica_type: the spelling used before August 2017; read as tfReplicaType",
				"warning: spec.replicaSpecs[0].tf_port: the spelling used before August 2017; read as tfPort"}},
		{"runtimeid at its time", tfJobFirst + "{runtimeid: ab12, replicaSpecs: [{" + tensorflowPod + "}]}", "accept", nil},
		{"any case of a TfJob", tfJob + "{ReplicaSpecs: [{TFPORT: 5000, " + tensorflowPod + "}]}", "warn",
			[]string{`warning: spec.ReplicaSpecs: written "ReplicaSpecs"; read as "replicaSpecs"`, `warning: spec.ReplicaSpecs[0].TFPORT: written "TFPORT"; read as "tfPort"`}},
		{"any case of an MxJob", mxJob + "{jobmode: local, replicaSpecs: [{MxReplicaType: WORKER, PSROOTPORT: 5000, " + mxnetPod + "}]}", "warn",
			[]string{`warning: spec.jobmode: written "jobmode"; read as "jobMode"`, `warning: spec.replicaSpecs[0].MxReplicaType: written "MxReplicaType"; read as "mxReplicaType"`,
				`warning: spec.replicaSpecs[0].PSROOTPORT: written "PSROOTPORT"; read as "PsRootPort"`}},

		{"olumeMounts of the launcher", launcher + oneTask(", olumeMounts: []", ""), "warn",
			[]string{`warning: spec.taskRoles[0].task.pod.spec.containers[0].olumeMounts: unknown field ignored; did you mean "volumeMounts"?`}},
		{"olumeMounts of the controller", controller + oneTask(", olumeMounts: []", ""), "warn",
			[]string{`warning: spec.taskRoles[0].task.pod.spec.containers[0].olumeMounts: unknown field ignored; did you mean "volumeMounts"?`}},
		{"olumeMounts of a TfJob", tfJob + "{replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, image: a, olumeMounts: []}]}}}]}", "warn",
			[]string{`warning: spec.replicaSpecs[0].template.spec.containers[0].olumeMounts: unknown field ignored; did you mean "volumeMounts"?`}},
		{"olumeMounts of our own", trainingJob + ownJob(", olumeMounts: []"), "reject",
			[]string{`spec.roles[0].template.spec.containers[0].olumeMounts: unknown field; did you mean "volumeMounts"?`}},
		{"resource", launcher + oneTask(", resource: {}", ""), "warn",
			[]string{`warning: spec.taskRoles[0].task.pod.spec.containers[0].resource: unknown field ignored; did you mean "resources"?`}},
		{"ports as a mapping", launcher + oneTask(", ports: {}", ""), "reject",
			[]string{`spec.taskRoles[0].task.pod.spec.containers[0].ports: want a list, not a map`}},
		{"taskRoles beside spec", controller + oneTask("", "") + "taskRoles: []\n", "warn", []string{`warning: taskRoles: unknown field ignored`}},

		{"ActiveDeadlineSeconds of the launcher, which took any case", launcher + oneTask("", "ActiveDeadlineSeconds: 60, "), "warn",
			[]string{`warning: spec.taskRoles[0].task.pod.spec.ActiveDeadlineSeconds: written "ActiveDeadlineSeconds"; read as "activeDeadlineSeconds"`}},
		{"ActiveDeadlineSeconds of the controller, which did not", controller + oneTask("", "ActiveDeadlineSeconds: 60, "), "warn",
			[]string{`warning: spec.taskRoles[0].task.pod.spec.ActiveDeadlineSeconds: unknown field ignored; did you mean "activeDeadlineSeconds"?`}},
		{"any case of our own", trainingJob + strings.Replace(ownJob(""), "{roles", "{Suspend: true, roles", 1), "reject",
			[]string{`spec.Suspend: unknown field; did you mean "suspend"?`}},

		{"cleanupPodPolicy at its time", tfJobKubeflow + "{cleanupPodPolicy: None, replicaSpecs: [{" + tensorflowPod + "}]}", "accept", nil},
		{"cleanPodPolicy before its time", tfJobKubeflow + "{cleanPodPolicy: None, replicaSpecs: [{" + tensorflowPod + "}]}", "warn",
			[]string{`warning: spec.cleanPodPolicy: unknown field ignored; did you mean "cleanupPodPolicy"?`}},
		{"cleanupPodPolicy after its time", later + "{runPolicy: {cleanupPodPolicy: None}, tfReplicaSpecs: {Worker: {" + tensorflowPod + "}}}", "warn",
			[]string{`warning: spec.runPolicy.cleanupPodPolicy: unknown field ignored; did you mean "cleanPodPolicy"?`}},
		{"cleanPodPolicy where it stood before", later + "{cleanPodPolicy: None, tfReplicaSpecs: {Worker: {" + tensorflowPod + "}}}", "warn",
			[]string{`warning: spec.cleanPodPolicy: the place of the first operators; read as spec.runPolicy.cleanPodPolicy`}},
		{"cleanPodPolicy at its time", beforeV1 + "{cleanPodPolicy: None, tfReplicaSpecs: {Worker: {" + tensorflowPod + "}}}", "accept", nil},

		{"types of replicas in any case", later + "{tfReplicaSpecs: {WORKER: {" + tensorflowPod + "}, ps: {" + tensorflowPod + "}}}", "accept", nil},
		{"any case before there was a schema", beforeV1 + "{TFReplicaSpecs: {Worker: {" + tensorflowPod + "}}}", "warn",
			[]string{`warning: spec.TFReplicaSpecs: written "TFReplicaSpecs"; read as "tfReplicaSpecs"`}},
		{"another case under the schema", later + "{RunPolicy: {}, tfReplicaSpecs: {Worker: {" + tensorflowPod + "}}}", "warn",
			[]string{`warning: spec.RunPolicy: unknown field ignored; did you mean "runPolicy"?`}},
		{"olumeMounts of kubeflow.org", later + "{tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, image: a, olumeMounts: []}]}}}}}", "warn",
			[]string{`warning: spec.tfReplicaSpecs.Worker.template.spec.containers[0].olumeMounts: unknown field ignored; did you mean "volumeMounts"?`}},
		{"olumeMounts of a plain Job", batch + "{template: {spec: {restartPolicy: Never, containers: [{name: a, image: a, olumeMounts: []}]}}}", "reject",
			[]string{`spec.template.spec.containers[0].olumeMounts: unknown field; did you mean "volumeMounts"?`}},
		{"any case of a plain Job", batch + "{BackoffLimit: 1, template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}", "reject",
			[]string{`spec.BackoffLimit: unknown field; did you mean "backoffLimit"?`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := passed(render(t, map[string]string{"jobs/j.yaml": tt.file}))
			var said []string
			for _, e := range repo.SortErrors(problems) {
				key := e.Field[strings.LastIndex(e.Field, ".")+1:]
				line := strings.Split(tt.file, "\n")[e.Line-1]
				assert.True(t, strings.HasPrefix(line[e.Column-1:], key), "%s: %s begins at another place", e, key)
				e.File, e.Line, e.Column = "", 0, 0
				said = append(said, e.Error())
			}
			assert.Equal(t, tt.said, said)
			assert.Equal(t, tt.verdict, got)
		})
	}
}
