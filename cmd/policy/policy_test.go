package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// job with one role of two replicas and the pod given.
func job(spec corev1.PodSpec) repo.Job {
	return repo.Job{
		Key: repo.Key{Namespace: "nlp", Name: "a"}, Source: repo.Source{File: "jobs/a.yaml", Line: 3},
		Roles: []repo.Role{{Name: "worker", Replicas: 2, Template: corev1.PodTemplateSpec{Spec: spec}}},
	}
}

func mount(path string) corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}},
	}}
}

func image(name string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "train", Image: name}}}
}

func gpus(limits ...string) corev1.PodSpec {
	var spec corev1.PodSpec
	for _, l := range limits {
		spec.Containers = append(spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceName(l): resource.MustParse("2")}}})
	}
	return spec
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		spec         corev1.PodSpec
		want         string // "" when it is allowed
	}{
		{"nothing said but the level", "podSecurity: privileged", mount("/etc"), ""},
		{"nothing said", "{}", image("x"), ""},
		{"nothing said is baseline", "{}", mount("/etc"), `roles[worker].template.spec: pod security level baseline forbids: hostPath volumes (volume "data")`},
		{"namespace", "namespaces: [nlp]", corev1.PodSpec{}, ""},
		{"namespace pattern", "namespaces: ['nl*']", corev1.PodSpec{}, ""},
		{"another namespace", "namespaces: [vision, 'nlp-*']", corev1.PodSpec{},
			`jobs/a.yaml:3: metadata.namespace: "nlp" is no namespace of the policy (vision, nlp-*)`},
		{"no namespace", "namespaces: []", corev1.PodSpec{}, `jobs/a.yaml:3: metadata.namespace: "nlp" is no namespace of the policy (it allows none)`},
		{"host path", "hostPaths: [/data/]", mount("/data"), ""},
		{"host path below", "hostPaths: [/data]", mount("/data/x/"), ""},
		{"host path beside", "hostPaths: [/data]", mount("/database"),
			`jobs/a.yaml:3: roles[worker].template.spec.volumes[data].hostPath.path: "/database" lies in no host path of the policy (/data)`},
		{"host path outside", "hostPaths: [/data]", mount("/data/../etc"), `"/data/../etc" lies in no host path`},
		{"host path up and back", "hostPaths: [/data]", mount("/data/x/../y"), `lies in no host path`},
		{"host path relative", "hostPaths: [/]", mount("data"), `lies in no host path`},
		{"host path root", "hostPaths: [/]", mount("/etc"), ""},
		{"host network", "hostNetwork: false", corev1.PodSpec{HostNetwork: true},
			"jobs/a.yaml:3: roles[worker].template.spec.hostNetwork: the policy does not allow the host's network"},
		{"host network allowed", "hostNetwork: true", onHost(), ""},
		{"host network unsaid", "{}", onHost(), "pod security level baseline forbids: host namespaces (hostNetwork=true)"},
		{"replicas", "maxReplicas: 2", corev1.PodSpec{}, ""},
		{"too many replicas", "maxReplicas: 1", corev1.PodSpec{}, "jobs/a.yaml:3: roles: 2 replicas; the policy allows 1 for a job"},
		{"GPUs", "maxGPUs: 4", gpus("nvidia.com/gpu"), ""},
		{"too many GPUs", "maxGPUs: 7", gpus("nvidia.com/gpu", "amd.com/gpu"), "roles: 8 GPUs; the policy allows 7 for a job"},
		{"GPUs by other names", "maxGPUs: 15", gpus("alpha.kubernetes.io/nvidia-gpu", "gpu.intel.com/i915", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"), "16 GPUs"},
		{"no GPUs", "maxGPUs: 0", gpus("cpu"), ""},
		{"registry", "registries: [ghcr.io/acme]", image("ghcr.io/acme/bert:1"), ""},
		{"registry and repository", "registries: [ghcr.io/acme/bert]", image("ghcr.io/acme/bert@sha256:00"), ""},
		{"registry beside", "registries: [ghcr.io/acme]", image("ghcr.io/acme2/bert"),
			`roles[worker].template.spec.containers[train].image: "ghcr.io/acme2/bert" comes from no registry of the policy (ghcr.io/acme)`},
		{"a host that begins like it", "registries: [ghcr.io]", image("ghcr.io.evil.com/x"), "comes from no registry"},
		{"a port is another registry", "registries: [ghcr.io]", image("ghcr.io:5000/x"), "comes from no registry"},
		{"short names are Docker Hub's", "registries: [docker.io]", image("nginx"), ""},
		{"short names with a path", "registries: [docker.io/acme]", image("acme/nginx"), ""},
		{"short names elsewhere", "registries: [ghcr.io]", image("ghcr/x"), "comes from no registry"},
		{"no image", "registries: []", image(""), ""},
		{"service account", "serviceAccounts: [trainer]", corev1.PodSpec{ServiceAccountName: "trainer"}, ""},
		{"default service account", "serviceAccounts: [trainer]", corev1.PodSpec{}, `"default" is no service account of the policy (trainer)`},
		{"old service account field", "serviceAccounts: [trainer]", corev1.PodSpec{DeprecatedServiceAccount: "admin"}, `serviceAccount: "admin" is no service account`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse([]byte(c.policy))
			require.NoError(t, err)
			found := p.Check(job(c.spec))
			if c.want == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Contains(t, found[0].Error(), c.want)
		})
	}
}

