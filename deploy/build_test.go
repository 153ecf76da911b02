package deploy

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	base       = "base"
	jobs       = "jobs"
	everywhere = "cluster-wide"
	prod       = "overlays/example"
	tests      = "overlays/test" // of what a test writes
)

var components = []string{
	"gang-coscheduling", "gang-native", "gang-volcano", "git-ca", "git-ssh", "git-token", "service-monitor", "webhook",
}

// The second environment of the README: beside the first, in its namespace.
const second = `
nameSuffix: -dev
resources: [../../base, nlp]
components: [../../components/git-token]
labels:
- pairs: {app.kubernetes.io/instance: dev}
  includeSelectors: true
configMapGenerator:
- name: trainyard
  behavior: merge
  literals: [TRAINYARD_ENV=dev, TRAINYARD_NAMESPACES=nlp, "TRAINYARD_REPO=https://git.example.com/ml/jobs.git"]
patches:
- patch: "{apiVersion: v1, kind: Namespace, metadata: {name: trainyard}, $patch: delete}"
`

// with is an overlay of the daemon, its rights, and components.
func with(rights string, names ...string) string {
	text := "resources: [../../base, " + rights + "]\ncomponents:\n"
	for _, n := range names {
		text += "- ../../components/" + n + "\n"
	}
	return text
}

// overlays are all that the tests look at, by name: the directories here, and
// overlays that people may write.
func overlays() map[string]string {
	all := map[string]string{
		"second environment": second, "plain": "resources: [../../base, nlp]\n", "cluster-wide": "resources: [../../base, ../../cluster-wide]\n",
		"everything":               with("nlp", "git-ssh", "git-ca", "webhook", "service-monitor", "gang-native", "gang-coscheduling", "gang-volcano"),
		"everything, cluster-wide": with("../../cluster-wide", "git-token", "git-ca", "webhook", "service-monitor", "gang-native", "gang-coscheduling", "gang-volcano") + "nameSuffix: -all\n",
	}
	for _, c := range components {
		all[c] = with("nlp", c)
	}
	return all
}

// each runs a test on the objects of every overlay.
func each(t *testing.T, test func(t *testing.T, all objects)) {
	t.Run("example", func(t *testing.T) { test(t, build(t, prod, "")) })
	for name, text := range overlays() {
		t.Run(name, func(t *testing.T) { test(t, build(t, tests, text)) })
	}
}

// objects are what a kustomization makes, decoded strictly. Those of types that
// Kubernetes does not have itself are in others.
type objects struct {
	known  []runtime.Object
	others []map[string]any
}

// build runs kustomize as kubectl does, on a copy of the directory in memory, so
// that it can reach nothing else. A text is the overlay of a test.
func build(t *testing.T, dir, text string) objects {
	t.Helper()
	memory := filesys.MakeFsInMemory()
	require.NoError(t, fs.WalkDir(os.DirFS("kubernetes"), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path.Join("kubernetes", name))
		if err != nil {
			return err
		}
		return memory.WriteFile("/"+name, b)
	}))
	if text != "" {
		require.NoError(t, memory.WriteFile("/"+tests+"/kustomization.yaml", []byte(text)))
		require.NoError(t, memory.WriteFile("/"+tests+"/nlp/kustomization.yaml", []byte("namespace: nlp\nresources: [../../../jobs]\n")))
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(memory, "/"+dir)
	require.NoError(t, err)
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var all objects
	for _, r := range made.Resources() {
		b, err := r.AsYAML()
		require.NoError(t, err)
		o, _, err := strict.Decode(b, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			var other map[string]any
			require.NoError(t, yaml.Unmarshal(b, &other))
			all.others = append(all.others, other)
			continue
		}
		require.NoError(t, err, "%s", b)
		all.known = append(all.known, o)
	}
	require.NotEmpty(t, all.known)
	return all
}

// of are the objects of one type.
func of[T runtime.Object](all objects) (found []T) {
	for _, o := range all.known {
		if t, ok := o.(T); ok {
			found = append(found, t)
		}
	}
	return found
}

// one is the only object of a type.
func one[T runtime.Object](t *testing.T, all objects) T {
	t.Helper()
	found := of[T](all)
	require.Len(t, found, 1)
	return found[0]
}

// program is the daemon's container.
func program(t *testing.T, all objects) (*corev1.PodSpec, *corev1.Container) {
	t.Helper()
	pod := &one[*appsv1.Deployment](t, all).Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	return pod, &pod.Containers[0]
}

// TestEverythingBuilds: without the network, into objects that Kubernetes knows
// field by field, each with a namespace, none like one that a job has.
func TestEverythingBuilds(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		for _, o := range all.known {
			m, err := meta.Accessor(o)
			require.NoError(t, err)
			kind := o.GetObjectKind().GroupVersionKind().Kind
			clusters := kind == "Namespace" || strings.HasPrefix(kind, "Cluster")
			assert.Equal(t, clusters, m.GetNamespace() == "", "%s %s: namespace %q", kind, m.GetName(), m.GetNamespace())
			assert.NotContains(t, m.GetLabels(), repo.LabelManagedBy, "%s %s: the daemon takes for its own what has this label", kind, m.GetName())
		}
		for _, o := range all.others {
			assert.Equal(t, "monitoring.coreos.com/v1 ServiceMonitor", o["apiVersion"].(string)+" "+o["kind"].(string))
		}
	})
	build(t, base, "")
	build(t, jobs, "")
	build(t, everywhere, "")
}

// TestEveryDirectoryIsTested: a component that nobody builds breaks unseen.
func TestEveryDirectoryIsTested(t *testing.T) {
	for dir, want := range map[string][]string{
		".": {base, everywhere, "components", jobs, "overlays"}, "components": components, "overlays": {"example"},
	} {
		entries, err := os.ReadDir(path.Join("kubernetes", dir))
		require.NoError(t, err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		assert.Equal(t, want, got)
	}
}

// TestExampleNamesOtherComponents: those that it has as comments are there.
func TestExampleNamesOtherComponents(t *testing.T) {
	text, err := os.ReadFile("kubernetes/" + prod + "/kustomization.yaml")
	require.NoError(t, err)
	named := 0
	for line := range strings.Lines(string(text)) {
		if _, rest, ok := strings.Cut(line, "../../components/"); ok {
			named++
			assert.Contains(t, components, strings.Fields(rest)[0])
		}
	}
	assert.Greater(t, named, 3)
}
