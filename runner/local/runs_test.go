package local

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestPrepareAndForget(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := stateDir(t)
	b := open(t, dir)
	tasks := []repo.Task{{Role: "worker", Index: 0}, {Role: "worker", Index: 1}, {Role: "worker", Index: 2}, {Role: "ps", Index: 0}}
	seen := map[int32]bool{}
	prepare := func(id string, attempt int32) (ports []int32) {
		addr, err := b.Prepare(ctx, testRun(id), attempt)
		require.NoError(t, err)
		for _, task := range tasks {
			assert.Equal(t, "127.0.0.1", addr(task).Host)
			ports = append(ports, addr(task).Port)
		}
		return ports
	}
	first := prepare("run-1", 0)
	for _, list := range [][]int32{first, prepare("run-1", 1), prepare("run-2", 0)} {
		for _, p := range list {
			assert.False(t, seen[p], "port %d was given twice", p)
			assert.NotZero(t, p)
			seen[p] = true
		}
	}
	require.NoError(t, b.Close())
	b = open(t, dir)
	assert.Equal(t, first, prepare("run-1", 0), "the same for a new daemon")

	bigger := testRun("run-1")
	bigger.Job.Roles[0].Replicas = 4
	addr, err := b.Prepare(ctx, bigger, 0)
	require.NoError(t, err)
	assert.Equal(t, first[0], addr(tasks[0]).Port)
	assert.False(t, seen[addr(repo.Task{Role: "worker", Index: 3}).Port])

	runs, err := b.Runs(ctx)
	require.NoError(t, err)
	require.Len(t, runs, 2)
	assert.Equal(t, *bigger, runs[0])
	keys, err := b.Jobs(ctx)
	require.NoError(t, err)
	assert.Equal(t, []repo.Key{testKey}, keys)

	require.NoError(t, b.Forget(ctx, "run-1", "another"))
	require.NoError(t, b.Forget(ctx, "run-1", "ns"))
	require.NoError(t, b.Forget(ctx, "run-1", "ns"))
	require.NoError(t, b.Forget(ctx, "run-2", "ns"))
	keys, err = b.Jobs(ctx)
	require.NoError(t, err)
	assert.Empty(t, keys)
	_, err = b.Prepare(ctx, testRun("../../etc"), 0)
	assert.Error(t, err)
	assert.Error(t, b.Forget(ctx, "..", "ns"))
}

// What a Prepare that was killed has not even begun is known to nobody, and goes.
func TestInterruptedPrepare(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	for _, run := range []string{"empty", "half"} {
		require.NoError(t, os.MkdirAll(b.runDir(run), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(b.runDir("half"), ".new-1"), []byte("{"), 0o600))
	_, err := b.Prepare(context.Background(), testRun("whole"), 0)
	require.NoError(t, err)
	b = open(t, b.dir)
	assert.NoDirExists(t, b.runDir("empty"))
	assert.NoDirExists(t, b.runDir("half"))
	assert.DirExists(t, b.runDir("whole"))
}

// Two environments may share a directory; each sees its own.
func TestEnvironmentsDoNotMeet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, stateDir(t))
	other, err := New(b.dir, "other", Options{})
	require.NoError(t, err)
	defer other.Close()
	_, err = b.Prepare(ctx, testRun("run-1"), 0)
	require.NoError(t, err)
	run(t, b, testPod("mine", "true"), corev1.PodSucceeded)
	pods, err := other.Pods(ctx, testKey)
	require.NoError(t, err)
	assert.Empty(t, pods)
	runs, err := other.Runs(ctx)
	require.NoError(t, err)
	assert.Empty(t, runs)
	keys, err := other.Jobs(ctx)
	require.NoError(t, err)
	assert.Empty(t, keys)
}

// The characters of a path are no pattern.
func TestStateDirectoryOfAnyName(t *testing.T) {
	t.Parallel()
	b := open(t, filepath.Join(stateDir(t), "[state] *?"))
	_, err := b.Prepare(context.Background(), testRun("run-1"), 0)
	require.NoError(t, err)
	runs, err := b.Runs(context.Background())
	require.NoError(t, err)
	assert.Len(t, runs, 1)
	run(t, b, testPod("anywhere", "pwd"), corev1.PodSucceeded)
	assert.Contains(t, logOf(t, b, "anywhere", ""), "[state] *?")
}

// A run that cannot be listed now is not taken for one that is not there.
func TestRunsAreAllOrAnError(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	_, err := b.Prepare(context.Background(), testRun("run-1"), 0)
	require.NoError(t, err)
	runs := filepath.Join(b.dir, "runs")
	require.NoError(t, os.Rename(runs, runs+"-away"))
	require.NoError(t, os.WriteFile(runs, nil, 0o600))
	_, err = b.Runs(context.Background())
	assert.Error(t, err)
}

func TestObjectsOfAFormatKnowTheAddresses(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	hosts := testRun("run-1")
	hosts.Job.Objects = append(hosts.Job.Objects, repo.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "hosts", Expand: true,
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hosts"},"data":{"all":"{{join \" \" \"worker\"}}"}}`)})
	addr, err := b.Prepare(context.Background(), hosts, 1)
	require.NoError(t, err)
	pod := testPod("mpi", `echo "$HOSTS"`, func(p *corev1.Pod) {
		p.Labels[repo.LabelIndex], p.Labels[repo.LabelRunAttempt], p.Labels[repo.LabelAttempt] = "0", "1", "0"
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HOSTS", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "hosts"}, Key: "all"}}}}
	})
	run(t, b, pod, corev1.PodSucceeded)
	var want []string
	for i := range int32(3) {
		want = append(want, addr(repo.Task{Role: "worker", Index: i}).String())
	}
	assert.Equal(t, strings.Join(want, " ")+"\n", logOf(t, b, "mpi", ""))
}
