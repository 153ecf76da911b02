package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func asks(resources ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{}
		for i := 0; i < len(resources); i += 2 {
			list[corev1.ResourceName(resources[i])] = resource.MustParse(resources[i+1])
		}
		p.Spec.Containers[0].Resources.Limits = list
	}
}

// fakeGPUs puts an nvidia-smi on a PATH that knows four GPUs.
func fakeGPUs(t *testing.T, script string) func(*Options) {
	t.Helper()
	bin := t.TempDir()
	program(t, filepath.Join(bin, "nvidia-smi"), []byte("#!/bin/sh\n"+script))
	return func(o *Options) { o.Environ = []string{"PATH=" + bin + ":" + os.Getenv("PATH")} }
}

const fourGPUs = `for i in 0 1 2 3; do echo "$i, GPU-aaaa-$i, 81559 MiB"; done`

func TestGPUsAreNotShared(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), fakeGPUs(t, fourGPUs))
	show := "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; while ! test -f go; do sleep 0.01; done"
	for i := range 3 {
		create(t, b, testPod(fmt.Sprintf("gpu-%d", i), show, asks("nvidia.com/gpu", "2")))
	}
	running := func(name string) {
		eventually(t, name+" runs", func() bool { return logOf(t, b, name, "") != "" })
	}
	running("gpu-0")
	running("gpu-1")
	assert.Equal(t, "0,1 GPU-aaaa-0,GPU-aaaa-1\n", logOf(t, b, "gpu-0", ""))
	assert.Equal(t, "2,3 GPU-aaaa-2,GPU-aaaa-3\n", logOf(t, b, "gpu-1", ""))
	eventually(t, "gpu-2 is told why it waits", func() bool { // the others may run before that
		c := conditionOf(get(t, b, "gpu-2"), corev1.PodScheduled)
		return c.Status == corev1.ConditionFalse && c.Reason == "Unschedulable" && c.Message == "needs 2 GPUs, 0 of 4 free (waits for ns/gpu-0, ns/gpu-1)"
	})

	// A daemon that starts again knows who has what.
	require.NoError(t, b.Close())
	b = open(t, b.dir, fakeGPUs(t, fourGPUs))
	assert.Equal(t, corev1.PodPending, get(t, b, "gpu-2").Status.Phase)
	require.NoError(t, os.WriteFile(filepath.Join(b.podDir("ns", "gpu-1"), workDir, "go"), nil, 0o600))
	running("gpu-2")
	assert.Equal(t, "2,3 GPU-aaaa-2,GPU-aaaa-3\n", logOf(t, b, "gpu-2", ""))
}

func TestContainersOfAPodShareNoGPU(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), fakeGPUs(t, fourGPUs))
	run(t, b, testPod("two", "echo $CUDA_VISIBLE_DEVICES", asks("nvidia.com/gpu", "1"), func(p *corev1.Pod) {
		second := *p.Spec.Containers[0].DeepCopy()
		second.Name = "second"
		third := corev1.Container{Name: "third", Command: []string{"sh", "-c", "echo none:$CUDA_VISIBLE_DEVICES"}}
		p.Spec.Containers = append(p.Spec.Containers, second, third)
		setup := *second.DeepCopy()
		setup.Name = "setup"
		p.Spec.InitContainers = []corev1.Container{setup}
	}), corev1.PodSucceeded)
	assert.Equal(t, "0\n", logOf(t, b, "two", "setup"))
	assert.Equal(t, "0\n", logOf(t, b, "two", "main"))
	assert.Equal(t, "1\n", logOf(t, b, "two", "second"))
	assert.Equal(t, "none:\n", logOf(t, b, "two", "third"))
}

func TestWhatCanNeverFit(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) {
		o.Environ = []string{"PATH=/bin:/usr/bin"}
		o.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
	})
	for name, tc := range map[string]struct {
		asks []string
		want string
	}{
		"cpu":    {[]string{"cpu", "2500m"}, "can never run here: needs 2.5 CPUs, this machine has 2"},
		"memory": {[]string{"memory", "4Gi"}, "can never run here: needs 4Gi memory, this machine has 1Gi"},
		"gpu":    {[]string{"nvidia.com/gpu", "1"}, "can never run here: needs 1 GPU, this machine has 0"},
		"tpu":    {[]string{"google.com/tpu", "8"}, "can never run here: needs 8 google.com/tpu, this machine has 0"},
	} {
		create(t, b, testPod(name, "true", asks(tc.asks...)))
		eventually(t, name+" is told", func() bool {
			return conditionOf(get(t, b, name), corev1.PodScheduled).Message == tc.want
		})
	}
	// It does not stand in the way of others, and can be given up.
	run(t, b, testPod("fits", "true", asks("cpu", "2", "memory", "1Gi")), corev1.PodSucceeded)
	require.NoError(t, b.Delete(context.Background(), "ns", "cpu", "", nil))
	assert.Equal(t, ReasonDeleted, until(t, b, "cpu", corev1.PodFailed).Status.Reason)
}

