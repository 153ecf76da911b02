package replicaspec

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

// settings are those of a configuration as the operators shipped it.
var settings = repo.Settings{Accelerators: map[string]repo.Accelerator{
	"alpha.kubernetes.io/nvidia-gpu": {
		Volumes: []repo.AcceleratorVolume{{Name: "lib", HostPath: "/usr/lib/nvidia-384", MountPath: "/usr/lib/nvidia"}},
		Env:     []corev1.EnvVar{{Name: "LD_LIBRARY_PATH", Value: "/usr/lib/nvidia"}},
	},
	"example.com/fpga": {Volumes: []repo.AcceleratorVolume{{Name: "fpga", HostPath: "/f", MountPath: "/f"}}},
}}

func finish(t *testing.T, text string) (*manifest.Object, corev1.PodSpec) {
	t.Helper()
	var template corev1.PodTemplateSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &template))
	o := manifest.NewObject(map[string]any{}, nil, settings)
	return o, Template(o, "t", "worker", "tensorflow", &template).Spec
}

// TestAccelerators holds the rules of B.7.
func TestAccelerators(t *testing.T) {
	for _, row := range []struct{ name, resources string }{
		{"limits", "{limits: {alpha.kubernetes.io/nvidia-gpu: 1}}"},
		{"requests", "{requests: {alpha.kubernetes.io/nvidia-gpu: 1}}"},
		{"both, once", "{limits: {alpha.kubernetes.io/nvidia-gpu: 1}, requests: {alpha.kubernetes.io/nvidia-gpu: 1}}"},
	} {
		o, pod := finish(t, "spec: {containers: [{name: side, resources: "+row.resources+"}, {name: tensorflow, env: [{name: A, value: b}], resources: "+row.resources+"}]}")
		require.False(t, o.Failed(), row.name)
		assert.Equal(t, []corev1.Volume{{Name: "lib", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/usr/lib/nvidia-384"}}}}, pod.Volumes, row.name)
		assert.Empty(t, pod.Containers[0].VolumeMounts, "only the container that counts")
		c := pod.Containers[1]
		assert.Equal(t, []corev1.VolumeMount{{Name: "lib", MountPath: "/usr/lib/nvidia"}}, c.VolumeMounts)
		assert.Equal(t, []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "LD_LIBRARY_PATH", Value: "/usr/lib/nvidia"}}, c.Env)
	}
	_, pod := finish(t, "spec: {containers: [{name: tensorflow}], initContainers: [{name: i, resources: {limits: {example.com/fpga: 1}}}]}")
	assert.Empty(t, pod.Volumes, "no init container")

	_, pod = finish(t, `spec:
  volumes: [{name: lib, hostPath: {path: /usr/lib/nvidia-384}}]
  containers: [{name: tensorflow, volumeMounts: [{name: lib, mountPath: /usr/lib/nvidia}], env: [{name: LD_LIBRARY_PATH, value: /usr/lib/nvidia}], resources: {limits: {alpha.kubernetes.io/nvidia-gpu: 1, example.com/fpga: 1}}}]`)
	assert.Len(t, pod.Volumes, 2, "what a file that was read back has is not added again")
	assert.Len(t, pod.Containers[0].VolumeMounts, 2)
	assert.Len(t, pod.Containers[0].Env, 1)

	o, _ := finish(t, "spec: {volumes: [{name: lib, emptyDir: {}}], containers: [{name: tensorflow, volumeMounts: [{name: lib, mountPath: /x}], resources: {limits: {alpha.kubernetes.io/nvidia-gpu: 1}}}]}")
	assert.True(t, o.Failed(), "the name of another volume")
	o, _ = finish(t, "spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: tensorflow, volumeMounts: [{name: v, mountPath: /f}], resources: {limits: {example.com/fpga: 1}}}]}")
	assert.True(t, o.Failed(), "the place of another volume")
}

func TestReadConfig(t *testing.T) {
	for text, want := range map[string]string{
		"accelerators: {gpu: {volumes: [{name: A_b, mountPath: /a, hostPath: /b}]}}":       "accelerators.gpu.volumes[0].name",
		"accelerators: {gpu: {volumes: [{name: a, mountPath: a, hostPath: /b}]}}":          `want an absolute path, not "a"`,
		"accelerators: {gpu: {volumes: [{name: a, mountPath: /a, hostPath: /b/../c}]}}":    "hostPath: want an absolute path",
		"accelerators: {gpu: {envVars: [{value: a}]}}":                                     "cannot be the name of a variable",
		"accelerators: {'a b': {}}":                                                        "cannot be the name of a resource",
		"accelerators: {gpu: {volumes: [{name: <volume-name>, mountPath: <mount-path>}]}}": "accelerators.gpu.volumes[0].name",
	} {
		var built map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &built))
		o := manifest.NewObject(built, nil, repo.Settings{})
		ReadConfig(o, &repo.Settings{})
		require.True(t, o.Failed(), text)
		assert.Contains(t, o.Problems()[0].Error(), want)
	}
}

func FuzzReadConfig(f *testing.F) {
	manifesttest.FuzzConfig(f, ReadConfig, "grpcServerFilePath: /x\naccelerators: {gpu: {volumes: [{name: a, mountPath: /a, hostPath: /b}], envVars: [{name: A, value: b}]}}\n")
}
