package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func withGPUs(n int64) func(*Options) {
	return func(o *Options) {
		o.Environ = []string{"PATH=/bin:/usr/bin"}
		o.Capacity = corev1.ResourceList{resourceGPU: *resource.NewQuantity(n, resource.DecimalSI)}
	}
}

// gang prepares a run of so many workers and returns a maker of their pods,
// each of which asks for one GPU, tells that it runs, and waits for the file go.
func gang(t *testing.T, b *Backend, id string, workers int32, edits ...func(*repo.Run)) func(index, attempt int) *corev1.Pod {
	t.Helper()
	run := &repo.Run{ID: id, Environment: "test", Job: repo.Job{Key: testKey, Gang: true, Roles: []repo.Role{{Name: "worker", Replicas: workers}}}}
	for _, f := range edits {
		f(run)
	}
	_, err := b.Prepare(context.Background(), run, 0)
	require.NoError(t, err)
	return func(index, attempt int) *corev1.Pod {
		return testPod(fmt.Sprintf("%s-%d-%d", id, index, attempt), "echo up; while ! test -f go; do sleep 0.01; done", asks("nvidia.com/gpu", "1"), func(p *corev1.Pod) {
			p.Labels[repo.LabelRun], p.Labels[repo.LabelRunAttempt] = id, "0"
			p.Labels[repo.LabelIndex], p.Labels[repo.LabelAttempt] = strconv.Itoa(index), strconv.Itoa(attempt)
		})
	}
}

func letGo(t *testing.T, b *Backend, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(b.podDir("ns", name), workDir, "go"), nil, 0o600))
}

func waitsFor(t *testing.T, b *Backend, name, message string) {
	t.Helper()
	var got string
	defer func() {
		if t.Failed() {
			t.Logf("%s: %q", name, got)
		}
	}()
	eventually(t, name+": "+message, func() bool {
		got = conditionOf(get(t, b, name), corev1.PodScheduled).Message
		return got == message
	})
}

func TestGangStartsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), withGPUs(4))
	create(t, b, testPod("holder", "while ! test -f go; do sleep 0.01; done", asks("nvidia.com/gpu", "2")))
	until(t, b, "holder", corev1.PodRunning)
	pod := gang(t, b, "four", 4)
	create(t, b, pod(0, 0))
	waitsFor(t, b, "four-0-0", "gang of 4 waits for 3 of its pods to be created")
	for i := range 3 {
		create(t, b, pod(i+1, 0))
	}
	const want = "gang of 4 needs 4 GPUs, 2 of 4 free (waits for ns/holder)"
	for i := range 4 {
		waitsFor(t, b, fmt.Sprintf("four-%d-0", i), want)
	}
	// A daemon that starts again decides the same.
	require.NoError(t, b.Close())
	b = open(t, b.dir, withGPUs(4))
	waitsFor(t, b, "four-3-0", want)
	letGo(t, b, "holder")
	for i := range 4 {
		until(t, b, fmt.Sprintf("four-%d-0", i), corev1.PodRunning)
	}

	// One of them fails. What takes its place does not wait behind an older run.
	other := gang(t, b, "other", 4)
	for i := range 4 {
		create(t, b, other(i, 0))
	}
	waitsFor(t, b, "other-0-0", "gang of 4 needs 4 GPUs, 0 of 4 free (waits for ns/four-0-0, ns/four-1-0, ns/four-2-0 and 1 more)")
	letGo(t, b, "four-2-0")
	until(t, b, "four-2-0", corev1.PodSucceeded)
	create(t, b, pod(2, 1))
	until(t, b, "four-2-1", corev1.PodRunning)
	assert.Equal(t, corev1.PodPending, get(t, b, "other-0-0").Status.Phase)
	for _, name := range []string{"four-0-0", "four-1-0", "four-2-1", "four-3-0"} {
		letGo(t, b, name)
	}
	for i := range 4 {
		until(t, b, fmt.Sprintf("other-%d-0", i), corev1.PodRunning)
	}
}

