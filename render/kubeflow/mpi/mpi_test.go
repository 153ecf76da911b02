package mpi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

const (
	first  = "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: j}\nspec:\n"
	second = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: j}\nspec:\n"
	start  = "Launcher: {replicas: 1, template: {spec: {serviceAccountName: mpi, containers: [{name: run, image: a, command: [mpirun, x]}]}}}"
	work   = "Worker: {replicas: 2, template: {spec: {containers: [{name: rank, image: a}, {name: side, image: b}]}}}"
	pair   = "  mpiReplicaSpecs: {" + start + ", " + work + "}\n"
)

// files are what the job's ConfigMap holds, as a backend applies it.
func files(t *testing.T, j *repo.Job) map[string]string {
	t.Helper()
	run := &repo.Run{ID: "j-abc", Job: *j}
	objects, err := run.Objects(0, func(task repo.Task) repo.Address { return repo.Address{Host: task.String() + ".x", Port: 1} })
	require.NoError(t, err)
	require.Len(t, objects, 1)
	assert.Equal(t, "j-mpi", objects[0].Name)
	var m corev1.ConfigMap
	require.NoError(t, json.Unmarshal(objects[0].Raw, &m))
	return m.Data
}

func read2(t *testing.T, text string) *repo.Job {
	t.Helper()
	j, said := manifesttest.Read(t, Format(), second+text)
	require.NotNil(t, j, said)
	assert.Contains(t, said, `Secret "j-ssh"`, "no key is made")
	assert.Equal(t, 1, strings.Count(said, "warning"), said)
	return j
}

func TestTrainingOperator(t *testing.T) {
	j := manifesttest.Good(t, Format(), first+pair+"  slotsPerWorker: 4\n  mainContainer: side\n")
	got := files(t, j)
	assert.Equal(t, "worker-0.x slots=4\nworker-1.x slots=4\n", got["hostfile"])
	assert.Equal(t, "#!/bin/sh\necho worker-0.x:4\necho worker-1.x:4\n", got["discover_hosts.sh"])
	assert.Contains(t, got["kubexec.sh"], "TASK=${HOST%%.*}\n")
	assert.Contains(t, got["kubexec.sh"], "trainyard.dev/run=j-abc,trainyard.dev/role=${TASK%-*},trainyard.dev/index=${TASK##*-}")
	assert.Contains(t, got["kubexec.sh"], `exec "$POD" --container side -- /bin/sh -c "$*"`)

	l := manifesttest.Pod(t, j, "launcher", 0)
	assert.Equal(t, []string{
		"OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh", "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile", "NVIDIA_VISIBLE_DEVICES=", "NVIDIA_DRIVER_CAPABILITIES=",
		"I_MPI_HYDRA_BOOTSTRAP=rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC=/etc/mpi/kubexec.sh",
	}, manifesttest.Env(t, l, "run"))
	assert.Equal(t, []corev1.VolumeMount{{Name: "mpi-job-config", MountPath: "/etc/mpi"}}, l.Spec.Containers[0].VolumeMounts)
	assert.Equal(t, "j-mpi", l.Spec.Volumes[0].ConfigMap.Name)
	assert.Equal(t, "master", l.Labels["training.kubeflow.org/job-role"])
	w := manifesttest.Pod(t, j, "worker", 1)
	assert.Equal(t, []string{"sleep", "365d"}, append(w.Spec.Containers[0].Command, w.Spec.Containers[0].Args...))
	assert.Len(t, w.Spec.Containers[0].VolumeMounts, 1)
	assert.Empty(t, w.Spec.Containers[1].VolumeMounts)
	assert.Empty(t, manifesttest.Env(t, w, "side"))
	assert.Equal(t, "mpijob-controller", w.Labels["training.kubeflow.org/operator-name"])

	assert.False(t, j.Role("launcher").Daemon)
	assert.Equal(t, int32(1), j.Role("launcher").MinFailed)
	assert.Equal(t, "run", j.Role("launcher").MainContainer)
	assert.Zero(t, j.Role("launcher").Retry.Limit, "Never is the default")
	assert.True(t, j.Role("worker").Daemon)
	assert.Equal(t, repo.Never, j.Role("worker").MinFailed, "the launcher decides")
}

