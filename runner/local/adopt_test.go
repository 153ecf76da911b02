package local

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// daemonMain is a daemon that creates one pod and then waits to be killed.
func daemonMain(dir string) {
	b, err := New(dir, "test", Options{})
	if err == nil {
		out := filepath.Join(dir, "out")
		err = b.Create(context.Background(), testPod("survivor", "echo started >> "+out+"; while ! test -f "+dir+"/go; do sleep 0.01; done; echo finished >> "+out))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func TestDaemonKilledAndPodAdopted(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	daemon := exec.Command(os.Args[0], "daemon", dir)
	daemon.Stderr = os.Stderr
	require.NoError(t, daemon.Start())
	out := filepath.Join(dir, "out")
	eventually(t, "the pod runs", func() bool { return len(lines(out)) == 1 })
	require.NoError(t, daemon.Process.Kill())
	_ = daemon.Wait()

	b := open(t, dir)
	shim := shimOf(t, b, "survivor")
	assert.True(t, shim.alive(), "the shim outlives the daemon")
	until(t, b, "survivor", corev1.PodRunning)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	until(t, b, "survivor", corev1.PodSucceeded)
	assert.Equal(t, []string{"started", "finished"}, lines(out))
	assert.Equal(t, shim, shimOf(t, b, "survivor"), "no second shim")
}

const stormPods = 12

var rounds = flag.Int("rounds", 25, "how often TestDaemonKilledAtAnyTime kills its daemon")

// stormMain is a daemon that creates pods and deletes every third, as one that
// starts again would.
func stormMain(dir string) {
	b, err := New(dir, "test", Options{})
	for i := 0; err == nil && i < stormPods; i++ {
		name := fmt.Sprintf("storm-%02d", i)
		err = b.Create(context.Background(), testPod(name, "echo x >> "+filepath.Join(dir, name)+"; sleep 0.05"))
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		if err == nil && i%3 == 0 {
			if err = b.Delete(context.Background(), "ns", name, "", nil); apierrors.IsConflict(err) {
				err = nil // it had ended by itself
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// The daemon is killed again and again, at whatever it is doing.
func TestDaemonKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	for round := range *rounds {
		daemon := exec.Command(os.Args[0], "storm", dir)
		daemon.Stderr = os.Stderr
		require.NoError(t, daemon.Start())
		// From before it has begun to when it has nothing left to do.
		kill := time.After(time.Duration(8+4*(round%25)) * time.Millisecond)
		<-kill
		require.NoError(t, daemon.Process.Kill())
		_ = daemon.Wait()
	}
	b := open(t, dir)
	for i := range stormPods {
		name := fmt.Sprintf("storm-%02d", i)
		pod := testPod(name, "echo x >> "+filepath.Join(dir, name))
		if err := b.Create(context.Background(), pod); err != nil {
			require.True(t, apierrors.IsAlreadyExists(err), err)
		}
		eventually(t, name+" has ended", func() bool {
			p := get(t, b, name)
			return p != nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
		})
		started := lines(filepath.Join(dir, name))
		assert.LessOrEqual(t, len(started), 1, "%s was started twice", name)
		if p := get(t, b, name); p.Status.Phase == corev1.PodSucceeded || i%3 != 0 {
			assert.Len(t, started, 1, "%s: %s", name, p.Status.Reason)
			assert.Equal(t, corev1.PodSucceeded, p.Status.Phase)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "pods", "ns", ".*"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(left), *rounds)
}

// A daemon may die at any step of a start; what it left is what the next finds.
func TestInterruptedStarts(t *testing.T) {
	t.Parallel()
	cut := func(name, upTo string) (dir string) {
		dir = stateDir(t)
		b := open(t, dir, func(o *Options) { o.Executable = "/bin/false" })
		create(t, b, testPod(name, "echo ran >> "+dir+"/out"))
		if upTo == admittedFile {
			eventually(t, "admitted", func() bool { return exists(filepath.Join(b.podDir("ns", name), admittedFile)) })
		}
		require.NoError(t, b.Close())
		return dir
	}
	for _, upTo := range []string{podFile, admittedFile} {
		t.Run(upTo, func(t *testing.T) {
			dir := cut("cut", upTo)
			a, b := open(t, dir), open(t, dir) // two daemons even
			a.pass(true)
			b.pass(true)
			until(t, b, "cut", corev1.PodSucceeded)
			assert.Len(t, lines(filepath.Join(dir, "out")), 1)
		})
	}
	t.Run("shims started again and again", func(t *testing.T) {
		dir := stateDir(t)
		b := open(t, dir)
		run(t, b, testPod("again", "echo ran >> "+dir+"/out"), corev1.PodSucceeded)
		pod := b.podDir("ns", "again")
		require.NoError(t, os.Remove(filepath.Join(pod, outcomeFile)))
		for range 3 {
			require.NoError(t, exec.Command(os.Args[0], "shim", pod).Run())
		}
		assert.Len(t, lines(filepath.Join(dir, "out")), 1)
	})
	t.Run("half a create", func(t *testing.T) {
		dir := stateDir(t)
		left := filepath.Join(dir, "pods", "ns", ".new-1")
		require.NoError(t, os.MkdirAll(left, 0o700))
		require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-time.Hour)))
		b := open(t, dir, func(o *Options) { o.rescan = 10 * time.Millisecond })
		assert.NoDirExists(t, left)
		require.NoError(t, os.MkdirAll(left, 0o700))
		require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-time.Hour)))
		eventually(t, "what a running daemon left goes too", func() bool { return !exists(left) })
		run(t, b, testPod("whole", "true"), corev1.PodSucceeded)
	})
}

