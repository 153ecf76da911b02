package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// inJobs is what the daemon may do where jobs run, by group/resource. That it
// is what the daemon does, a test of the whole program sees in an audit log.
var inJobs = map[string]string{
	"/pods":                   "get list watch create patch delete",
	"/pods/status":            "patch",
	"/pods/log":               "get",
	"/configmaps":             "get list create patch delete",
	"/services":               "get list create patch",
	"/persistentvolumeclaims": "get create patch",
	"/events":                 "list create",

	"resource.k8s.io/resourceclaimtemplates": "get create patch",
}

// ofGangs is what each way to start gangs adds.
var ofGangs = map[string]string{
	"gang-native":       "scheduling.k8s.io/podgroups",
	"gang-coscheduling": "scheduling.x-k8s.io/podgroups",
	"gang-volcano":      "scheduling.volcano.sh/podgroups",
}

// theCluster is what tells one cluster from another.
const theCluster = "kube-system"

// rights are rules by group/resource; those of the cluster itself name the
// one thing that they are about.
func rights(t *testing.T, rules []rbacv1.PolicyRule) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range rules {
		assert.Empty(t, r.NonResourceURLs)
		name := ""
		if len(r.ResourceNames) > 0 {
			assert.Equal(t, []string{theCluster}, r.ResourceNames)
			name = "/" + theCluster
		}
		for _, g := range r.APIGroups {
			for _, what := range r.Resources {
				key := g + "/" + what + name
				assert.NotContains(t, out, key, "twice")
				out[key] = strings.Join(r.Verbs, " ")
			}
		}
	}
	return out
}

// granted are the daemon's rights by namespace, "" for all of them, as bindings
// give them to its service account.
func granted(t *testing.T, all objects) map[string]map[string]string {
	t.Helper()
	pod, _ := program(t, all)
	home := one[*appsv1.Deployment](t, all).Namespace
	roles := map[string][]rbacv1.PolicyRule{}
	for _, r := range of[*rbacv1.Role](all) {
		roles["Role "+r.Namespace+"/"+r.Name] = r.Rules
	}
	for _, r := range of[*rbacv1.ClusterRole](all) {
		assert.Nil(t, r.AggregationRule)
		roles["ClusterRole /"+r.Name] = r.Rules
	}
	out := map[string]map[string]string{}
	bind := func(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: home}}, subjects)
		key := ref.Kind + " " + namespace + "/" + ref.Name
		require.Contains(t, roles, key)
		if out[namespace] == nil {
			out[namespace] = map[string]string{}
		}
		for what, verbs := range rights(t, roles[key]) {
			require.NotContains(t, out[namespace], what)
			out[namespace][what] = verbs
		}
		delete(roles, key)
	}
	for _, b := range of[*rbacv1.RoleBinding](all) {
		bind(b.Namespace, b.RoleRef, b.Subjects)
	}
	for _, b := range of[*rbacv1.ClusterRoleBinding](all) {
		bind("", b.RoleRef, b.Subjects)
	}
	assert.Empty(t, roles, "bound to nobody")
	return out
}

// TestRights: exactly these verbs, in the namespaces of jobs; in its own the
// daemon holds a lease and nothing else, and it may ask which cluster this is.
func TestRights(t *testing.T) {
	for name, text := range overlays() {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(inJobs)
			for gang, groups := range ofGangs {
				if strings.Contains(text, gang) {
					want[groups] = "create"
				}
			}
			where := "nlp"
			if strings.Contains(text, "cluster-wide") {
				where = ""
			}
			everywhere := map[string]string{"/namespaces/" + theCluster: "get"}
			if where == "" {
				maps.Copy(want, everywhere)
				everywhere = want
			}
			expected := map[string]map[string]string{"trainyard": {"coordination.k8s.io/leases": "get create update"}, where: want, "": everywhere}
			assert.Equal(t, expected, granted(t, build(t, tests, text)))
		})
	}
}

// TestNothingMore: whatever is added to the lists above, these stay out.
func TestNothingMore(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		for _, by := range granted(t, all) {
			for what, verbs := range by {
				assert.NotContains(t, what+verbs, "*")
				for _, never := range []string{"secrets", "nodes", "exec", "attach", "portforward", "ephemeralcontainers", "serviceaccounts", "rbac", "admissionregistration"} {
					assert.NotContains(t, what, never)
				}
				for _, never := range []string{"impersonate", "escalate", "bind", "deletecollection"} {
					assert.NotContains(t, verbs, never)
				}
			}
		}
		assert.Empty(t, of[*corev1.Secret](all), "a secret in a kustomization is one in Git")
	})
}

// TestExampleNamespaces: the daemon is told of the namespaces that it has rights
// in, the policy allows them, and none is its own: who may start pods beside it
// may mount its credentials.
func TestExampleNamespaces(t *testing.T) {
	all := build(t, prod, "")
	home := one[*appsv1.Deployment](t, all).Namespace
	var policy struct {
		Namespaces []string `json:"namespaces"`
	}
	var told []string
	for _, m := range of[*corev1.ConfigMap](all) {
		if s := m.Data["TRAINYARD_NAMESPACES"]; s != "" {
			told = strings.Split(s, ",")
		}
		require.NoError(t, yaml.Unmarshal([]byte(m.Data["policy.yaml"]), &policy))
	}
	by := granted(t, all)
	delete(by, home)
	delete(by, "")
	assert.ElementsMatch(t, slices.Collect(maps.Keys(by)), told)
	assert.ElementsMatch(t, told, policy.Namespaces)
	assert.NotContains(t, told, home)
	for _, rights := range by {
		assert.Equal(t, inJobs, rights)
	}
	for _, n := range of[*corev1.Namespace](all) {
		want := "baseline"
		if n.Name == home {
			want = "restricted"
		}
		assert.Equal(t, want, n.Labels["pod-security.kubernetes.io/enforce"])
	}
}
