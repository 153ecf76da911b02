package render

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	operators = "operators: {frameworkController: ops/fc.yaml, tfJob: ops/tf.yaml}\n"
	gpuJob    = "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: t}\nspec: {replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, image: a/b, resources: {limits: {example.com/gpu: 1}}}]}}}]}\n"
	framed    = "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\nmetadata: {name: f}\nspec: {retryPolicy: {fancyRetryPolicy: true}, taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}]}\n"
	gpuMap    = `apiVersion: v1
kind: ConfigMap
metadata: {name: tf-job-operator-config}
data:
  controller_config_file.yaml: |
    grpcServerFilePath: /opt/x.py
    Accelerators:
      example.com/gpu:
        envVars: [{name: LD, value: /v}]
        volumes:
        - {name: lib, mountPath: /lib/v, hostPath: PATH}
---
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: tf-job-operator}
`
)

func TestOperators(t *testing.T) {
	files := map[string]string{
		"trainyard.yaml": operators, "jobs/t.yaml": gpuJob, "jobs/f.yaml": framed,
		"ops/fc.yaml": "kubeClientQps: 200\nframeworkMinRetryDelaySecForTransientConflictFailed: 5\npodFailureSpec: [{code: 255, phrase: Mine, podPatterns: [{containers: [{codeRange: {min: 1}}]}]}]\n",
		"ops/tf.yaml": strings.Replace(gpuMap, "PATH", "/host/lib", 1),
	}
	r := New(environmentOf)
	read := func() repo.Definitions {
		defs, err := r.Render(context.Background(), snapshotOf(files))
		require.NoError(t, err)
		return defs
	}
	defs := read()
	require.Empty(t, defs.Invalid)
	for _, p := range defs.Problems {
		assert.Contains(t, p.Error(), "warning", "the case of a key alone")
	}
	f, tf := defs.Jobs[0], defs.Jobs[1]
	assert.Equal(t, repo.Span{Min: 5 * time.Second, Max: 15 * time.Minute}, f.Retry.ConflictDelay)
	var names []string
	for _, rule := range f.Rules {
		names = append(names, rule.Name)
	}
	assert.Equal(t, []string{
		"ContainerTransientFailed", "ContainerTransientConflictFailed", "ContainerPermanentFailed", "PodExternalDeleted", "PodNodeLost", "ContainerStartInterrupted",
		"Mine", "ContainerUnrecognizedFailed", "PodFailedWithoutFailedContainer",
	}, names, "the file takes the place of the shipped list, behind what is predefined")
	pod := tf.Roles[0].Template.Spec
	assert.Equal(t, "/host/lib", pod.Volumes[0].HostPath.Path)
	assert.Equal(t, "/lib/v", pod.Containers[0].VolumeMounts[0].MountPath)

	digest := tf.Digest
	files["ops/tf.yaml"] = strings.Replace(gpuMap, "PATH", "/other", 1)
	tf = read().Jobs[1]
	assert.Equal(t, "/other", tf.Roles[0].Template.Spec.Volumes[0].HostPath.Path, "a changed file renders again")
	assert.Equal(t, digest, tf.Digest, "but runs nothing again")
}

func TestOperatorsGoneWrong(t *testing.T) {
	for _, row := range []struct{ settings, file, want string }{
		{"operators: {tfJob: ../x.yaml}", "", `operators.tfJob: "../x.yaml" leads out of the repository`},
		{"operators: {tfJob: 'https://example.com/x.yaml'}", "", "is a URL or a Git address"},
		{"operators: {tfJob: ops/none.yaml}", "", `"ops/none.yaml" is no regular file of this repository`},
		{"operators: {tfjob: ops/tf.yaml}", "", `did you mean "tfJob"?`},
		{operators, strings.Replace(gpuMap, "PATH", "../x", 1), `ops/tf.yaml:11: Accelerators["example.com/gpu"].volumes[0].hostPath: want an absolute path, not "../x"`},
		{operators, "kind: Deployment\n", "want the operator's configuration, or a ConfigMap with the key controller_config_file.yaml"},
		{operators, "- a\n", "want a map"},
		{operators, "a: [\n", "ops/tf.yaml:"},
	} {
		defs := render(t, map[string]string{"trainyard.yaml": row.settings + "\n", "jobs/t.yaml": gpuJob, "ops/tf.yaml": row.file, "ops/fc.yaml": "podFailureSpec: []\n"})
		var said []string
		for _, p := range defs.Problems {
			said = append(said, p.Error())
		}
		assert.Contains(t, strings.Join(said, "\n"), row.want, row.settings)
		assert.Empty(t, defs.Jobs, row.want)
	}
}

