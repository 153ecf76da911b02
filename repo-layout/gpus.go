package repo

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// GPUs is how many GPUs a pod holds at most at once: every resource named gpu,
// of any vendor, and slices of one. Containers and sidecars count together;
// another init container runs beside the sidecars that were started before it.
// Absurd numbers stay large instead of wrapping around.
func GPUs(spec *corev1.PodSpec) int64 {
	var sidecars, most int64
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		n := containerGPUs(c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = plus(sidecars, n)
		} else {
			most = max(most, plus(sidecars, n))
		}
	}
	together := sidecars
	for i := range spec.Containers {
		together = plus(together, containerGPUs(&spec.Containers[i]))
	}
	return max(together, most)
}

// containerGPUs takes the larger of request and limit: a request that is not
// written is the limit.
func containerGPUs(c *corev1.Container) int64 {
	n := map[corev1.ResourceName]int64{}
	for _, resources := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, q := range resources {
			if IsGPU(name) {
				n[name] = max(n[name], whole(q))
			}
		}
	}
	var sum int64
	for _, v := range n {
		sum = plus(sum, v)
	}
	return sum
}

// whole is a quantity rounded up; what no integer can hold is the largest one.
func whole(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// plus adds numbers of which none is negative, up to the largest integer.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// IsGPU says whether a resource is a GPU or a slice of one: nvidia.com/gpu,
// amd.com/gpu, gpu.intel.com/i915, nvidia.com/mig-1g.5gb,
// nvidia.com/gpu.shared, alpha.kubernetes.io/nvidia-gpu, aliyun.com/vgpu.
func IsGPU(name corev1.ResourceName) bool {
	vendor, kind, ok := strings.Cut(string(name), "/")
	kind, _, _ = strings.Cut(kind, ".")
	return ok && (strings.HasSuffix(kind, "gpu") || strings.HasPrefix(kind, "mig-") || strings.HasPrefix(vendor, "gpu."))
}
