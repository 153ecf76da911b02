package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	values := map[string]string{"A": "a", "B": "$(A)", "EMPTY": ""}
	get := func(n string) (string, bool) { v, ok := values[n]; return v, ok }
	for text, want := range map[string]string{
		"plain": "plain", "$(A)": "a", "x$(A)y$(A)": "xaya", "$(B)": "$(A)", "$(EMPTY)": "", "$(NO)": "$(NO)", "$$(A)": "$(A)", "$$$(A)": "$a",
		"$$$$(A)": "$$(A)", "$A": "$A", "$": "$", "a$": "a$", "$(A": "$(A", "$()": "$()", "$(A)$": "a$", "${A}": "${A}", "$((A))": "$((A))", "$$$$": "$$",
	} {
		assert.Equal(t, want, expand(text, get), text)
	}
}

type environmentTest struct {
	env  corev1.EnvVar
	want string
	err  string
}

func environmentTests() []environmentTest {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	res := func(name, divisor, container string) *corev1.EnvVarSource {
		r := &corev1.ResourceFieldSelector{Resource: name, ContainerName: container}
		if divisor != "" {
			r.Divisor = resource.MustParse(divisor)
		}
		return &corev1.EnvVarSource{ResourceFieldRef: r}
	}
	yes := true
	key := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	return []environmentTest{
		{env: corev1.EnvVar{Value: "x"}, want: "x"},
		{env: corev1.EnvVar{Value: "$(FIRST)-$(LATER)-$$(FIRST)"}, want: "one-$(LATER)-$(FIRST)"},
		{env: corev1.EnvVar{Value: "$(TRAINYARD_VOLUME_MY_DATA)"}, want: "/real"},
		{env: corev1.EnvVar{Value: "$(A)"}, want: "from-map"},
		{env: corev1.EnvVar{Value: "$(P_k)"}, want: "v"},
		{env: corev1.EnvVar{ValueFrom: field("metadata.name")}, want: "env"},
		{env: corev1.EnvVar{ValueFrom: field("metadata.namespace")}, want: "ns"},
		{env: corev1.EnvVar{ValueFrom: field("metadata.uid")}, want: "the-uid"},
		{env: corev1.EnvVar{ValueFrom: field("metadata.labels['team']")}, want: "nlp"},
		{env: corev1.EnvVar{ValueFrom: field("metadata.labels['none']")}, want: ""},
		{env: corev1.EnvVar{ValueFrom: field("metadata.annotations['note']")}, want: "hello"},
		{env: corev1.EnvVar{ValueFrom: field("spec.nodeName")}, want: "node-1"},
		{env: corev1.EnvVar{ValueFrom: field("spec.serviceAccountName")}, want: "default"},
		{env: corev1.EnvVar{ValueFrom: field("status.podIP")}, want: "127.0.0.1"},
		{env: corev1.EnvVar{ValueFrom: field("status.hostIP")}, want: "127.0.0.1"},
		{env: corev1.EnvVar{ValueFrom: field("spec.nonsense")}, err: `field "spec.nonsense" is not known`},
		{env: corev1.EnvVar{ValueFrom: res("limits.cpu", "", "")}, want: "2"},
		{env: corev1.EnvVar{ValueFrom: res("limits.cpu", "1m", "")}, want: "1500"},
		{env: corev1.EnvVar{ValueFrom: res("limits.cpu", "", "other")}, want: "3"},
		{env: corev1.EnvVar{ValueFrom: res("requests.cpu", "1m", "")}, want: "250"},
		{env: corev1.EnvVar{ValueFrom: res("limits.memory", "1Mi", "")}, want: "2048"},
		{env: corev1.EnvVar{ValueFrom: res("limits.memory", "1Gi", "other")}, want: "8"},
		{env: corev1.EnvVar{ValueFrom: key("cm", "k", nil)}, want: "v"},
		{env: corev1.EnvVar{ValueFrom: key("cm", "none", &yes)}, want: "unset"},
		{env: corev1.EnvVar{ValueFrom: key("cm", "none", nil)}, err: `configmap "cm" has no key "none"`},
		{env: corev1.EnvVar{ValueFrom: key("none", "k", nil)}, err: `configmap "none" not found`},
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	pod := testPod("env", "true", func(p *corev1.Pod) {
		p.UID = "the-uid"
		p.Labels["team"] = "nlp"
		p.Annotations = map[string]string{"note": "hello"}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("3")}}})
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("2Gi")},
			Requests: corev1.ResourceList{"cpu": resource.MustParse("250m")}}
	})
	s := &source{pod: pod, dir: "/pod", base: []string{"PATH=/bin"}, volumes: map[string]string{"my-data": "/real"},
		order: &order{Node: "node-1", Capacity: corev1.ResourceList{"memory": resource.MustParse("8Gi")}},
		maps:  map[string]corev1.ConfigMap{"cm": {Data: map[string]string{"k": "v", "A": "from-map"}}}}
	yes := true
	for _, tc := range environmentTests() {
		tc.env.Name = "X"
		c := &pod.Spec.Containers[0]
		c.EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
			{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: &yes}},
		}
		c.Env = []corev1.EnvVar{{Name: "FIRST", Value: "one"}, tc.env, {Name: "LATER", Value: "two"}}
		env, err := s.environment(c)
		if tc.err != "" {
			assert.ErrorContains(t, err, tc.err)
			continue
		}
		require.NoError(t, err)
		got, ok := lookup(env, "X")
		if !ok {
			got = "unset"
		}
		assert.Equal(t, tc.want, got, "%+v", tc.env)
	}
}