func TestOldestFirst(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) { o.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")} })
	wait := "while ! test -f go; do sleep 0.01; done"
	create(t, b, testPod("a-holds", wait, asks("cpu", "3")))
	eventually(t, "it runs", func() bool { return get(t, b, "a-holds").Status.Phase == corev1.PodRunning })
	create(t, b, testPod("b-big", "true", asks("cpu", "4")))
	create(t, b, testPod("a-small", "true", asks("cpu", "1")))
	run(t, b, testPod("none", "true"), corev1.PodSucceeded) // needs nothing that anybody waits for
	assert.Equal(t, corev1.PodPending, get(t, b, "b-big").Status.Phase)
	small := get(t, b, "a-small")
	assert.Equal(t, corev1.PodPending, small.Status.Phase, "it would starve the older one")
	assert.Contains(t, conditionOf(small, corev1.PodScheduled).Message, "needs 1 CPU,")
	require.NoError(t, os.WriteFile(filepath.Join(b.podDir("ns", "a-holds"), workDir, "go"), nil, 0o600))
	until(t, b, "b-big", corev1.PodSucceeded)
	until(t, b, "a-small", corev1.PodSucceeded)
}

func TestNeed(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	c := func(cpu string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}
	}
	side := c("500m")
	side.RestartPolicy = &always
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{side, c("3")}, Containers: []corev1.Container{c("1"), c("1")}}}
	assert.Equal(t, int64(3500), need(pod)["cpu"])
	pod.Spec.InitContainers = pod.Spec.InitContainers[:1]
	assert.Equal(t, int64(2500), need(pod)["cpu"])
}

func TestNvidiaSmiThatFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, want string }{
		"fails":    {"echo Driver/library version mismatch; exit 18", " (nvidia-smi: exit status 18: Driver/library version mismatch)"},
		"nonsense": {"echo No devices were found", ` (nvidia-smi: unexpected answer: "No devices were found")`},
		"twice":    {"echo 0, GPU-a; echo 0, GPU-b", ` (nvidia-smi: unexpected answer: "0, GPU-b")`},
		"hangs":    {"sleep 1000 & sleep 1000", " (nvidia-smi: no answer in time: context deadline exceeded)"},
		"deaf":     {"trap '' TERM; setsid sleep 3 & exec sleep 1000", " (nvidia-smi: no answer in time: context deadline exceeded)"},
		"none":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			b := open(t, stateDir(t), fakeGPUs(t, tc.script), func(o *Options) { o.ask = 500 * time.Millisecond })
			assert.Less(t, time.Since(start), time.Minute, "a start waits for it")
			assert.Empty(t, b.machine.gpus)
			create(t, b, testPod("wants", "true", asks("nvidia.com/gpu", "8")))
			waitsFor(t, b, "wants", "can never run here: needs 8 GPUs, this machine has 0"+tc.want)
			run(t, b, testPod("wants-none", "true"), corev1.PodSucceeded)
		})
	}
}

func TestGPUsOfTheDaemon(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]int{
		"2,0": {2, 0}, " 1 ": {1}, "GPU-aaaa-3,1": {3, 1}, "1,-1,2": {1}, "": nil, "-1": nil, "NoDevFiles": nil, "1,1": {1}, "7": nil,
	} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			b := open(t, stateDir(t), fakeGPUs(t, fourGPUs), func(o *Options) { o.Environ = append(o.Environ, "CUDA_VISIBLE_DEVICES="+list) })
			assert.Equal(t, want, b.machine.gpus)
			if want == nil {
				create(t, b, testPod("wants", "true", asks("nvidia.com/gpu", "1")))
				waitsFor(t, b, "wants", "can never run here: needs 1 GPU, this machine has 0 (CUDA_VISIBLE_DEVICES of the daemon leaves it none)")
				return
			}
			run(t, b, testPod("sees", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER", asks("nvidia.com/gpu", "1")), corev1.PodSucceeded)
			assert.Equal(t, fmt.Sprintf("%d PCI_BUS_ID\n", want[0]), logOf(t, b, "sees", ""))
			run(t, b, testPod("blind", "echo [$CUDA_VISIBLE_DEVICES] [$NVIDIA_VISIBLE_DEVICES]", func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: "0,1,2,3"}, {Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
			}), corev1.PodSucceeded)
			assert.Equal(t, "[] [void]\n", logOf(t, b, "blind", ""))
		})
	}
}

// With the GPUs that this machine really has.
func TestRealGPUs(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	if len(b.machine.gpus) == 0 {
		t.Skip("no GPU here")
	}
	t.Log(b.machine.gpus, b.machine.uuids)
	run(t, b, testPod("real", "echo $CUDA_VISIBLE_DEVICES; nvidia-smi --id=$NVIDIA_VISIBLE_DEVICES --query-gpu=index --format=csv,noheader", asks("nvidia.com/gpu", "1")), corev1.PodSucceeded)
	i := b.machine.gpus[0]
	assert.Equal(t, fmt.Sprintf("%d\n%d\n", i, i), logOf(t, b, "real", ""))
}
