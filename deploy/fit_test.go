package deploy

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	psa "k8s.io/pod-security-admission/api"
	standards "k8s.io/pod-security-admission/policy"
)

// matches says whether a selector selects an object.
func matches(t *testing.T, s *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	require.NotNil(t, s)
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	require.False(t, selector.Empty())
	return selector.Matches(labels.Set(of))
}

// TestNamesFit: what one object says of another is there.
func TestNamesFit(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		d := one[*appsv1.Deployment](t, all)
		pod, c := program(t, all)
		of := d.Spec.Template.Labels
		assert.True(t, matches(t, d.Spec.Selector, of))
		assert.True(t, matches(t, one[*policyv1.PodDisruptionBudget](t, all).Spec.Selector, of))
		assert.True(t, matches(t, &one[*networkingv1.NetworkPolicy](t, all).Spec.PodSelector, of))
		assert.True(t, matches(t, pod.TopologySpreadConstraints[0].LabelSelector, of))
		service := one[*corev1.Service](t, all)
		assert.True(t, matches(t, metav1.SetAsLabelSelector(service.Spec.Selector), of))
		assert.Equal(t, c.Ports[0].Name, service.Spec.Ports[0].TargetPort.StrVal)
		assert.Equal(t, one[*corev1.ServiceAccount](t, all).Name, pod.ServiceAccountName)
		for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			assert.Equal(t, c.Ports[0].Name, p.HTTPGet.Port.StrVal)
		}
		assert.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path, "readiness waits for the remote, life must not")
		assert.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
		assert.Contains(t, c.Args, "--listen=:"+strconv.Itoa(int(c.Ports[0].ContainerPort)))
		assert.Contains(t, c.Args, "--state-dir="+c.VolumeMounts[slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "state" })].MountPath)
		for _, m := range all.others {
			spec := m["spec"].(map[string]any)
			selector := map[string]string{}
			for k, v := range spec["selector"].(map[string]any)["matchLabels"].(map[string]any) {
				selector[k] = v.(string)
			}
			assert.True(t, matches(t, metav1.SetAsLabelSelector(selector), service.Labels))
			assert.Equal(t, service.Spec.Ports[0].Name, spec["endpoints"].([]any)[0].(map[string]any)["port"])
		}
	})
}

// Made by hand, as the components' first lines say: no secret is in a kustomization.
var byHand = []string{"trainyard-git", "trainyard-webhook", "trainyard-git-ca"}

// TestFilesFit: each volume is mounted, each file that a flag names lies in a
// mount, each config map is made here.
func TestFilesFit(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		pod, c := program(t, all)
		var made []string
		for _, m := range of[*corev1.ConfigMap](all) {
			made = append(made, m.Name)
		}
		files := map[string][]string{} // by volume; nil is any
		for _, v := range pod.Volumes {
			switch {
			case v.Secret != nil:
				assert.Contains(t, byHand, v.Secret.SecretName)
				assert.EqualValues(t, 0o400, *v.Secret.DefaultMode)
				for _, i := range v.Secret.Items {
					files[v.Name] = append(files[v.Name], i.Path)
				}
			case v.ConfigMap != nil:
				assert.Contains(t, append(byHand, made...), v.ConfigMap.Name)
			default:
				assert.NotNil(t, v.EmptyDir.SizeLimit, v.Name)
			}
			assert.True(t, slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }), "%s is not mounted", v.Name)
		}
		assert.Contains(t, made, c.EnvFrom[0].ConfigMapRef.Name)
		assert.NotNil(t, pod.SecurityContext.FSGroup, "files of root with mode 0400 are not for our user, but for its group")
		values := slices.Clone(c.Args)
		for _, e := range c.Env {
			values = append(values, e.Name+"="+e.Value)
			assert.True(t, e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil, "a secret in variable %s", e.Name)
		}
		for _, v := range values {
			_, file, _ := strings.Cut(v, "=")
			if !strings.HasPrefix(file, "/etc/") {
				continue
			}
			assert.True(t, slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
				name, in := strings.CutPrefix(file, m.MountPath+"/")
				return in && m.ReadOnly && m.SubPath == "" && (files[m.Name] == nil || slices.Contains(files[m.Name], name))
			}), "%s is in no mount", v)
		}
	})
}

