package local

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestHowAPodEnds(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	tests := []struct {
		name, script string
		phase        corev1.PodPhase
		code, signal int32
		reason       string
		edit         func(*corev1.Pod)
	}{
		{name: "ok", script: "exit 0", phase: corev1.PodSucceeded, reason: "Completed"},
		{name: "code", script: "exit 42", phase: corev1.PodFailed, code: 42, reason: "Error"},
		{name: "signal", script: "kill -s SEGV $$$$", phase: corev1.PodFailed, code: 139, signal: 11, reason: "Error"},
		{name: "no-command", phase: corev1.PodFailed, code: 127, reason: "ContainerCannotRun", edit: func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"no-such-program"} }},
		{name: "not-executable", phase: corev1.PodFailed, code: 126, reason: "ContainerCannotRun", edit: func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/etc/passwd"} }},
		{name: "no-directory", phase: corev1.PodFailed, code: 128, reason: "ContainerCannotRun", edit: func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/no/such" }},
		{name: "found-in-path", phase: corev1.PodSucceeded, reason: "Completed", edit: func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"true"} }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			pod := testPod(tc.name, tc.script)
			if tc.edit != nil {
				tc.edit(pod)
			}
			got := run(t, b, pod, tc.phase)
			require.NotNil(t, ended(got))
			assert.Equal(t, tc.code, ended(got).ExitCode)
			assert.Equal(t, tc.signal, ended(got).Signal, logOf(t, b, tc.name, ""))
			assert.Equal(t, tc.reason, ended(got).Reason)
			assert.False(t, ended(got).FinishedAt.IsZero())
			assert.Equal(t, "127.0.0.1", got.Status.PodIP)
			assert.NotEmpty(t, got.Spec.NodeName)
			assert.NotEmpty(t, got.UID)
			if tc.reason == "ContainerCannotRun" {
				assert.NotEmpty(t, ended(got).Message)
			}
		})
	}
}