func TestShimKilled(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	work := filepath.Join(b.podDir("ns", "victim"), workDir)
	// A child, one that leads a session of its own, and one without our environment.
	create(t, b, testPod("victim", "sleep 1000 & echo $! > a; setsid sh -c 'echo $$$$ > b; exec sleep 1000' & env -i /bin/sh -c 'echo $$$$ > c; exec sleep 1000' & wait"))
	pids := []int{grepPID(t, filepath.Join(work, "a")), grepPID(t, filepath.Join(work, "b")), grepPID(t, filepath.Join(work, "c"))}
	eventually(t, "it runs", func() bool { return get(t, b, "victim").Status.Phase == corev1.PodRunning })
	shim := shimOf(t, b, "victim")
	require.NoError(t, shim.signal(unix.SIGKILL))
	pod := until(t, b, "victim", corev1.PodFailed)
	assert.Equal(t, ReasonShimLost, pod.Status.Reason)
	assert.Contains(t, pod.Status.Message, "last sign of life")
	c := conditionOf(pod, corev1.DisruptionTarget)
	assert.Equal(t, corev1.ConditionTrue, c.Status)
	assert.Equal(t, ReasonShimLost, c.Reason)
	require.NotNil(t, ended(pod))
	for _, pid := range pids {
		assert.False(t, live(pid), "process %d is left", pid)
	}
}

// A number in shim.json that belongs to somebody else now.
func TestProcessNumberReused(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	create(t, b, testPod("reused", "sleep 1000"))
	eventually(t, "it runs", func() bool { return get(t, b, "reused").Status.Phase == corev1.PodRunning })
	shim := shimOf(t, b, "reused")
	require.NoError(t, b.Close())

	stranger := exec.Command("sleep", "1000")
	// Not in the same tick of the kernel's clock.
	eventually(t, "the clock has moved on", func() bool { return clockTick(t) != shim.Start })
	require.NoError(t, stranger.Start())
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	require.NoError(t, shim.signal(unix.SIGKILL))
	eventually(t, "the shim is gone", func() bool { return !shim.alive() })
	dir := b.podDir("ns", "reused")
	forged := shim
	forged.PID = stranger.Process.Pid
	require.NoError(t, write(filepath.Join(dir, shimFile), forged, false))
	require.NoError(t, write(filepath.Join(dir, sessionsFile), []process{forged.process}, false))

	b = open(t, b.dir)
	pod := until(t, b, "reused", corev1.PodFailed)
	assert.Equal(t, ReasonShimLost, pod.Status.Reason)
	require.NoError(t, b.Delete(context.Background(), "ns", "reused", "", new(int64)))
	assert.True(t, live(stranger.Process.Pid), "somebody else's process was killed")
}

// clockTick is the start of a process that is started now.
func clockTick(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	start, _ := startOf(cmd.Process.Pid)
	return start
}

func TestMachineRestarted(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	create(t, b, testPod("rebooted", "sleep 1000"))
	eventually(t, "it runs", func() bool { return get(t, b, "rebooted").Status.Phase == corev1.PodRunning })
	shim := shimOf(t, b, "rebooted")
	require.NoError(t, b.Close())
	require.NoError(t, shim.signal(unix.SIGKILL))
	eventually(t, "the shim is gone", func() bool { return !shim.alive() })
	shim.Boot = "another boot"
	shim.process.Start = thisProcess(os.Getpid()).Start
	shim.PID = os.Getpid() // of that boot, not of this one
	require.NoError(t, write(filepath.Join(b.podDir("ns", "rebooted"), shimFile), shim, false))
	b = open(t, b.dir)
	pod := until(t, b, "rebooted", corev1.PodFailed)
	assert.Equal(t, ReasonMachineRestarted, pod.Status.Reason)
	assert.Equal(t, corev1.ConditionTrue, conditionOf(pod, corev1.DisruptionTarget).Status)
}

