package local

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// The test binary is its own shim, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "shim" {
		// Not by os.Exit, which makes a race-built program wait a second.
		unix.Exit(ShimMain(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "daemon" {
		daemonMain(os.Args[2])
	}
	if len(os.Args) == 3 && os.Args[1] == "storm" {
		stormMain(os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

var testKey = repo.Key{Namespace: "ns", Name: "job"}

// stateDir is a short path: sockets and mounts are tried in it, and it must be
// gone from sight only when no process of the test is left.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ty-")
	require.NoError(t, err)
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(dir, "pods", "*", "*", shimFile))
		var shims []shimState
		for _, file := range left {
			var s shimState
			if read(file, &s) == nil && s.alive() {
				// The shim kills what it holds when its directory vanishes.
				_ = os.Rename(filepath.Dir(file), filepath.Dir(file)+".gone")
				_ = s.signal(unix.SIGUSR1)
				shims = append(shims, s)
			}
		}
		eventually(t, "shims end", func() bool { return !slices.ContainsFunc(shims, func(s shimState) bool { return s.alive() }) })
		logs, _ := filepath.Glob(filepath.Join(dir, "pods", "*", "*", shimLog))
		for _, file := range logs {
			text, _ := os.ReadFile(file)
			assert.NotContains(t, string(text), "DATA RACE")
		}
		// A shim whose directory went may be about to make a last file.
		var err error
		eventually(t, "the directory goes", func() bool {
			if err != nil {
				t.Log(err)
			}
			err = scrub(dir)
			return err == nil
		})
	})
	return dir
}

// program writes a program that can be started at once: while a file is open
// for writing no other test may start a process, which would hold it open too.
func program(t *testing.T, path string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, text, 0o755))
}

func open(t *testing.T, dir string, options ...func(*Options)) *Backend {
	t.Helper()
	o := Options{Logger: zerolog.Nop(), RestartBackoff: 20 * time.Millisecond, RestartBackoffMax: 50 * time.Millisecond, rescan: 200 * time.Millisecond}
	for _, f := range options {
		f(&o)
	}
	b, err := New(dir, "test", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// testPod is a pod of one container, changed by edits.
func testPod(name, script string, edits ...func(*corev1.Pod)) *corev1.Pod {
	zero := int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: testKey.Namespace, Finalizers: []string{repo.Finalizer}, Labels: map[string]string{
			repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: "test", repo.LabelJob: testKey.Name, repo.LabelRun: "run-1", repo.LabelRole: "worker"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero,
			Containers: []corev1.Container{{Name: "main", Command: []string{"/bin/sh", "-c", script}}}},
	}
	for _, f := range edits {
		f(pod)
	}
	return pod
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func create(t *testing.T, b *Backend, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	require.NoError(t, b.Create(context.Background(), pod))
	return pod
}

// get is a pod as the backend shows it, nil when it is gone.
func get(t *testing.T, b *Backend, name string) *corev1.Pod {
	t.Helper()
	pods, err := b.Pods(context.Background(), testKey)
	require.NoError(t, err)
	for i := range pods {
		if pods[i].Name == name {
			return &pods[i]
		}
	}
	return nil
}

func until(t *testing.T, b *Backend, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, name+" is "+string(phase), func() bool {
		pod = get(t, b, name)
		require.NotNil(t, pod)
		if pod.Status.Phase != phase && (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded) {
			text, _ := json.Marshal(pod.Status)
			t.Fatalf("%s is %s: %s\n%s", name, pod.Status.Phase, text, logOf(t, b, name, ""))
		}
		return pod.Status.Phase == phase
	})
	return pod
}

// run creates a pod and waits for its end.
func run(t *testing.T, b *Backend, pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	create(t, b, pod)
	return until(t, b, pod.Name, phase)
}

func ended(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	return pod.Status.ContainerStatuses[0].State.Terminated
}

func logOf(t *testing.T, b *Backend, name, container string) string {
	t.Helper()
	r, err := b.Log(context.Background(), testKey.Namespace, name, container, 0, false)
	require.NoError(t, err)
	defer r.Close()
	var text strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			return text.String()
		}
	}
}

func lines(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Fields(string(text))
}

func shimOf(t *testing.T, b *Backend, name string) shimState {
	t.Helper()
	var s shimState
	eventually(t, "shim of "+name, func() bool {
		return read(filepath.Join(b.podDir(testKey.Namespace, name), shimFile), &s) == nil
	})
	return s
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.PodCondition{}
	}
	return pod.Status.Conditions[i]
}

func grepPID(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	eventually(t, "a PID in "+path, func() bool {
		l := lines(path)
		if len(l) == 0 {
			return false
		}
		pid, _ = strconv.Atoi(l[0])
		return pid > 0
	})
	return pid
}

func live(pid int) bool {
	_, ok := startOf(pid)
	return ok
}