func TestCreateOnce(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	b := open(t, dir)
	file := filepath.Join(dir, "runs", "out")
	pod := testPod("once", "echo ran >> "+file)
	run(t, b, pod, corev1.PodSucceeded)
	assert.True(t, apierrors.IsAlreadyExists(b.Create(context.Background(), pod)))
	require.NoError(t, b.Delete(context.Background(), "ns", "once", "", new(int64)))
	assert.True(t, apierrors.IsAlreadyExists(b.Create(context.Background(), pod)), "held by its finalizer")
	assert.Len(t, lines(file), 1)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	tests := []struct {
		name, want string
		edit       func(*corev1.Pod)
	}{
		{"no command", `the local runner does not run images: container "main" needs a command`, func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil }},
		{"init without command", `container "setup" needs a command`, func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "setup"}} }},
		{"name is a path", "metadata.name", func(p *corev1.Pod) { p.Name = "../x" }},
		{"namespace is a path", "metadata.namespace", func(p *corev1.Pod) { p.Namespace = ".." }},
		{"container name is a path", "containers[0].name", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "../../x" }},
		{"volume name is a path", "volumes[0].name", func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "../x"}} }},
		{"unknown volume", "volumeMounts[0].name", func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/x"}}
		}},
		{"secret variable", "no secrets", func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}}
		}},
		{"secret volume", "no secrets", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}}}
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := b.Create(context.Background(), testPod("bad", "true", tc.edit))
			require.Error(t, err)
			assert.True(t, apierrors.IsInvalid(err))
			assert.Contains(t, err.Error(), tc.want)
		})
	}
	keys, err := b.Jobs(context.Background())
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	pod := run(t, b, testPod("on-failure", "echo x >> tries; test $(wc -l < tries) = 3", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}), corev1.PodSucceeded)
	s := pod.Status.ContainerStatuses[0]
	assert.Equal(t, int32(2), s.RestartCount)
	assert.Equal(t, int32(0), s.State.Terminated.ExitCode)
	assert.Equal(t, int32(1), s.LastTerminationState.Terminated.ExitCode)

	create(t, b, testPod("always", "echo x >> tries; test $(wc -l < tries) -lt 3 || sleep 60", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}))
	eventually(t, "two restarts after success", func() bool {
		p := get(t, b, "always")
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 2 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	require.NoError(t, b.Delete(context.Background(), "ns", "always", "", new(int64)))
	until(t, b, "always", corev1.PodFailed)
}

func TestInitContainers(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	sh := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Command: []string{"/bin/sh", "-c", script}}
	}
	with := func(inits ...corev1.Container) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.InitContainers = inits }
	}
	t.Run("one after another, then the containers", func(t *testing.T) {
		pod := run(t, b, testPod("order", "echo main >> order; cat order", with(sh("a", "echo a >> order"), sh("b", "echo b >> order"))), corev1.PodSucceeded)
		assert.Equal(t, "a\nb\nmain\n", logOf(t, b, "order", ""))
		assert.Len(t, pod.Status.InitContainerStatuses, 2)
		assert.True(t, pod.Status.InitContainerStatuses[1].Ready)
	})
	t.Run("a failure ends the pod", func(t *testing.T) {
		pod := run(t, b, testPod("init-fails", "echo main", with(sh("a", "exit 3"), sh("b", "true"))), corev1.PodFailed)
		assert.Equal(t, int32(3), pod.Status.InitContainerStatuses[0].State.Terminated.ExitCode)
		assert.NotNil(t, pod.Status.InitContainerStatuses[1].State.Waiting)
		assert.NotNil(t, pod.Status.ContainerStatuses[0].State.Waiting)
		assert.Empty(t, logOf(t, b, "init-fails", ""))
	})
	t.Run("a sidecar serves until the others are done", func(t *testing.T) {
		side := sh("side", "trap 'echo told >> order; exit 0' TERM; echo up > up; while :; do sleep 0.02; done")
		always := corev1.ContainerRestartPolicyAlways
		side.RestartPolicy = &always
		run(t, b, testPod("sidecar", "echo main >> order", with(side, sh("wait", "while ! test -f up; do sleep 0.02; done"))), corev1.PodSucceeded)
		assert.Equal(t, []string{"main", "told"}, lines(filepath.Join(b.podDir("ns", "sidecar"), workDir, "order")))
	})
	t.Run("two containers", func(t *testing.T) {
		pod := run(t, b, testPod("two", "exit 0", func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, sh("second", "exit 7")) }), corev1.PodFailed)
		assert.Equal(t, int32(0), pod.Status.ContainerStatuses[0].State.Terminated.ExitCode)
		assert.Equal(t, int32(7), pod.Status.ContainerStatuses[1].State.Terminated.ExitCode)
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, stateDir(t))
	running := func(name, script string) *corev1.Pod {
		create(t, b, testPod(name, script))
		eventually(t, name+" is up", func() bool { return strings.Contains(logOf(t, b, name, ""), "up") })
		return get(t, b, name)
	}
	t.Run("the grace period is given", func(t *testing.T) {
		running("polite", "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done")
		require.NoError(t, b.Delete(ctx, "ns", "polite", "", nil))
		assert.NotNil(t, get(t, b, "polite").DeletionTimestamp)
		until(t, b, "polite", corev1.PodSucceeded)
		assert.Contains(t, logOf(t, b, "polite", ""), "saved")
	})
	t.Run("a child of a shell has it too", func(t *testing.T) {
		running("child", "sh -c 'trap \"sleep 0.3; echo saved; exit 0\" TERM; echo up; while :; do sleep 0.02; done'; echo never")
		require.NoError(t, b.Delete(ctx, "ns", "child", "", nil))
		until(t, b, "child", corev1.PodFailed)
		assert.Contains(t, logOf(t, b, "child", ""), "saved")
	})
	t.Run("then it is killed", func(t *testing.T) {
		running("stubborn", "trap '' TERM; echo up; while :; do sleep 0.02; done")
		one := int64(1)
		start := time.Now()
		require.NoError(t, b.Delete(ctx, "ns", "stubborn", "", &one))
		pod := until(t, b, "stubborn", corev1.PodFailed)
		assert.GreaterOrEqual(t, time.Since(start), 900*time.Millisecond)
		assert.Equal(t, int32(137), ended(pod).ExitCode)
	})
	t.Run("a second one shortens the period", func(t *testing.T) {
		running("shorter", "trap '' TERM; echo up; while :; do sleep 0.02; done")
		long := int64(3600)
		require.NoError(t, b.Delete(ctx, "ns", "shorter", "", &long))
		require.NoError(t, b.Delete(ctx, "ns", "shorter", "", new(int64)))
		until(t, b, "shorter", corev1.PodFailed)
	})
	t.Run("only the very pod", func(t *testing.T) {
		pod := running("same-name", "echo up; sleep 60")
		require.NoError(t, b.Delete(ctx, "ns", "same-name", "another-uid", nil))
		assert.Nil(t, get(t, b, "same-name").DeletionTimestamp)
		require.NoError(t, b.Delete(ctx, "ns", "same-name", string(pod.UID), nil))
		until(t, b, "same-name", corev1.PodFailed)
	})
	t.Run("one that is not there", func(t *testing.T) {
		require.NoError(t, b.Delete(ctx, "ns", "nobody", "", nil))
		require.NoError(t, b.Release(ctx, "ns", "nobody", ""))
	})
	t.Run("the pre-stop hook comes first", func(t *testing.T) {
		create(t, b, testPod("hook", "trap 'echo term >> o; exit 0' TERM; echo up; while :; do sleep 0.02; done", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo hook >> o"}}}}
		}))
		eventually(t, "hook is up", func() bool { return strings.Contains(logOf(t, b, "hook", ""), "up") })
		require.NoError(t, b.Delete(ctx, "ns", "hook", "", nil))
		until(t, b, "hook", corev1.PodSucceeded)
		assert.Equal(t, []string{"hook", "term"}, lines(filepath.Join(b.podDir("ns", "hook"), workDir, "o")))
	})
}

