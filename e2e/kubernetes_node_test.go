package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
	"github.com/trainyard/trainyard/e2e/cluster/node"
	repo "github.com/trainyard/trainyard/repo-layout"
)

var imageField = regexp.MustCompile(`(?m)^\s*image: (\S+)$`)

// exampleImages are those that the examples' jobs name, as a node knows them.
func exampleImages(t *testing.T) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "examples"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range imageField.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if !strings.Contains(name, "/") {
				name = "library/" + name
			}
			names = append(names, "docker.io/"+name)
		}
		return err
	}))
	slices.Sort(names)
	return slices.Compact(names)
}

// TestNodeRunsExamples: examples that were written for no cluster run unchanged
// on a real node, their tasks find each other by name, and their logs come back.
func TestNodeRunsExamples(t *testing.T) {
	t.Parallel()
	node.Require(t)
	c := cluster.Start(t, cluster.Options{Nodes: -1})
	n := node.Start(t, c, node.Options{})
	n.LoadTrainyard(t, exampleImages(t)...)
	flags := []string{"--runner", "kubernetes", "--kubeconfig", c.Kubeconfig()}
	for _, example := range []struct {
		name string
		code int
		want map[string]repo.Phase
	}{
		{"hello", 0, map[string]repo.Phase{"default/hello": repo.PhaseSucceeded}},
		{"retries", 1, map[string]repo.Phase{"default/recovers": repo.PhaseSucceeded, "default/exhausts": repo.PhaseFailed, "default/fails": repo.PhaseFailed}},
		{"parameter-server", 0, map[string]repo.Phase{"demo/softmax": repo.PhaseSucceeded}},
	} {
		w := newWorld(t)
		w.copyExample(example.name)
		for job := range example.want {
			ensureNamespace(t, c, filepath.Dir(job))
		}
		w.push(example.name)
		code, out := w.once(append(flags, "--env", example.name)...)
		assert.Equal(t, example.code, code, out)
		for job, want := range example.want {
			rec, ok := w.recordIn(example.name, job)
			require.True(t, ok, job)
			assert.Equal(t, want, rec.Phase, "%s: %s", job, rec.Message)
		}
	}

	w, _ := newFormats(t)
	// Its launcher starts ranks in the workers' pods by kubectl, which no image here has.
	require.NoError(t, os.Remove(filepath.Join(w.checkout, "jobs", "mpijob.yaml")))
	w.push("every format")
	code, out := w.once(flags...)
	require.Equal(t, 0, code, out)
	w.allSucceeded("own-format", "tfjob", "mxjob", "pytorchjob", "jaxjob", "framework", "job", "jobset")
	code, log := w.trainyard(append([]string{"logs", "pytorchjob", "master-0", "--repo", w.remote}, flags...)...)
	require.Equal(t, 0, code, log)
	assert.Contains(t, log, "rank 0 of 3")

	// A log that its node has removed is none, though the kubelet answers with
	// what it says of that, and calls it a success.
	pods, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: repo.LabelJob + "=pytorchjob," + repo.LabelRole + "=master"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	pod := &pods.Items[0]
	n.Run(t, "rm", "-r", fmt.Sprintf("/var/log/pods/%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
	code, log = w.trainyard(append([]string{"logs", "pytorchjob", "master-0", "--repo", w.remote}, flags...)...)
	assert.Equal(t, 1, code, log)
	assert.Contains(t, log, "no log of pytorchjob is on the cluster")
}

// ensureNamespace makes a namespace that may be there.
func ensureNamespace(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	namespaces := c.Client().CoreV1().Namespaces()
	if _, err := namespaces.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		return
	}
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (w *world) allSucceeded(jobs ...string) {
	w.t.Helper()
	for _, job := range jobs {
		rec, ok := w.record("default/" + job)
		require.True(w.t, ok, job)
		assert.Equal(w.t, repo.PhaseSucceeded, rec.Phase, "%s: %s", job, rec.Message)
	}
}