func onHost() corev1.PodSpec {
	return corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "train", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}}
}

// Ways past a level that does not look everywhere.
func TestPodSecurity(t *testing.T) {
	yes, unmasked, always := true, corev1.UnmaskedProcMount, corev1.ContainerRestartPolicyAlways
	with := func(sc corev1.SecurityContext) []corev1.Container {
		return []corev1.Container{{Name: "train", SecurityContext: &sc}}
	}
	for name, spec := range map[string]corev1.PodSpec{
		"privileged container": {Containers: with(corev1.SecurityContext{Privileged: &yes})},
		"privileged init":      {InitContainers: with(corev1.SecurityContext{Privileged: &yes})},
		"privileged sidecar": {InitContainers: []corev1.Container{
			{Name: "train", RestartPolicy: &always, SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}},
		"privileged ephemeral container": {EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}}},
		"capabilities": {Containers: with(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}})},
		"procMount":    {Containers: with(corev1.SecurityContext{ProcMount: &unmasked})},
		"seccomp":      {SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}},
		"sysctls":      {SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}},
		"hostPID":      {HostPID: true},
		"hostIPC":      {HostIPC: true},
		"host port":    {Containers: []corev1.Container{{Name: "train", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}},
		"probe of another host": {Containers: []corev1.Container{{Name: "train", LivenessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "169.254.169.254"}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse([]byte("hostPaths: []"))
			require.NoError(t, err)
			found := p.Check(job(spec))
			require.Len(t, found, 1)
			assert.Contains(t, found[0].Error(), "pod security level baseline forbids: ")
			p, err = Parse([]byte("podSecurity: privileged"))
			require.NoError(t, err)
			assert.Empty(t, p.Check(job(spec)))
		})
	}
	p, err := Parse([]byte("podSecurity: restricted"))
	require.NoError(t, err)
	assert.NotEmpty(t, p.Check(job(image("x"))))
}

// Ways past the other limits.
func TestHidden(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		spec   corev1.PodSpec
		want   string
	}{
		"image as a volume": {"registries: [ghcr.io]", corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "code", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "evil.io/x"}}}}}, `volumes[code].image: "evil.io/x" comes from no registry`},
		"ephemeral container": {"registries: [ghcr.io]", corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "evil.io/x"}}}}, `ephemeralContainers[debug].image: "evil.io/x" comes from no registry`},
		"GPUs by claim": {"maxGPUs: 1", corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}, "resourceClaims: the policy counts GPUs"},
		"GPUs that wrap around": {"maxGPUs: 1", corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("9223372036854775807")}}}}}, "9223372036854775807 GPUs; the policy allows 1"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse([]byte(c.policy))
			require.NoError(t, err)
			found := p.Check(job(c.spec))
			require.Len(t, found, 1)
			assert.Contains(t, found[0].Error(), c.want)
		})
	}
}

func TestCheckObjectsOfTheUnit(t *testing.T) {
	p, err := Parse([]byte("namespaces: [nlp]"))
	require.NoError(t, err)
	j := job(corev1.PodSpec{})
	j.Objects = []repo.Object{
		{Kind: "ConfigMap", Name: "own", Raw: json.RawMessage(`{"metadata":{"name":"own"}}`)},
		{Kind: "Service", Name: "far", Raw: json.RawMessage(`{"metadata":{"namespace":"kube-system"}}`)},
	}
	found := p.Check(j)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Error(), `Service far: metadata.namespace: "kube-system"`)
}

func TestInitContainers(t *testing.T) {
	p, err := Parse([]byte("registries: [ghcr.io]\nmaxGPUs: 3"))
	require.NoError(t, err)
	spec := corev1.PodSpec{InitContainers: append(image("evil.io/x").Containers, gpus("nvidia.com/gpu").Containers...)}
	found := p.Check(job(spec))
	require.Len(t, found, 2)
	assert.Contains(t, found[0].Error(), "initContainers[train].image")
	assert.Contains(t, found[1].Error(), "4 GPUs")
}

func TestNoPolicyAllowsEverything(t *testing.T) {
	var p *Policy
	assert.Empty(t, p.Check(job(mount("/etc"))))
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "is empty",
		"# nothing":                 "is empty",
		"[a]":                       "line 1: a policy is a mapping of podSecurity",
		"hostPath: [/a]":            `line 1: unknown field "hostPath"; there are podSecurity, namespaces, hostPaths`,
		"\nnamespaces:":             "line 2: namespaces has no value; write [] to allow none",
		"maxReplicas: many":         "line 1: cannot unmarshal",
		"maxGPUs: -1":               "maxGPUs: -1 is less than 0",
		"maxReplicas: -1":           "maxReplicas: -1 is less than 0",
		"podSecurity: Baseline":     `podSecurity: "Baseline" is none of privileged`,
		"hostPaths: [data]":         `hostPaths: "data" is no absolute path`,
		"{}\n---\nmaxReplicas: 1\n": "more than one document",
		"maxGPUs: 1\nmaxGPUs: 2":    "already defined at line 1",
		"hostNetwork: [":            "line 1",
	} {
		_, err := Parse([]byte(in))
		assert.ErrorContains(t, err, want, "%q", in)
	}
}