func TestFinalizerHoldsAFinishedPod(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, stateDir(t))
	pod := run(t, b, testPod("held", "true"), corev1.PodSucceeded)
	require.True(t, apierrors.IsConflict(b.Delete(ctx, "ns", "held", "", nil)), "it has ended by itself")
	require.Nil(t, get(t, b, "held").DeletionTimestamp)
	require.NoError(t, b.Delete(ctx, "ns", "held", "", new(int64)))
	got := get(t, b, "held")
	require.NotNil(t, got)
	require.NotNil(t, got.DeletionTimestamp)
	assert.Equal(t, []string{repo.Finalizer}, got.Finalizers)
	require.NoError(t, b.Release(ctx, "ns", "held", "another"))
	require.NotNil(t, get(t, b, "held"))
	require.NoError(t, b.Release(ctx, "ns", "held", string(pod.UID)))
	assert.Nil(t, get(t, b, "held"))

	run(t, b, testPod("released-first", "true"), corev1.PodSucceeded)
	require.NoError(t, b.Release(ctx, "ns", "released-first", ""))
	assert.Empty(t, get(t, b, "released-first").Finalizers)
	require.NoError(t, b.Delete(ctx, "ns", "released-first", "", nil))
	assert.Nil(t, get(t, b, "released-first"))
	left, err := os.ReadDir(filepath.Join(b.dir, "pods", "ns"))
	require.NoError(t, err)
	assert.Empty(t, left, "nothing is left on disk")
}

func TestActiveDeadline(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	one := int64(1)
	pod := run(t, b, testPod("late", "sleep 60", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &one }), corev1.PodFailed)
	assert.Equal(t, "DeadlineExceeded", pod.Status.Reason)
}

func TestTerminationMessage(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	pod := run(t, b, testPod("file", "echo why > $TRAINYARD_TERMINATION_LOG; exit 1"), corev1.PodFailed)
	assert.Equal(t, "why\n", ended(pod).Message)
	fallback := func(p *corev1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	pod = run(t, b, testPod("log", "echo the end; exit 1", fallback), corev1.PodFailed)
	assert.Equal(t, "the end\n", ended(pod).Message)
	pod = run(t, b, testPod("fine", "echo the end", fallback), corev1.PodSucceeded)
	assert.Empty(t, ended(pod).Message)
}

func TestManyPodsAtOnce(t *testing.T) {
	b := open(t, stateDir(t))
	const n = 64
	start := time.Now()
	for i := range n {
		create(t, b, testPod(fmt.Sprintf("many-%02d", i), "true"))
	}
	eventually(t, "all have succeeded", func() bool {
		pods, err := b.Pods(context.Background(), testKey)
		require.NoError(t, err)
		done := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodSucceeded {
				done++
			}
		}
		return done == n
	})
	t.Logf("%d pods in %s", n, time.Since(start))
}

// TestWatchTellsOfBefore: a daemon removes pods as soon as it knows its jobs, and
// may begin to watch a moment later.
func TestWatchTellsOfBefore(t *testing.T) {
	b := open(t, stateDir(t))
	create(t, b, testPod("gone", "exit 0"))
	eventually(t, "it has ended", func() bool { return get(t, b, "gone").Status.Phase == corev1.PodSucceeded })
	ctx, cancel := context.WithCancel(t.Context())
	assert.ErrorIs(t, b.Watch(ctx, func(repo.Key) { cancel() }), context.Canceled) // that is told
	uid := string(get(t, b, "gone").UID)
	require.NoError(t, b.Release(t.Context(), "ns", "gone", uid))
	require.NoError(t, b.Delete(t.Context(), "ns", "gone", uid, nil))
	told := make(chan repo.Key, 10)
	go func() { _ = b.Watch(t.Context(), func(k repo.Key) { told <- k }) }()
	select {
	case key := <-told:
		assert.Equal(t, testKey, key)
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was said of what went before")
	}
}