func TestALauncherWithGPUsIsAHost(t *testing.T) {
	j := manifesttest.Good(t, Format(), first+strings.Replace(pair, "command: [mpirun, x]", "resources: {limits: {nvidia.com/gpu: 1}}", 1))
	assert.Equal(t, "launcher-0.x slots=1\nworker-0.x slots=1\nworker-1.x slots=1\n", files(t, j)["hostfile"])
	assert.NotContains(t, manifesttest.Env(t, manifesttest.Pod(t, j, "launcher", 0), "run"), "NVIDIA_VISIBLE_DEVICES=")

	j = manifesttest.Good(t, Format(), first+"  mpiReplicaSpecs: {"+start+", "+strings.Replace(work, "replicas: 2, ", "", 1)+"}\n")
	assert.Zero(t, j.Role("worker").Replicas, "none by default")
	assert.Empty(t, files(t, j)["hostfile"])
}

func TestOperator(t *testing.T) {
	j := read2(t, pair+"  slotsPerWorker: 2\n  runPolicy: {backoffLimit: 3, managedBy: kubeflow.org/mpi-operator}\n")
	got := files(t, j)
	assert.Equal(t, "worker-0.x slots=2\nworker-1.x slots=2\n", got["hostfile"])
	assert.Equal(t, "#!/bin/sh\necho worker-0.x\necho worker-1.x\n", got["discover_hosts.sh"])
	assert.NotContains(t, got, "kubexec.sh")
	l := manifesttest.Pod(t, j, "launcher", 0)
	assert.Equal(t, []string{
		"OMPI_MCA_orte_keep_fqdn_hostnames=true", "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile", "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10",
		"OMPI_MCA_orte_set_default_slots=2", "NVIDIA_VISIBLE_DEVICES=", "NVIDIA_DRIVER_CAPABILITIES=", "K_MPI_JOB_ROLE=launcher",
	}, manifesttest.Env(t, l, "run"))
	assert.Equal(t, []corev1.VolumeMount{{Name: "ssh-auth", MountPath: "/root/.ssh"}, {Name: "mpi-job-config", MountPath: "/etc/mpi"}}, l.Spec.Containers[0].VolumeMounts)
	secret := l.Spec.Volumes[0].Projected.Sources[0].Secret
	assert.Equal(t, "j-ssh", secret.Name)
	assert.True(t, *secret.Optional, "a pod without keys starts nevertheless")
	assert.Equal(t, int32(0o600), *l.Spec.Volumes[0].Projected.DefaultMode)
	w := manifesttest.Pod(t, j, "worker", 1)
	assert.Equal(t, []string{"/usr/sbin/sshd", "-De"}, w.Spec.Containers[0].Command)
	assert.Equal(t, []string{"K_MPI_JOB_ROLE=worker"}, manifesttest.Env(t, w, "rank"))
	assert.Equal(t, []corev1.VolumeMount{{Name: "ssh-auth", MountPath: "/root/.ssh"}}, w.Spec.Containers[0].VolumeMounts)
	for label, want := range map[string]string{"operator-name": "mpi-operator", "job-name": "j", "job-role": "worker", "replica-index": "1"} {
		assert.Equal(t, want, w.Labels["training.kubeflow.org/"+label])
	}
	assert.NotContains(t, w.Labels, "training.kubeflow.org/replica-type")

	assert.Equal(t, int32(3), j.Role("launcher").Retry.Limit, "the limit is of the launcher's Job")
	assert.Nil(t, j.FailureBudget)
	assert.Zero(t, j.Role("worker").Retry.Limit)
	assert.Equal(t, int32(6), read2(t, pair).Role("launcher").Retry.Limit)
}

