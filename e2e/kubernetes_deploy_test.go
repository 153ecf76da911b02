package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/trainyard/trainyard/e2e/cluster"
)

// overlay builds, as kubectl -k does, a directory of these files. SOURCE in them
// is the way from where it stands to what this source tree has for kubernetes.
func overlay(t *testing.T, files map[string]string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	source, err := filepath.Abs(filepath.Join("..", "deploy", "kubernetes"))
	require.NoError(t, err)
	for name, text := range files {
		name = filepath.Join(dir, name)
		up, err := filepath.Rel(filepath.Dir(name), source)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(strings.ReplaceAll(text, "SOURCE", up)), 0o644))
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	var out []*unstructured.Unstructured
	for _, r := range made.Resources() {
		text, err := r.MarshalJSON()
		require.NoError(t, err)
		o := &unstructured.Unstructured{}
		require.NoError(t, o.UnmarshalJSON(text))
		out = append(out, o)
	}
	return out
}

// apply brings objects to the cluster, as kubectl apply --server-side does.
func apply(t *testing.T, c *cluster.Cluster, objects ...*unstructured.Unstructured) {
	t.Helper()
	asked, err := discovery.NewDiscoveryClientForConfig(c.Config())
	require.NoError(t, err)
	known, err := restmapper.GetAPIGroupResources(asked)
	require.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(known)
	client, err := dynamic.NewForConfig(c.Config())
	require.NoError(t, err)
	for _, o := range objects {
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(t, err)
		_, err = client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test"})
		require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
	}
}
