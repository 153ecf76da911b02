package repo

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func asks(requests, limits map[string]string) corev1.Container {
	list := func(m map[string]string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for k, v := range m {
			out[corev1.ResourceName(k)] = resource.MustParse(v)
		}
		return out
	}
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
}

func limit(name, n string) corev1.Container { return asks(nil, map[string]string{name: n}) }

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestGPUs(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	for _, c := range []struct {
		name       string
		init, main []corev1.Container
		want       int64
	}{
		{"none", nil, []corev1.Container{limit("cpu", "4"), limit("example.com/gpus-of-mine", "4"), limit("gpu", "1")}, 0},
		{"every vendor", nil, []corev1.Container{limit(gpu, "1"), limit("amd.com/gpu", "2"), limit("gpu.intel.com/i915", "4"), limit("nvidia.com/mig-1g.5gb", "8"),
			limit("alpha.kubernetes.io/nvidia-gpu", "16"), limit("nvidia.com/gpu.shared", "32"), limit("aliyun.com/vgpu", "64")}, 127},
		{"several in one container", nil, []corev1.Container{asks(nil, map[string]string{gpu: "2", "amd.com/gpu": "3"})}, 5},
		{"requests and limits are the same GPUs", nil, []corev1.Container{asks(map[string]string{gpu: "2"}, map[string]string{gpu: "3"})}, 3},
		{"requests alone", nil, []corev1.Container{asks(map[string]string{gpu: "2"}, nil)}, 2},
		{"containers together", nil, []corev1.Container{limit(gpu, "2"), limit(gpu, "3")}, 5},
		{"init containers one after another", []corev1.Container{limit(gpu, "4"), limit(gpu, "6")}, []corev1.Container{limit(gpu, "5")}, 6},
		{"sidecars run on", []corev1.Container{sidecar(limit(gpu, "1")), limit(gpu, "6")}, []corev1.Container{limit(gpu, "3")}, 7},
		{"sidecars beside the containers", []corev1.Container{limit(gpu, "3"), sidecar(limit(gpu, "1"))}, []corev1.Container{limit(gpu, "5")}, 6},
		{"rounded up", nil, []corev1.Container{limit(gpu, "500m")}, 1},
		{"absurd", nil, []corev1.Container{limit(gpu, "9E"), limit(gpu, "9E"), limit(gpu, "9E")}, math.MaxInt64},
		{"beyond every integer", nil, []corev1.Container{limit(gpu, "1e30")}, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, GPUs(&corev1.PodSpec{InitContainers: c.init, Containers: c.main}))
		})
	}
}