func TestWatchIsPrompt(t *testing.T) {
	b := open(t, stateDir(t), func(o *Options) { o.rescan = time.Hour })
	ctx, cancel := context.WithCancel(context.Background())
	changed := make(chan repo.Key, 100)
	done := make(chan error)
	go func() { done <- b.Watch(ctx, func(k repo.Key) { changed <- k }) }()
	create(t, b, testPod("watched", "while ! test -f go; do sleep 0.01; done"))
	eventually(t, "it runs", func() bool { return get(t, b, "watched").Status.Phase == corev1.PodRunning })
	for quiet := false; !quiet; {
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
			quiet = true
		}
	}
	// Nothing is said for longer than a rescan takes, then it ends.
	require.NoError(t, os.WriteFile(filepath.Join(b.podDir("ns", "watched"), workDir, "go"), nil, 0o600))
	for {
		select {
		case key := <-changed:
			assert.Equal(t, testKey, key)
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was said of the end")
		}
		if p := get(t, b, "watched"); p.Status.Phase == corev1.PodSucceeded {
			said, finished := time.Now(), time.Time{}
			info, err := os.Stat(filepath.Join(b.podDir("ns", "watched"), outcomeFile))
			require.NoError(t, err)
			finished = info.ModTime()
			assert.Less(t, said.Sub(finished), 500*time.Millisecond)
			t.Logf("told %s after the outcome", said.Sub(finished))
			break
		}
	}
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

// Numbers that only a mistake can have put there do not turn into their opposite.
func TestTimesWithoutEnd(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	huge := int64(math.MaxInt64)
	create(t, b, testPod("patient", "trap 'sleep 0.2; echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done", func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds, p.Spec.ActiveDeadlineSeconds = &huge, &huge
	}))
	eventually(t, "patient is up", func() bool { return logOf(t, b, "patient", "") == "up\n" })
	require.NoError(t, b.Delete(context.Background(), "ns", "patient", "", nil))
	until(t, b, "patient", corev1.PodSucceeded)
	assert.Contains(t, logOf(t, b, "patient", ""), "saved")
}

func TestRestartsStaySlow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &shim{source: source{pod: &corev1.Pod{}, order: &order{Backoff: 10 * time.Second, BackoffMax: 5 * time.Minute}}}
	c := &container{spec: &corev1.Container{}, kind: sidecarContainer}
	var waits []time.Duration
	for range 200 {
		c.startedAt = now
		s.ended(c, now)
		waits = append(waits, c.nextStart.Sub(now))
	}
	assert.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute}, waits[:7])
	for i, w := range waits[7:] {
		require.Equal(t, 5*time.Minute, w, "restart %d", i+8)
	}
}

func TestEnvironmentThatIsTooBig(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	for _, name := range []string{"plain", "mounted"} {
		pod := run(t, b, testPod(name, "true", func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "BIG", Value: strings.Repeat("x", 4<<20)}}
			if name == "mounted" {
				p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			}
		}), corev1.PodFailed)
		assert.Equal(t, "ContainerCannotRun", ended(pod).Reason)
		assert.Contains(t, ended(pod).Message, "argument list too long")
	}
}

// Nobody else on the machine looks into what pods write.
func TestFilesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(stateDir(t), "state")
	b := open(t, dir)
	create(t, b, testPod("private", "while ! test -f go; do sleep 0.01; done", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
	}))
	pod := until(t, b, "private", corev1.PodRunning)
	looked := []string{dir, filepath.Join(dir, "pods"), filepath.Join(dir, "runs"), b.podDir("ns", "private")}
	if inMemory(memoryRoot) {
		looked = append(looked, memoryDir(pod.UID))
		assert.DirExists(t, filepath.Join(memoryDir(pod.UID), "memory"))
	}
	for _, path := range looked {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), path)
	}
	letGo(t, b, "private")
	until(t, b, "private", corev1.PodSucceeded)
	assert.NoDirExists(t, memoryDir(pod.UID))
}
