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
		{"hundredths of one", nil, []corev1.Container{asks(nil, map[string]string{"tencent.com/vcuda-core": "250", "tencent.com/vcuda-memory": "60"}), limit("koordinator.sh/gpu", "100")}, 4},
		{"what is sold beside them", nil, []corev1.Container{asks(nil, map[string]string{gpu: "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30", "rdma/hca": "1"})}, 1},
		{"rounded up", nil, []corev1.Container{limit(gpu, "500m")}, 1},
		{"absurd", nil, []corev1.Container{limit(gpu, "9E"), limit(gpu, "9E"), limit(gpu, "9E")}, math.MaxInt64},
		{"beyond every integer", nil, []corev1.Container{limit(gpu, "1e30")}, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, GPUs(&corev1.PodSpec{InitContainers: c.init, Containers: c.main}))
		})
	}
}

// The names that device plugins give, and those beside them that are no devices.
func TestIsGPU(t *testing.T) {
	for _, name := range []corev1.ResourceName{
		"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-3g.20gb.shared", "nvidia.com/pgpu", "nvidia.com/gpu-2gb",
		"alpha.kubernetes.io/nvidia-gpu", "aliyun.com/vgpu", "volcano.sh/vgpu-number", "volcano.sh/gpu-number", "koordinator.sh/gpu.shared", "smarter-devices/nvidia-gpu",
		"amd.com/gpu", "amd.com/cpx_nps4", "amd.com/spx_nps1",
		"gpu.intel.com/i915", "gpu.intel.com/xe",
		"habana.ai/gaudi", "habana.ai/greco",
		"google.com/tpu", "cloud-tpus.google.com/v3", "cloud-tpus.google.com/preemptible-v2",
		"aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore",
		"huawei.com/Ascend910", "huawei.com/Ascend310P", "huawei.com/Ascend310P-2c", "huawei.com/ascend910B", "huawei.com/npu",
		"cambricon.com/mlu", "cambricon.com/mlu370", "cambricon.com/vmlu", "cambricon.com/mlu.mim-2m.8gb", "cambricon.com/mlu.share",
		"hygon.com/dcu", "hygon.com/dcunum", "metax-tech.com/gpu", "metax-tech.com/sgpu", "mthreads.com/vgpu", "iluvatar.ai/BI-V150-vgpu", "birentech.com/1-4-gpu",
		"enflame.com/gcu", "enflame.com/drs-gcu", "enflame.com/dtu", "kunlunxin.com/xpu", "kunlunxin.com/vxpu",
		"furiosa.ai/rngd", "furiosa.ai/rngd-2core.12gb", "beta.furiosa.ai/npu", "rebellions.ai/ATOM", "rebellions.ai/npu", "tenstorrent.com/blackhole",
		"qualcomm.com/qaic", "ibm.com/spyre_pf", "microsoft.com/directx",
		"deviceclass.resource.kubernetes.io/gpu.nvidia.com", "deviceclass.resource.kubernetes.io/mig.nvidia.com", "deviceclass.resource.kubernetes.io/vfio.gpu.nvidia.com",
	} {
		assert.True(t, IsGPU(name), name)
	}
	for _, name := range []corev1.ResourceName{
		"cpu", "memory", "gpu", "ephemeral-storage", "hugepages-2Mi", "rdma/hca", "nvidia.com/hostdev", "example.com/gpus-of-mine", "intel.com/qat",
		"nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage", "nvidia.com/priority",
		"gpu.intel.com/i915_monitoring", "gpu.intel.com/xe_monitoring", "gpu.intel.com/millicores", "gpu.intel.com/memory.max", "gpu.intel.com/tiles",
		"huawei.com/Ascend310P-memory", "cambricon.com/mlu.smlu.vcore", "cambricon.com/mlu.smlu.vmemory", "cambricon.com/mlumem", "hygon.com/dcumem", "hygon.com/dcucores",
		"aliyun.com/gpu-mem", "volcano.sh/gpu-memory", "volcano.sh/vgpu-cores", "mthreads.com/sgpu-memory", "enflame.com/gcu-core",
		"koordinator.sh/gpu", "koordinator.sh/gpu-memory-ratio", "tencent.com/vcuda-memory", "deviceclass.resource.kubernetes.io/nic.example.com",
	} {
		assert.False(t, IsGPU(name), name)
	}
}
