package render

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	renameGPUs = "gpus: {rename: {alpha.kubernetes.io/nvidia-gpu: nvidia.com/gpu}}\n"
	// oldGPUs has a retired name under requests alone, as published examples do.
	oldGPUs = "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: old}\nspec: {replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, image: a/b, resources: {RESOURCES}}]}}}]}\n"
)

func oldGPUJob(resources string) string { return strings.Replace(oldGPUs, "RESOURCES", resources, 1) }

func resourcesOf(t *testing.T, defs repo.Definitions) corev1.ResourceRequirements {
	t.Helper()
	require.Empty(t, defs.Invalid)
	require.Len(t, defs.Jobs, 1)
	return defs.Jobs[0].Roles[0].Template.Spec.Containers[0].Resources
}

// A retired name is mapped only if the settings say so: then wherever it
// stands, before the overlay sees it, and in what operators have for it.
func TestRenamedResources(t *testing.T) {
	for name, resources := range map[string]string{
		"limits":        `limits: {alpha.kubernetes.io/nvidia-gpu: 1}`,
		"requests":      `requests: {alpha.kubernetes.io/nvidia-gpu: 1}`,
		"both":          `limits: {alpha.kubernetes.io/nvidia-gpu: 1}, requests: {alpha.kubernetes.io/nvidia-gpu: 1}`,
		"both names":    `limits: {alpha.kubernetes.io/nvidia-gpu: 1, nvidia.com/gpu: 1}`,
		"in two places": `limits: {nvidia.com/gpu: 1}, requests: {alpha.kubernetes.io/nvidia-gpu: 1}`,
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"jobs/a.yaml": oldGPUJob(resources)}
			defs := render(t, files)
			was := resourcesOf(t, defs)
			require.Contains(t, strings.Join(warningsOf(defs), "\n"), "jobs/a.yaml:4:")
			require.Contains(t, strings.Join(warningsOf(defs), "\n"), "no cluster since Kubernetes 1.11 schedules it")
			assert.True(t, len(was.Limits)+len(was.Requests) > 0)

			files["trainyard.yaml"] = renameGPUs + "operators: {tfJob: ops.yaml}\n"
			files["ops.yaml"] = "accelerators: {alpha.kubernetes.io/nvidia-gpu: {envVars: [{name: LD, value: /v}]}}\n"
			files["overlays/prod/kustomization.yaml"] = componentHeader + "patches: [{target: {kind: Pod}, patch: '[{op: test, path: /spec/containers/0/resources/limits/nvidia.com~1gpu, value: \"1\"}]'}]\n"
			mapped := render(t, files)
			is := resourcesOf(t, mapped)
			assert.Equal(t, int64(1), is.Limits.Name("nvidia.com/gpu", "").Value())
			assert.Len(t, is.Limits, 1)
			assert.NotContains(t, is.Requests, corev1.ResourceName("alpha.kubernetes.io/nvidia-gpu"))
			assert.Empty(t, warningsOf(mapped), "it was asked for")
			assert.Equal(t, []corev1.EnvVar{{Name: "LD", Value: "/v"}}, mapped.Jobs[0].Roles[0].Template.Spec.Containers[0].Env)
			assert.NotEqual(t, defs.Jobs[0].Digest, mapped.Jobs[0].Digest, "other pods run")
		})
	}
}

// The mapping changes the identity of the jobs that have the name, and of no
// other; it reaches every format, and what an overlay puts in.
func TestRenamingChangesNoOtherJob(t *testing.T) {
	was := only(t, map[string]string{"jobs/a.yaml": digestJob})
	is := only(t, map[string]string{"jobs/a.yaml": digestJob, "trainyard.yaml": renameGPUs})
	assert.Equal(t, was.Digest, is.Digest)

	byOverlay := only(t, map[string]string{
		"jobs/a.yaml": digestJob, "trainyard.yaml": renameGPUs,
		"overlays/prod/kustomization.yaml": componentHeader + "patches: [{target: {kind: Pod}, patch: '[{op: add, path: /spec/containers/0/resources, value: {limits: {alpha.kubernetes.io/nvidia-gpu: 2}}}]'}]\n",
	})
	assert.Equal(t, int64(2), byOverlay.Roles[0].Template.Spec.Containers[0].Resources.Limits.Name("nvidia.com/gpu", "").Value())
	assert.NotEqual(t, was.Digest, byOverlay.Digest)

	for kind, text := range samples {
		files := map[string]string{
			"trainyard.yaml": renameGPUs,
			"jobs/a.yaml":    strings.ReplaceAll(text, "CONTAINER", "image: a/b, resources: {limits: {alpha.kubernetes.io/nvidia-gpu: 1}}"),
		}
		defs := render(t, files)
		require.Empty(t, defs.Invalid, kind)
		for _, role := range defs.Jobs[0].Roles {
			assert.Contains(t, role.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceName("nvidia.com/gpu"), kind)
			assert.Len(t, role.Template.Spec.Containers[0].Resources.Limits, 1, kind)
		}
	}
}

