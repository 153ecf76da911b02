package framework

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

// barred is a Framework of two roles, the first with a barrier.
func barred(env, mount, volume string) string {
	return head + `
  description: "not a template: {{FC_POD_NAME}} {{"
  taskRoles:
  - name: ps
    taskNumber: 2
    task:
      pod:
        spec:
          restartPolicy: Never
          initContainers:
          - {name: first, image: busybox}
          - {name: frameworkbarrier, image: "reg.example:5000/frameworkcontroller/frameworkbarrier:v1", env: [` + env + `], volumeMounts: [{name: b, ` + mount + `}]}
          containers: [{name: main, image: x, volumeMounts: [{name: b, mountPath: /mnt/frameworkbarrier}]}]
          volumes: [{name: b, ` + volume + `}]
  - {name: my-worker, taskNumber: 1, frameworkAttemptCompletionPolicy: {minSucceededTaskCount: 1}, task: {` + pod + `}}
  - {name: none, task: {` + pod + `}}
`
}

const atBarrier = "mountPath: /mnt/frameworkbarrier/"

// TestBarrier holds what becomes of FrameworkBarrier (A.17).
func TestBarrier(t *testing.T) {
	job, said := manifesttest.Read(t, Format(), barred("{name: BARRIER_CHECK_TIMEOUT_SEC, value: '1200'}, {name: BARRIER_CHECK_INTERVAL_SEC, value: '5'}", atBarrier, "emptyDir: {}"))
	require.NotNil(t, job, said)
	assert.Contains(t, said, "warning: spec.taskRoles[0].task.pod.spec.initContainers[1]: the barrier is built in and waits for nothing")
	spec := job.Role("ps").Template.Spec
	require.Len(t, spec.InitContainers, 1)
	assert.Equal(t, "first", spec.InitContainers[0].Name)
	assert.Equal(t, "fw-barrier", spec.Volumes[0].ConfigMap.Name)
	assert.Nil(t, spec.Volumes[0].EmptyDir)
	assert.Equal(t, "/mnt/frameworkbarrier", spec.Containers[0].VolumeMounts[0].MountPath)

	run := repo.Run{ID: "fw-abc", Environment: "prod", Job: *job}
	objects, err := run.Objects(3, func(task repo.Task) repo.Address { return repo.Address{Host: task.String() + ".example", Port: 1} })
	require.NoError(t, err)
	require.Len(t, objects, 1)
	var m corev1.ConfigMap
	require.NoError(t, json.Unmarshal(objects[0].Raw, &m))
	assert.Equal(t, "fw-barrier", m.Name)

	script := filepath.Join(t.TempDir(), "injector.sh")
	require.NoError(t, os.WriteFile(script, []byte(m.Data["injector.sh"]), 0o755))
	out, err := exec.Command("sh", "-c", "FB_PS_PORT=4001; FB_MY_WORKER_PORT=5001; . "+script+" >/dev/null && env | grep ^FB_ | sort").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, `FB_MY_WORKER_ADDRESSES=my-worker-0.example:5001
FB_MY_WORKER_IPS=my-worker-0.example
FB_NONE_ADDRESSES=
FB_NONE_IPS=
FB_PS_ADDRESSES=ps-0.example:4001,ps-1.example:4001
FB_PS_IPS=ps-0.example,ps-1.example
`, string(out))

	var f struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ Description string }
		Status   struct {
			AttemptStatus struct {
				ID               int
				TaskRoleStatuses []struct {
					Name         string
					TaskStatuses []struct {
						Index         int
						AttemptStatus struct{ PodIP string }
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(m.Data["framework.json"]), &f), m.Data["framework.json"])
	assert.Equal(t, "fw", f.Metadata.Name)
	assert.Equal(t, "not a template: {{FC_POD_NAME}} {{", f.Spec.Description, "text of the file is no template")
	assert.Equal(t, 3, f.Status.AttemptStatus.ID)
	assert.Equal(t, "ps-1.example", f.Status.AttemptStatus.TaskRoleStatuses[0].TaskStatuses[1].AttemptStatus.PodIP)
	assert.Empty(t, f.Status.AttemptStatus.TaskRoleStatuses[2].TaskStatuses)

	job, _ = manifesttest.Read(t, Format(), barred("", "mountPath: /mnt/frameworkbarrier, subPath: sub", "emptyDir: {}"))
	assert.Equal(t, "sub/injector.sh", job.Role("ps").Template.Spec.Volumes[0].ConfigMap.Items[0].Path)
	job, _ = manifesttest.Read(t, Format(), barred("", "mountPath: /elsewhere", "emptyDir: {}"))
	assert.NotNil(t, job.Role("ps").Template.Spec.Volumes[0].EmptyDir, "nobody could have read what it wrote")
}

func TestBarrierGoneWrong(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{barred("{name: BARRIER_CHECK_INTERVAL_SEC, value: '4'}", atBarrier, "emptyDir: {}"), `initContainers[1].env[0].value: want a number of seconds, 5 or more, not "4"`},
		{barred("{name: BARRIER_CHECK_TIMEOUT_SEC, value: '59'}", atBarrier, "emptyDir: {}"), `want a number of seconds, 60 to 1200, not "59"`},
		{barred("{name: BARRIER_CHECK_TIMEOUT_SEC, value: '1201'}", atBarrier, "emptyDir: {}"), "60 to 1200"},
		{barred("{name: BARRIER_CHECK_TIMEOUT_SEC, value: 10m}", atBarrier, "emptyDir: {}"), "60 to 1200"},
		{barred("", atBarrier, "hostPath: {path: /x}"), "the volume that the barrier writes to has to be an emptyDir"},
		{strings.Replace(barred("", atBarrier, "emptyDir: {}"), "taskNumber: 2", "taskNumber: 9000", 1), "9001 tasks are too many for a barrier"},
	} {
		job, said := manifesttest.Read(t, Format(), row.text)
		assert.Nil(t, job)
		assert.Contains(t, said, row.want)
	}
	for image, is := range map[string]bool{
		"frameworkcontroller/frameworkbarrier": true, "frameworkcontroller/frameworkbarrier:v0.6.0": true, "a.b/c/frameworkcontroller/frameworkbarrier@sha256:0": true,
		"frameworkcontroller/frameworkbarrier-x": false, "xframeworkcontroller/frameworkbarrier": false, "frameworkbarrier": false,
	} {
		assert.Equal(t, is, barrierImage.MatchString(image), fmt.Sprint(image))
	}
}