func TestImplementations(t *testing.T) {
	j := read2(t, pair+"  mpiImplementation: Intel\n  slotsPerWorker: 3\n  runLauncherAsWorker: true\n")
	assert.Equal(t, "launcher-0.x:3\nworker-0.x:3\nworker-1.x:3\n", files(t, j)["hostfile"])
	assert.Equal(t, []string{"I_MPI_HYDRA_HOST_FILE=/etc/mpi/hostfile", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=-o ConnectionAttempts=10", "I_MPI_PERHOST=3", "K_MPI_JOB_ROLE=launcher"},
		manifesttest.Env(t, manifesttest.Pod(t, j, "launcher", 0), "run"), "a launcher that is a worker sees its GPUs")
	assert.Equal(t, "2", manifesttest.Pod(t, j, "worker", 1).Labels["training.kubeflow.org/replica-index"])
	j = read2(t, pair+"  mpiImplementation: MPICH\n  sshAuthMountPath: /home/mpi/.ssh\n")
	assert.Equal(t, "worker-0.x:1\nworker-1.x:1\n", files(t, j)["hostfile"])
	l := manifesttest.Pod(t, j, "launcher", 0)
	assert.Equal(t, []string{"HYDRA_HOST_FILE=/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS=-o ConnectionAttempts=10"}, manifesttest.Env(t, l, "run")[:2])
	assert.Equal(t, "/home/mpi/.ssh", l.Spec.Containers[0].VolumeMounts[0].MountPath)
	assert.Nil(t, l.Spec.Volumes[0].Projected.DefaultMode)
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no launcher", first + "  mpiReplicaSpecs: {" + work + "}\n", "required: an MPIJob has a Launcher"},
		{"launchers", first + strings.Replace(pair, "replicas: 1", "replicas: 2", 1), "Launcher.replicas: must be 1"},
		{"slots", first + pair + "  slotsPerWorker: 0\n", "want a number from 1, not 0"},
		{"container", first + pair + "  mainContainer: run\n", `Worker has no container "run"`},
		{"no account", first + strings.Replace(pair, "serviceAccountName: mpi, ", "", 1), "the operator gave the launcher kubectl"},
		{"field of the other", first + pair + "  mpiImplementation: Intel\n", "warning: spec.mpiImplementation: ignored: a field of kubeflow.org/v2beta1"},
		{"field of the first", second + pair + "  mainContainer: rank\n", "warning: spec.mainContainer: ignored: a field of kubeflow.org/v1"},
		{"implementation", second + pair + "  mpiImplementation: openmpi\n", `did you mean "OpenMPI"?`},
		{"no workers", second + strings.Replace(pair, "replicas: 2, ", "", 1), "Worker.replicas: must be greater than or equal to 1"},
		{"restart policy", second + strings.Replace(pair, "Worker: {", "Worker: {restartPolicy: ExitCode, ", 1), `"ExitCode" is not one of Never, OnFailure`},
		{"creation", second + pair + "  launcherCreationPolicy: WaitForWorkersReady\n", "read as AtStartup"},
		{"manager", second + pair + "  runPolicy: {managedBy: kubeflow.org/training-operator}\n", "is not one of kubeflow.org/mpi-operator"},
		{"volume", first + strings.Replace(pair, "{spec: {serv", "{spec: {volumes: [{name: mpi-job-config, emptyDir: {}}], serv", 1), `declares volume "mpi-job-config"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said := manifesttest.Read(t, Format(), c.text)
			assert.Contains(t, said, c.want)
		})
	}
}

func FuzzRead(f *testing.F) {
	manifesttest.Fuzz(f, Format(), first+pair+"  mainContainer: rank\n", second+pair+"  mpiImplementation: MPICH\n  runLauncherAsWorker: true\n")
}