func TestBadNamesOfResources(t *testing.T) {
	for text, want := range map[string]string{
		`{rename: {cpu: nvidia.com/gpu}}`:                                `trainyard.yaml:1:17: gpus.rename.cpu: "cpu" is no name of a vendor's resource`,
		`{rename: {a.b/c: gpu}}`:                                         `gpus.rename["a.b/c"]: "gpu" is no name of a vendor's resource, as nvidia.com/gpu is`,
		`{rename: {a.b/c: requests.kubernetes.io/x}}`:                    `is no name of a vendor's resource`,
		`{rename: {a.b/c: d.e/f, d.e/f: g.h/i}}`:                         `gpus.rename["a.b/c"]: d.e/f is renamed itself`,
		`{rename: {a.b/c: a.b/c}}`:                                       `a.b/c is renamed itself`,
		`{rename: {a.b/c: 1}}`:                                           `gpus.rename["a.b/c"]: want text, not the number 1`,
		`{renames: {}}`:                                                  `gpus.renames: unknown field; did you mean "rename"?`,
		`{rename: {"a b/c": d.e/f}}`:                                     `"a b/c" is no name`,
		`{rename: {alpha.kubernetes.io/nvidia-gpu: "nvidia.com/gpu x"}}`: `"nvidia.com/gpu x" is no name`,
	} {
		defs := render(t, map[string]string{"trainyard.yaml": "gpus: " + text + "\n", "jobs/a.yaml": digestJob})
		require.NotEmpty(t, defs.Problems, text)
		assert.Contains(t, strings.Join(all(defs), "\n"), want, text)
		assert.Empty(t, defs.Jobs, text)
	}
	defs := render(t, map[string]string{"trainyard.yaml": renameGPUs, "jobs/a.yaml": oldGPUJob(`limits: {alpha.kubernetes.io/nvidia-gpu: 1, nvidia.com/gpu: 2}`)})
	require.Len(t, defs.Invalid, 1)
	assert.Contains(t, strings.Join(all(defs), "\n"), `jobs/a.yaml:4:107: spec.replicaSpecs[0].template.spec.containers[0].resources.limits["alpha.kubernetes.io/nvidia-gpu"]: trainyard.yaml renames it to nvidia.com/gpu, of which 2 are asked for beside it: keep one of the two`)
}

// What an overlay makes of a pod's resources is as the API server would have it.
func TestOverlaysOfResources(t *testing.T) {
	withLimits := strings.Replace(digestJob, "command: [echo, a]", "resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}", 1)
	for patch, want := range map[string]string{
		`[{op: replace, path: /spec/containers/0/resources/limits/nvidia.com~1gpu, value: 2}]`:                       `overlays/prod/kustomization.yaml: on the pods of role worker of job default/job: spec.containers[0].resources.requests["nvidia.com/gpu"]: 1 is not the limit, 2`,
		`[{op: replace, path: /spec/containers/0/resources/limits/nvidia.com~1gpu, value: 500m}]`:                    `500m of it cannot be had`,
		`[{op: add, path: /spec/containers/0/resources/claims, value: [{name: gpu}]}]`:                               `spec.containers[0].resources.claims[0].name: the pod declares no resource claim "gpu"`,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {resourceClaims: [{name: a, resourceClaimNam: b}]}}`: `spec.resourceClaims[0].resourceClaimNam: unknown field; did you mean "resourceClaimName"?`,
	} {
		defs := render(t, map[string]string{
			"jobs/a.yaml": withLimits, "overlays/prod/kustomization.yaml": componentHeader + "patches: [{target: {kind: Pod}, patch: '" + patch + "'}]\n",
		})
		require.Len(t, defs.Invalid, 1, patch)
		assert.Contains(t, strings.Join(all(defs), "\n"), want)
	}
}

// The example's job has its class in each environment, and keeps its file.
func TestGPUClassesExample(t *testing.T) {
	for environment, gpus := range map[string]int64{"prod": 1, "dev": 0} {
		defs, err := New(environment).Render(context.Background(), Dir(os.DirFS("../examples/gpu-classes"), "1"))
		require.NoError(t, err)
		require.Empty(t, all(defs))
		require.Len(t, defs.Jobs, 1)
		require.Empty(t, defs.Jobs[0].Warnings)
		pod := defs.Jobs[0].Roles[0].Template.Spec
		assert.Equal(t, gpus, repo.GPUs(&pod), environment)
		assert.Equal(t, gpus > 0, pod.NodeSelector != nil, environment)
	}
}

func warningsOf(defs repo.Definitions) (texts []string) {
	for _, j := range defs.Jobs {
		for _, w := range j.Warnings {
			texts = append(texts, w.Error())
		}
	}
	return texts
}
