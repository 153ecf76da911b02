package framework

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	head     = "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\nmetadata: {name: fw}\nspec: "
	launcher = "apiVersion: launcher.microsoft.com/v1\nkind: Framework\nmetadata: {name: fw}\nspec: "
	pod      = "pod: {spec: {restartPolicy: Never, containers: [{name: main, command: [x]}]}}"
)

func TestAbsentFieldsAreZero(t *testing.T) {
	job := manifesttest.Good(t, Format(), head+"{taskRoles: [{name: w, taskNumber: 2, task: {"+pod+"}}]}\n")
	assert.Equal(t, repo.AnyRole, job.Success)
	assert.True(t, job.Rescale)
	assert.False(t, job.Hold || job.Stop || job.Suspend)
	assert.Equal(t, repo.Cleanup{Pods: repo.CleanupAll}, job.Cleanup)
	assert.Equal(t, repo.Retry{Limit: 0, Mode: repo.ByCount}, job.Retry, "retries that look at no class know no conflict")
	r := job.Roles[0]
	assert.Equal(t, repo.Retry{Limit: 0, Mode: repo.ByCount}, r.Retry, "no back-off, no conflict delay")
	assert.Equal(t, repo.Never, r.MinFailed)
	assert.Equal(t, repo.Never, r.MinSucceeded)
	assert.Empty(t, r.MainContainer)
	assert.Nil(t, r.ForceDeleteAfter)
	assert.Equal(t, "ContainerTransientFailed", job.Rules[0].Name)
	assert.Equal(t, "FallbackToLogsOnError", string(r.Template.Spec.Containers[0].TerminationMessagePolicy))
}

func TestFields(t *testing.T) {
	job := manifesttest.Good(t, Format(), head+`
  description: d
  executionType: Create
  retryPolicy: {fancyRetryPolicy: true, maxRetryCount: -2}
  taskRoles:
  - name: master
    taskNumber: 1
    frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceededTaskCount: 1}
    task:
      retryPolicy: {fancyRetryPolicy: true, maxRetryCount: -1}
      podGracefulDeletionTimeoutSec: 600
      pod:
        metadata: {labels: {mine: "1"}, name: ignored}
        spec:
          restartPolicy: OnFailure
          containers: [{name: main, terminationMessagePolicy: File, ports: [{containerPort: 8888}]}]
  - {name: worker, taskNumber: 3, frameworkAttemptCompletionPolicy: {minFailedTaskCount: -1, minSucceededTaskCount: 3}, task: {`+pod+`}}
`)
	assert.Equal(t, "d", job.Description)
	assert.True(t, job.Hold)
	assert.Equal(t, repo.Always, job.Retry.Limit)
	assert.Equal(t, repo.ByClass, job.Retry.Mode)
	assert.Equal(t, repo.Span{Min: time.Minute, Max: 15 * time.Minute}, job.Retry.ConflictDelay)
	m := job.Role("master")
	assert.Equal(t, repo.Unlimited, m.Retry.Limit)
	assert.Equal(t, 10*time.Minute, *m.ForceDeleteAfter)
	assert.Equal(t, int32(1), m.MinFailed)
	assert.Equal(t, int32(8888), m.Port)
	assert.Equal(t, "File", string(m.Template.Spec.Containers[0].TerminationMessagePolicy))
	assert.Equal(t, map[string]string{"mine": "1", repo.LabelRole: "master"}, m.Template.Labels)
	assert.Empty(t, m.Template.Name)
	assert.Equal(t, int32(3), job.Role("worker").MinSucceeded)
	assert.Equal(t, repo.Never, job.Role("worker").MinFailed)

	stopped := manifesttest.Good(t, Format(), launcher+"{executionType: Stop, taskRoles: [{name: w, taskNumber: 1, task: {"+pod+"}}]}\n")
	assert.True(t, stopped.Stop)
}