func TestShimTerminated(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	create(t, b, testPod("shutdown", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done"))
	eventually(t, "it is up", func() bool { return logOf(t, b, "shutdown", "") == "up\n" })
	require.NoError(t, shimOf(t, b, "shutdown").signal(unix.SIGTERM))
	pod := until(t, b, "shutdown", corev1.PodFailed)
	assert.Contains(t, logOf(t, b, "shutdown", ""), "saved")
	assert.Equal(t, corev1.ConditionTrue, conditionOf(pod, corev1.DisruptionTarget).Status)
}

func TestDirectoryVanishes(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	create(t, b, testPod("vanishing", "echo $$$$ > pid; exec sleep 1000"))
	dir := b.podDir("ns", "vanishing")
	pid := grepPID(t, filepath.Join(dir, workDir, "pid"))
	shim := shimOf(t, b, "vanishing")
	eventually(t, "it is removed, whatever its shim writes meanwhile", func() bool { return os.RemoveAll(dir) == nil })
	eventually(t, "everything ends", func() bool { return !live(pid) && !shim.alive() })
	assert.NoDirExists(t, dir)
	assert.Nil(t, get(t, b, "vanishing"))
}

func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{podFile, shimFile, statusFile, admittedFile, deleteFile} {
		t.Run(file, func(t *testing.T) {
			b := open(t, stateDir(t))
			create(t, b, testPod("damaged", "echo $$$$ > pid; exec sleep 1000"))
			dir := b.podDir("ns", "damaged")
			pid := grepPID(t, filepath.Join(dir, workDir, "pid"))
			eventually(t, "it runs", func() bool { return get(t, b, "damaged").Status.Phase == corev1.PodRunning })
			require.NoError(t, b.Close())
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(`{"met`), 0o600))
			b = open(t, b.dir)
			pod := get(t, b, "damaged")
			require.NotNil(t, pod)
			assert.True(t, live(pid), "a pod that runs goes on")
			require.NoError(t, b.Delete(context.Background(), "ns", "damaged", "", nil))
			until(t, b, "damaged", corev1.PodFailed)
			assert.False(t, live(pid))
		})
	}
	t.Run("the pod's file and its copy", func(t *testing.T) {
		b := open(t, stateDir(t))
		create(t, b, testPod("damaged", "echo $$$$ > pid; exec sleep 1000"))
		dir := b.podDir("ns", "damaged")
		pid := grepPID(t, filepath.Join(dir, workDir, "pid"))
		require.NoError(t, b.Close())
		for _, file := range []string{podFile, podCopy} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(`{"met`), 0o600))
		}
		b = open(t, b.dir)
		assert.Nil(t, get(t, b, "damaged"), "nobody knows what it was")
		eventually(t, "its processes end", func() bool { return !live(pid) })
	})
	t.Run(outcomeFile, func(t *testing.T) {
		b := open(t, stateDir(t))
		run(t, b, testPod("damaged", "true"), corev1.PodSucceeded)
		require.NoError(t, b.Close())
		require.NoError(t, os.Truncate(filepath.Join(b.podDir("ns", "damaged"), outcomeFile), 10))
		b = open(t, b.dir)
		assert.Equal(t, ReasonShimLost, until(t, b, "damaged", corev1.PodFailed).Status.Reason)
	})
}

func TestDeleteBeforeStart(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	b := open(t, dir, func(o *Options) { o.Executable = "/bin/false" })
	create(t, b, testPod("early", "echo ran >> "+dir+"/out"))
	require.NoError(t, b.Delete(context.Background(), "ns", "early", "", nil))
	pod := until(t, b, "early", corev1.PodFailed)
	assert.Equal(t, ReasonDeleted, pod.Status.Reason)
	asked := pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	assert.False(t, conditionOf(pod, corev1.PodReady).LastTransitionTime.Time.Before(asked.Truncate(time.Second)), "it has ended when it was asked to, not before")
	require.NoError(t, b.Close())
	b = open(t, dir)
	require.NoError(t, b.Release(context.Background(), "ns", "early", ""))
	assert.Nil(t, get(t, b, "early"))
	assert.Empty(t, lines(filepath.Join(dir, "out")))
}

func TestShimThatDoesNotStartIsTold(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) { o.Executable, o.ShimArgs = "/bin/sh", []string{"-c", "echo usage >&2; exit 2"} })
	create(t, b, testPod("unstartable", "true"))
	eventually(t, "it says why", func() bool {
		return conditionOf(get(t, b, "unstartable"), corev1.PodScheduled).Message == "its shim ended before it began (exit status 2): usage"
	})
}

// The leftovers of a container go with it, not with the pod.
func TestBackgroundProcessesEndWithTheirContainer(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	run(t, b, testPod("daemonised", "setsid sh -c 'echo $$$$ > pid; exec sleep 1000' & while ! test -s pid; do sleep 0.01; done"), corev1.PodSucceeded)
	pid, err := strconv.Atoi(lines(filepath.Join(b.podDir("ns", "daemonised"), workDir, "pid"))[0])
	require.NoError(t, err)
	assert.False(t, live(pid))
}

