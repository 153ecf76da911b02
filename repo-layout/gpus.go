package repo

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// LabelGPUClass is the label of pods by which an environment's overlay finds
// those that ask for GPUs of a class.
const LabelGPUClass = "trainyard.dev/gpu-class"

// GPUs is how many GPUs a pod holds at most at once: those of every vendor, and
// slices, each of which counts as one. Containers and sidecars count together;
// another init container runs beside the sidecars that were started before it.
// Absurd numbers stay large instead of wrapping around. What resource claims
// bring is not among them: see UncountedDevices.
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

// UncountedDevices says whether a pod has devices that nobody can count before
// the cluster has allocated them: those of resource claims.
func UncountedDevices(spec *corev1.PodSpec) bool { return len(spec.ResourceClaims) > 0 }

// containerGPUs takes the larger of request and limit: a request that is not
// written is the limit.
func containerGPUs(c *corev1.Container) int64 {
	n := map[corev1.ResourceName]int64{}
	for _, resources := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, q := range resources {
			n[name] = max(n[name], gpusOf(name, q))
		}
	}
	var sum int64
	for _, v := range n {
		sum = plus(sum, v)
	}
	return sum
}

// gpusOf is how many GPUs so much of a resource is.
func gpusOf(name corev1.ResourceName, q resource.Quantity) int64 {
	switch {
	case IsGPU(name):
		return whole(q)
	case isPercentOfGPU(name):
		return whole(q)/100 + min(1, whole(q)%100)
	}
	return 0
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

// IsGPU says whether one of a resource is a GPU, an accelerator that is used as
// one (TPU, NPU …), or a slice of either. The names are those that the vendors'
// device plugins give; what they sell beside them, memory or shares of one
// GPU's cores, is none.
func IsGPU(name corev1.ResourceName) bool {
	vendor, kind, ok := strings.Cut(strings.ToLower(string(name)), "/")
	if !ok {
		return false
	}
	switch vendor {
	case "koordinator.sh": // its gpu is a hundredth of one
		return kind == "gpu.shared"
	case "gpu.intel.com": // beside them: i915_monitoring, millicores, memory.max, tiles
		return kind == "i915" || kind == "xe"
	case "amd.com": // gpu, or partitions: cpx_nps4
		return kind == "gpu" || strings.Contains(kind, "px_nps")
	case "aws.amazon.com": // neuron, neurondevice, and neuroncore, a slice
		return strings.HasPrefix(kind, "neuron")
	case "huawei.com": // Ascend910, npu, and slices: Ascend310P-2c
		return (strings.HasPrefix(kind, "ascend") || kind == "npu") && !strings.HasSuffix(kind, "-memory")
	case "cambricon.com": // mlu, mlu370, vmlu, and slices: mlu.mim-2m.8gb
		return strings.Contains(kind, "mlu") && !strings.Contains(kind, ".smlu.") && !strings.Contains(kind, "mem")
	case "furiosa.ai", "beta.furiosa.ai", "rebellions.ai", "tenstorrent.com", "habana.ai", "cloud-tpus.google.com":
		return true // they sell nothing else
	case "qualcomm.com":
		return strings.HasPrefix(kind, "qaic")
	case "ibm.com":
		return strings.HasPrefix(kind, "spyre")
	case "microsoft.com":
		return kind == "directx"
	case "deviceclass.resource.kubernetes.io": // a device class: gpu.nvidia.com
		return slices.ContainsFunc(strings.Split(kind, "."), isDevice)
	}
	return isDevice(kind)
}

// isDevice says whether a word is one that vendors have for their devices, or
// slices of them: gpu, vgpu, gpu.shared, mig-1g.5gb, gpu-2gb, vgpu-number.
func isDevice(kind string) bool {
	if strings.HasPrefix(kind, "mig-") || strings.HasPrefix(kind, "gpu-") && strings.HasSuffix(kind, "gb") {
		return true
	}
	kind, _, _ = strings.Cut(kind, ".")
	kind = strings.TrimSuffix(strings.TrimSuffix(kind, "-number"), "num")
	return kind == "mig" || kind == "neuron" ||
		slices.ContainsFunc([]string{"gpu", "npu", "tpu", "dcu", "gcu", "dtu", "xpu"}, func(word string) bool { return strings.HasSuffix(kind, word) })
}

// isPercentOfGPU says whether a hundred of a resource are one GPU.
func isPercentOfGPU(name corev1.ResourceName) bool {
	switch name {
	case "koordinator.sh/gpu", "koordinator.sh/gpu-core", "tencent.com/vcuda-core", "iluvatar.ai/vcuda-core":
		return true
	}
	return false
}