func TestTheLauncherIsDifferent(t *testing.T) {
	job, said := manifesttest.Read(t, Format(), launcher+`
  taskroles:
  - {name: w, taskNumber: 2, frameworkAttemptCompletionPolicy: {minSucceededTaskCount: -1}, task: {podGracefulDeletionTimeoutSec: 5, `+pod+`}}
`)
	require.NotNil(t, job)
	assert.Contains(t, said, `warning: spec.taskroles: written "taskroles"; read as "taskRoles"`)
	assert.Contains(t, said, "podGracefulDeletionTimeoutSec: ignored")
	r := job.Roles[0]
	assert.Equal(t, int32(1), r.MinFailed, "0 is a rule")
	assert.Equal(t, repo.Never, r.MinSucceeded)
	assert.Nil(t, r.ForceDeleteAfter)
	assert.False(t, job.Rescale)
	assert.Equal(t, "ContainerOOMKilled", job.Rules[0].Name)

	_, said = manifesttest.Read(t, Format(), head+"{taskroles: []}\n")
	assert.Contains(t, said, `spec.taskroles: unknown field ignored; did you mean "taskRoles"?`)
	_, said = manifesttest.Read(t, Format(), launcher+"{executionType: Create}\n")
	assert.Contains(t, said, `"Create" is not one of Start, Stop`)
}

func TestEnvironment(t *testing.T) {
	job := manifesttest.Good(t, Format(), head+`{taskRoles: [{name: w, taskNumber: 2, task: {pod: {spec: {restartPolicy: Never,
  initContainers: [{name: init}], containers: [{name: main, command: ["{{FC_TASKROLE_NAME}}-{{FC_TASK_INDEX}}-{{OTHER}}"], env: [{name: MINE, value: $(FC_TASK_INDEX)}]}]}}}}]}
`)
	p := manifesttest.Pod(t, job, "w", 1)
	want := []string{
		"FC_FRAMEWORK_NAMESPACE=default", "FC_FRAMEWORK_NAME=fw", "FC_TASKROLE_NAME=w", "FC_TASK_INDEX=1", "FC_CONFIGMAP_NAME=fw-attempt",
		"FC_POD_NAME=fw-abc-w-1-1-2", "FC_FRAMEWORK_UID=fw-abc", "FC_FRAMEWORK_ATTEMPT_ID=1", "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID=1_fw-abc-1",
		"FC_CONFIGMAP_UID=fw-abc-1", "FC_TASKROLE_UID=fw-abc-1-w", "FC_TASK_UID=fw-abc-1-w-1", "FC_TASK_ATTEMPT_ID=2",
		"FC_POD_UID=<metadata.uid>", "FC_TASK_ATTEMPT_INSTANCE_UID=2_$(FC_POD_UID)",
	}
	assert.Equal(t, want, manifesttest.Env(t, p, "init"))
	assert.Equal(t, append(want, "MINE=$(FC_TASK_INDEX)"), manifesttest.Env(t, p, "main"))
	assert.Equal(t, []string{"w-1-{{OTHER}}"}, p.Spec.Containers[0].Command)
	assert.Len(t, p.Annotations, 13+2)
	assert.Equal(t, "1", p.Labels["FC_TASK_INDEX"])
	assert.Equal(t, "w", p.Labels["FC_TASKROLE_NAME"])

	job = manifesttest.Good(t, Format(), launcher+`{taskRoles: [{name: w, taskNumber: 2, task: {pod: {spec: {restartPolicy: Never,
  containers: [{name: main, command: ["{{FC_TASK_INDEX}}"], env: [{name: TASK_INDEX, value: "7"}]}]}}}}]}
`)
	p = manifesttest.Pod(t, job, "w", 1)
	assert.Equal(t, []string{
		"TASK_INDEX=7", "FRAMEWORK_NAME=fw", "TASKROLE_NAME=w", "TASK_INDEX=1", "CONFIGMAP_NAME=fw-attempt", "POD_NAME=fw-abc-w-1-1-2", "POD_NAMESPACE=default",
		"FRAMEWORK_ATTEMPT_ID=1", "FRAMEWORK_ATTEMPT_INSTANCE_UID=1_fw-abc-1", "CONFIGMAP_UID=fw-abc-1", "TASK_ATTEMPT_ID=2",
		"POD_UID=<metadata.uid>", "TASK_ATTEMPT_INSTANCE_UID=2_$(POD_UID)",
	}, manifesttest.Env(t, p, "main"))
	assert.Equal(t, []string{"{{FC_TASK_INDEX}}"}, p.Spec.Containers[0].Command)
	assert.Len(t, p.Annotations, 10+2)
}