// shippedConfiguration says what the configuration that FrameworkController
// ships with says, in its own form.
const shippedConfiguration = `
podFailureSpec:
- {code: -1000, phrase: PodEvicted, type: {attributes: [Transient]}, podPatterns: [{reasonRegex: '(?i)^Evicted$', messageRegex: '(?ms).*'}]}
- {code: -1001, phrase: PodNodeLost, type: {attributes: [Transient]}, podPatterns: [{reasonRegex: '(?i)^NodeLost$'}]}
- {code: -1002, phrase: PodScheduledToInsufficientResourceNode, type: {attributes: [Transient]}, podPatterns: [{reasonRegex: '(?i)^OutOf\S+$'}]}
- {code: -1003, phrase: PodPreemptedForCriticalPod, type: {attributes: [Transient]}, podPatterns: [{reasonRegex: '(?i)^Preempting$'}]}
- {code: -1004, phrase: PodDeadlineExceeded, type: {attributes: [Permanent]}, podPatterns: [{reasonRegex: '(?i)^DeadlineExceeded$'}]}
- {code: -1005, phrase: PodNodeAdmissionForbidden, type: {attributes: [Permanent]}, podPatterns: [{reasonRegex: '(?i)^Forbidden$'}]}
- code: -1006
  phrase: PodNodeAdmissionUnexpectedError
  type: {attributes: [Transient]}
  podPatterns: [{reasonRegex: '^UnexpectedAdmissionError$'}, {reasonRegex: '^UnknownReason$'}, {reasonRegex: '^InvalidNodeInfo$'}, {reasonRegex: '^UnexpectedPredicateFailureType$'}]
- {code: -1200, phrase: ContainerDockerOOMKilled, type: {attributes: [Permanent]}, podPatterns: [{containers: [{nameRegex: '.*', reasonRegex: '(?i)^OOMKilled$', codeRange: {min: 1}}]}]}
- {code: -1201, phrase: ContainerDockerCreationError, podPatterns: [{containers: [{reasonRegex: '(?i)^ContainerCannotRun$', codeRange: {min: 125, max: 125}}]}]}
- {code: -1202, phrase: ContainerDockerStartCmdPermissionDenied, type: {attributes: [Permanent]}, podPatterns: [{containers: [{reasonRegex: '(?i)^ContainerCannotRun$', codeRange: {min: 126, max: 126}}]}]}
- code: -1203
  phrase: ContainerDockerStartCmdNotFound
  type: {attributes: [Permanent]}
  podPatterns:
  - containers: [{reasonRegex: '(?i)^ContainerCannotRun$', codeRange: {min: 127, max: 127}}]
  - containers: [{reasonRegex: '(?i)^ContainerCannotRun$', codeRange: {min: 128, max: 128}, messageRegex: '(?msi).*(not found|cannot find|no such).*'}]
- {code: -1204, phrase: ContainerDockerStartUnknownError, podPatterns: [{containers: [{reasonRegex: '(?i)^ContainerCannotRun$', codeRange: {min: 128, max: 128}}]}]}
- {code: 130, phrase: ContainerSigIntReceived, type: {attributes: [Transient]}, podPatterns: [{containers: [{codeRange: {min: 130, max: 130}, nameRegex: '(?ms).*'}]}]}
- {code: 131, phrase: ContainerSigQuitReceived, type: {attributes: [Transient]}, podPatterns: [{containers: [{codeRange: {min: 131, max: 131}}]}]}
- {code: 132, phrase: ContainerSigIllReceived, type: {attributes: [Permanent]}, podPatterns: [{containers: [{codeRange: {min: 132, max: 132}}]}]}
- {code: 134, phrase: ContainerSigAbrtReceived, podPatterns: [{containers: [{codeRange: {min: 134, max: 134}}]}]}
- {code: 135, phrase: ContainerSigBusReceived, type: {attributes: [Permanent]}, podPatterns: [{containers: [{codeRange: {min: 135, max: 135}}]}]}
- {code: 136, phrase: ContainerSigFpeReceived, type: {attributes: [Permanent]}, podPatterns: [{containers: [{codeRange: {min: 136, max: 136}}]}]}
- {code: 137, phrase: ContainerSigKillReceived, type: {attributes: [Transient]}, podPatterns: [{containers: [{codeRange: {min: 137, max: 137}}]}]}
- {code: 139, phrase: ContainerSigSegvReceived, type: {attributes: [Permanent]}, podPatterns: [{containers: [{codeRange: {min: 139, max: 139}}]}]}
- {code: 141, phrase: ContainerSigPipeReceived, type: {attributes: [Permanent]}, podPatterns: [{containers: [{codeRange: {min: 141, max: 141}}]}]}
- {code: 143, phrase: ContainerSigTermReceived, type: {attributes: [Transient]}, podPatterns: [{containers: [{codeRange: {min: 143, max: 143}}]}]}
`

// TestShippedConfiguration: the configuration that FrameworkController ships
// with says what the table here says.
func TestShippedConfiguration(t *testing.T) {
	files := map[string]string{"jobs/f.yaml": framed}
	without := render(t, files)
	files["trainyard.yaml"], files["ops/fc.yaml"] = "operators: {frameworkController: ops/fc.yaml}\n", shippedConfiguration
	with := render(t, files)
	require.Empty(t, with.Problems)
	outline := func(rules []repo.FailureRule) (out []string) {
		for _, r := range rules {
			assert.Nil(t, r.Pod, "a plain rule says the same: %s", r.Name)
			line := fmt.Sprint(r.Name, r.Class, r.ExitCodes)
			if n := len(out); n == 0 || out[n-1] != line { // several patterns may be one rule
				out = append(out, line)
			}
		}
		return out
	}
	assert.Equal(t, outline(without.Jobs[0].Rules), outline(with.Jobs[0].Rules))
}