// TestRestricted: the daemon's pod passes the strictest of Kubernetes' own
// standards, and is stricter where those have nothing to say.
func TestRestricted(t *testing.T) {
	evaluator, err := standards.NewEvaluator(standards.DefaultChecks(), nil)
	require.NoError(t, err)
	each(t, func(t *testing.T, all objects) {
		template := one[*appsv1.Deployment](t, all).Spec.Template
		for _, r := range evaluator.EvaluatePod(psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}, &template.ObjectMeta, &template.Spec) {
			assert.True(t, r.Allowed, "%s: %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
		pod, c := program(t, all)
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		assert.False(t, *pod.EnableServiceLinks, "a Service trainyard would set flags")
		assert.Equal(t, "512Mi", c.Resources.Limits.Memory().String())
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
		soft := resource.MustParse(strings.TrimSuffix(c.Env[i].Value, "B"))
		assert.Negative(t, soft.Cmp(*c.Resources.Limits.Memory()), "garbage is collected only after the limit")
	})
}

// TestWhoGetsIn: nobody, unless a component says so. What the daemon asks for
// itself is names, Git and the API server.
func TestWhoGetsIn(t *testing.T) {
	rules := func(text string) networkingv1.NetworkPolicySpec {
		return one[*networkingv1.NetworkPolicy](t, build(t, tests, text)).Spec
	}
	plain := rules(with("nlp", "git-token"))
	assert.ElementsMatch(t, []networkingv1.PolicyType{"Ingress", "Egress"}, plain.PolicyTypes)
	assert.Empty(t, plain.Ingress)
	hook := rules(with("nlp", "webhook")).Ingress
	require.Len(t, hook, 1)
	assert.Equal(t, "http", hook[0].Ports[0].Port.StrVal)
	metrics := rules(with("nlp", "service-monitor")).Ingress
	require.Len(t, metrics, 1)
	assert.NotEmpty(t, metrics[0].From)
	ports := map[int]bool{}
	for _, e := range plain.Egress {
		assert.NotEmpty(t, e.To)
		for _, p := range e.Ports {
			ports[p.Port.IntValue()] = true
		}
	}
	assert.ElementsMatch(t, []int{22, 53, 443, 6443}, slices.Collect(maps.Keys(ports)))
	assert.Equal(t, plain.Egress, one[*networkingv1.NetworkPolicy](t, build(t, prod, "")).Spec.Egress, "labels for all selectors reach those of others too")
}

// TestTwoEnvironmentsBesideEachOther share the namespace alone.
func TestTwoEnvironmentsBesideEachOther(t *testing.T) {
	a, b := build(t, prod, ""), build(t, tests, second)
	names := func(all objects) (out []string) {
		for _, o := range all.known {
			m, err := meta.Accessor(o)
			require.NoError(t, err)
			out = append(out, o.GetObjectKind().GroupVersionKind().Kind+" "+m.GetNamespace()+"/"+m.GetName())
		}
		return out
	}
	for _, n := range names(b) {
		assert.NotContains(t, names(a), n)
	}
	for _, n := range names(a) {
		assert.True(t, strings.HasPrefix(n, "Namespace ") || strings.Contains(n, "-prod"), "%s is what it would be called in any environment", n)
	}
	for _, pair := range [][2]objects{{a, b}, {b, a}} {
		pod := one[*appsv1.Deployment](t, pair[1]).Spec.Template.Labels
		assert.False(t, matches(t, metav1.SetAsLabelSelector(one[*corev1.Service](t, pair[0]).Spec.Selector), pod))
		assert.False(t, matches(t, one[*policyv1.PodDisruptionBudget](t, pair[0]).Spec.Selector, pod))
		assert.False(t, matches(t, one[*appsv1.Deployment](t, pair[0]).Spec.Selector, pod))
	}
}

// TestImageFits: the image's user and directories are those of the Deployment.
func TestImageFits(t *testing.T) {
	source, err := os.ReadFile("image/contents.go")
	require.NoError(t, err)
	constant := func(name string) string {
		m := regexp.MustCompile(`(?m)^\t` + name + `\s+= "?([^"\n]+)"?$`).FindSubmatch(source)
		require.NotNil(t, m, name)
		return string(m[1])
	}
	pod, c := program(t, build(t, prod, ""))
	for _, id := range []*int64{pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup, pod.SecurityContext.FSGroup} {
		assert.Equal(t, constant("user"), strconv.FormatInt(*id, 10))
	}
	assert.Contains(t, c.Args, "--state-dir="+constant("home"))
	assert.Empty(t, c.Command, "what to start is the image's affair")
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	for _, line := range []string{"USER " + constant("user") + ":" + constant("user"), "WORKDIR " + constant("home"), `ENTRYPOINT ["` + constant("start") + `"]`} {
		assert.Contains(t, string(dockerfile), line+"\n")
	}
}