func TestProblems(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"dash", strings.Replace(head, "fw", "tf-example", 1) + "{taskRoles: [{name: w, taskNumber: 1, task: {" + pod + "}}]}",
			`f.yaml:3:12: warning: metadata.name: "tf-example": FrameworkController accepts only [a-z0-9]{1,63}; accepted here because it is a valid DNS label`},
		{"no end", head + "{taskRoles: [{name: worker, taskNumber: 1, task: {" + pod + "}}, {name: ps, taskNumber: 1, task: {" + pod + "}}]}",
			`warning: spec.taskRoles[1].frameworkAttemptCompletionPolicy: no completion rule can end this Framework while role "ps" keeps running`},
		{"lost mounts", head + "{taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {restartPolicy: Never, volumes: [{name: v}], containers: [{name: tf, olumeMounts: [{name: v, mountPath: /v}]}]}}}}]}",
			`warning: spec.taskRoles[0].task.pod.spec.containers[0].olumeMounts: unknown field ignored; did you mean "volumeMounts"? Container "tf" has no mount for volume "v"`},
		{"restart", head + "{taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {containers: [{name: tf}]}}}}]}", `Always (the default) restarts a container that has ended`},
		{"no tasks", head + "{}", `warning: spec.taskRoles: a Framework without tasks never ends`},
		{"twice", head + "{taskRoles: [{name: w, task: {" + pod + "}}, {name: w, task: {" + pod + "}}]}", `task role "w" is defined twice`},
		{"retries", head + "{retryPolicy: {maxRetryCount: -3}}", `f.yaml:4:22: spec.retryPolicy.maxRetryCount: want -2 (always), -1 (after every failure) or a number from 0, not -3`},
		{"tasks", head + "{taskRoles: [{name: w, taskNumber: 10001, task: {" + pod + "}}]}", `want 0 to 10000, not 10001`},
		{"count", head + "{taskRoles: [{name: w, taskNumber: 1, frameworkAttemptCompletionPolicy: {minFailedTaskCount: -2}, task: {" + pod + "}}]}", `want -1 (no rule) or a number, not -2`},
		{"never reached", head + "{taskRoles: [{name: w, taskNumber: 1, frameworkAttemptCompletionPolicy: {minFailedTaskCount: 2}, task: {" + pod + "}}]}", `warning: spec.taskRoles[0].frameworkAttemptCompletionPolicy.minFailedTaskCount: 2 can never be reached by 1 tasks`},
		{"execution type", head + "{executionType: start}", `"start" is not one of Create, Start, Stop; did you mean "Start"?`},
		{"placeholder image", head + "{taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {restartPolicy: Never, containers: [{name: tf, image: <IMAGE>}]}}}}]}", `placeholder left in?`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), tt.text+"\n")
			assert.Contains(t, said, tt.want)
		})
	}
	manifesttest.Good(t, Format(), head+`{taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {restartPolicy: Never, containers: [{name: "c{{FC_TASK_INDEX}}", image: "r/{{FC_FRAMEWORK_NAME}}:1"}]}}}}]}`+"\n")
}

func TestCorpus(t *testing.T) {
	manifesttest.Corpus(t, Format(), func(name, said string) {
		t.Logf("%s\n%s", name, said)
		for _, line := range strings.Split(said, "\n") {
			assert.True(t, line == "" || strings.Contains(line, "warning: "), line)
		}
	})
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), head+"{taskRoles: [{name: w, taskNumber: 2, task: {"+pod+"}}]}", launcher+"{taskroles: [{name: a, task: {"+pod+"}}]}",
		barred("{name: BARRIER_CHECK_TIMEOUT_SEC, value: '1200'}", atBarrier, "emptyDir: {}"))
}