// Nothing of the daemon's environment but what is named reaches a pod, and the
// pod cannot take the marks off.
func TestEnvironmentOfAPod(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) {
		o.Environ = []string{"PATH=" + os.Getenv("PATH"), "LANG=C", "USER=me", "TMPDIR=/tmp", "GIT_TOKEN=secret", "TRAINYARD_PASSWORD=secret", "HOME=/root"}
	})
	pod := run(t, b, testPod("printenv", "env", func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TRAINYARD_POD_UID", Value: "forged"}, {Name: "CUDA_VISIBLE_DEVICES", Value: "0,1"}, {Name: "MINE", Value: "$(USER)"}}
	}), corev1.PodSucceeded)
	got := map[string]string{}
	for line := range strings.Lines(logOf(t, b, "printenv", "")) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[k] = v
	}
	dir := b.podDir("ns", "printenv")
	delete(got, "_")
	delete(got, "OLDPWD")
	delete(got, "SHLVL")
	assert.Equal(t, map[string]string{
		"PATH": os.Getenv("PATH"), "LANG": "C", "USER": "me", "TMPDIR": "/tmp", "HOME": filepath.Join(dir, "work"), "PWD": filepath.Join(dir, "work"), "MINE": "me",
		"TRAINYARD_POD_UID": string(pod.UID), "TRAINYARD_CONTAINER": string(pod.UID) + "/main", "TRAINYARD_TERMINATION_LOG": filepath.Join(dir, "messages", "main"),
		"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void",
	}, got)
}

func TestArgumentsAreExpanded(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	run(t, b, testPod("args", "", func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Command, c.Args, c.Env = []string{"echo", "$(A)"}, []string{"$(A)$(NO)", "$$(A)"}, []corev1.EnvVar{{Name: "A", Value: "a b"}}
	}), corev1.PodSucceeded)
	assert.Equal(t, "a b a b$(NO) $(A)\n", logOf(t, b, "args", ""))
}

func TestMissingConfigMapFailsThePod(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	pod := run(t, b, testPod("no-map", "true", func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}}}}
	}), corev1.PodFailed)
	assert.Equal(t, "CreateContainerConfigError", pod.Status.Reason)
	assert.Contains(t, pod.Status.Message, `configmap "gone" not found`)
	require.NotNil(t, pod.Status.ContainerStatuses[0].State.Waiting)
}

// testRun has two roles and a config map.
func testRun(id string) *repo.Run {
	raw, _ := json.Marshal(corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data: map[string]string{"lr": "0.1", "file.txt": "text\n"}})
	return &repo.Run{ID: id, Environment: "test", Job: repo.Job{Key: testKey,
		Roles:   []repo.Role{{Name: "worker", Replicas: 3}, {Name: "ps", Replicas: 1}},
		Objects: []repo.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "settings", Raw: raw}}}}
}