// A process that leads a session of its own and has cleared its environment
// goes with its pod all the same.
func TestHiddenProcessesEndWithTheirPod(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	run(t, b, testPod("hides", "setsid env -i /bin/sh -c 'echo $$$$ > pid; exec sleep 1000' & while ! test -s pid; do sleep 0.01; done"), corev1.PodSucceeded)
	pid := grepPID(t, filepath.Join(b.podDir("ns", "hides"), workDir, "pid"))
	assert.False(t, live(pid))
}

// What cannot be looked at just now is not taken for damaged.
func TestUnreadableIsNotDamaged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root reads everything; TestVolumesUnprivileged runs this as somebody else")
	}
	b := open(t, stateDir(t))
	create(t, b, testPod("shut", "sleep 1000"))
	until(t, b, "shut", corev1.PodRunning)
	shim, dir := shimOf(t, b, "shut"), b.podDir("ns", "shut")
	require.NoError(t, os.Chmod(dir, 0))
	_, err := b.entry(dir)
	assert.ErrorIs(t, err, os.ErrPermission)
	assert.NotErrorIs(t, err, errDamaged)
	b.pass(true)
	require.NoError(t, os.Chmod(dir, 0o700))
	assert.True(t, shim.alive())
	assert.Equal(t, corev1.PodRunning, get(t, b, "shut").Status.Phase)
}

// As long as nothing can be written the outcome waits, and the pod is not lost.
func TestOutcomeWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere; TestVolumesUnprivileged runs this as somebody else")
	}
	b := open(t, stateDir(t))
	create(t, b, testPod("patient", "echo $$$$ > pid; while ! test -f go; do sleep 0.01; done; exit 3"))
	until(t, b, "patient", corev1.PodRunning)
	shim, dir := shimOf(t, b, "patient"), b.podDir("ns", "patient")
	pid := grepPID(t, filepath.Join(dir, workDir, "pid"))
	require.NoError(t, os.Chmod(dir, 0o500))
	letGo(t, b, "patient")
	eventually(t, "the command has ended", func() bool { return !live(pid) })
	b.pass(true)
	assert.True(t, shim.alive())
	assert.Equal(t, corev1.PodRunning, get(t, b, "patient").Status.Phase)
	require.NoError(t, os.Chmod(dir, 0o700))
	assert.Equal(t, int32(3), ended(until(t, b, "patient", corev1.PodFailed)).ExitCode)
}

// The whole directory is deleted under a running daemon, and it goes on. The
// job is told of, and nothing takes a pod's place before its processes ended.
func TestStateDirectoryVanishes(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	create(t, b, testPod("old", "trap '' TERM; echo $$$$ > pid; while :; do sleep 0.1; done"))
	pid := grepPID(t, filepath.Join(b.podDir("ns", "old"), workDir, "pid"))
	told := make(chan repo.Key, 100)
	go func() { _ = b.Watch(t.Context(), func(k repo.Key) { told <- k }) }()
	eventually(t, "it is deleted, whatever is written meanwhile", func() bool { return os.RemoveAll(b.dir) == nil })
	create(t, b, testPod("new", "kill -0 "+strconv.Itoa(pid)+" 2>/dev/null && echo both; true"))
	until(t, b, "new", corev1.PodSucceeded)
	assert.Empty(t, logOf(t, b, "new", ""))
	assert.False(t, live(pid))
	assert.Nil(t, get(t, b, "old"))
	eventually(t, "shims find the daemon again", func() bool { return exists(filepath.Join(b.dir, socketName)) })
	eventually(t, "the job is told of", func() bool { return len(told) > 0 })
}

// TestRunIsPreparedAgain: a definition that was damaged or deleted after it was
// prepared is asked for again.
func TestRunIsPreparedAgain(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	for i, harm := range []func(file string) error{
		func(file string) error { return os.Truncate(file, 10) },
		func(file string) error { return os.RemoveAll(filepath.Dir(file)) },
	} {
		run := &repo.Run{ID: "run-1", Environment: "test", Job: repo.Job{Key: testKey}}
		_, err := b.Prepare(t.Context(), run, 0)
		require.NoError(t, err)
		require.NoError(t, harm(filepath.Join(b.runDir("run-1"), runFile)))
		pod := testPod("p"+strconv.Itoa(i), "true")
		assert.True(t, apierrors.IsNotFound(b.Create(t.Context(), pod)))
		_, err = b.Prepare(t.Context(), run, 0)
		require.NoError(t, err)
		require.NoError(t, b.Create(t.Context(), pod))
		until(t, b, pod.Name, corev1.PodSucceeded)
	}
}