// Gangs that each half fit, their pods created in turns, and a single pod behind them.
func TestGangsDoNotHoldEachOther(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), withGPUs(4))
	a, c := gang(t, b, "one", 3), gang(t, b, "two", 3)
	for i := range 3 {
		create(t, b, a(i, 0))
		create(t, b, c(i, 0))
	}
	placed := func(id string) (n int) {
		for i := range 3 {
			if exists(filepath.Join(b.podDir("ns", fmt.Sprintf("%s-%d-0", id, i)), admittedFile)) {
				n++
			}
		}
		return n
	}
	eventually(t, "one of them is placed", func() bool { return placed("one")+placed("two") > 2 })
	assert.Equal(t, 3, placed("one")+placed("two"), "all of one and none of the other")
	first, second := "one", "two"
	if placed("two") == 3 {
		first, second = "two", "one"
	}
	for i := range 3 {
		name := fmt.Sprintf("%s-%d-0", first, i)
		until(t, b, name, corev1.PodRunning)
		letGo(t, b, name)
	}
	for i := range 3 {
		until(t, b, fmt.Sprintf("%s-%d-0", second, i), corev1.PodRunning)
	}
}

func TestGangThatIsTooBig(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), withGPUs(2))
	big := gang(t, b, "big", 3)
	for i := range 3 {
		create(t, b, big(i, 0))
	}
	waitsFor(t, b, "big-1-0", "can never run here: gang of 3 needs 3 GPUs, this machine has 2")
	small := gang(t, b, "small", 2) // is not held up by it
	create(t, b, small(0, 0))
	create(t, b, small(1, 0))
	until(t, b, "small-1-0", corev1.PodRunning)
}

func TestWhatAGangLacks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	type pod struct {
		role  string
		index int
		told  bool // to end
		phase corev1.PodPhase
		age   time.Duration
	}
	run := &repo.Run{Job: repo.Job{Gang: true, Roles: []repo.Role{{Name: "worker", Replicas: 3}, {Name: "sweep", Replicas: 100, Parallelism: 1}}}}
	start := []pod{{role: "worker"}, {role: "worker", index: 1}, {role: "worker", index: 2}, {role: "sweep"}}
	with := func(more ...pod) []pod { return append(append([]pod{}, start...), more...) }
	ended := func(phase corev1.PodPhase, told bool, age time.Duration) (out []pod) {
		for _, p := range start {
			p.phase, p.told, p.age = phase, told, age
			out = append(out, p)
		}
		return out
	}
	for name, tc := range map[string]struct {
		pods []pod
		want string
	}{
		"one":           {start[:1], "gang of 4 waits for 3 of its pods to be created"},
		"all":           {start, ""},
		"and a retry":   {with(pod{role: "worker", index: 1}), ""},
		"another's":     {append([]pod{{role: "worker", index: 3}}, start[1:]...), "gang of 4 waits for 1 of its pods to be created"},
		"resumed":       {append(ended(corev1.PodFailed, true, time.Hour), pod{role: "worker"}), "gang of 4 waits for 3 of its pods to be created again"},
		"long ago":      {append(ended(corev1.PodFailed, true, time.Hour), pod{role: "worker", age: gangSettles}), ""},
		"all resumed":   {append(ended(corev1.PodFailed, true, time.Hour), start...), ""},
		"had succeeded": {append(ended(corev1.PodSucceeded, true, time.Hour), pod{role: "worker"}), ""},
		"had failed":    {append(ended(corev1.PodFailed, false, time.Hour), pod{role: "worker"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var pods []*entry
			for i, p := range tc.pods {
				file := filepath.Join(dir, strconv.Itoa(i))
				require.NoError(t, os.WriteFile(file, nil, 0o600))
				require.NoError(t, os.Chtimes(file, time.Time{}, now.Add(-p.age)))
				info, err := os.Stat(file)
				require.NoError(t, err)
				e := &entry{dir: file, file: info, pod: &corev1.Pod{}}
				e.pod.Labels = map[string]string{repo.LabelRole: p.role, repo.LabelIndex: strconv.Itoa(p.index)}
				if p.phase != "" {
					e.outcome = &corev1.PodStatus{Phase: p.phase}
				}
				if p.told {
					e.deletion = &request{}
				}
				pods = append(pods, e)
			}
			assert.Equal(t, tc.want, lacks(run, pods))
		})
	}
}
