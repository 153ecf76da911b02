package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/trainyard/trainyard/e2e/cluster"
	"github.com/trainyard/trainyard/e2e/cluster/node"
	repo "github.com/trainyard/trainyard/repo-layout"
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

// deployed is an overlay as people write it from the example: one namespace of
// jobs, a token, a certificate authority of one's own.
func deployed(remote string) map[string]string {
	return map[string]string{
		"kustomization.yaml": `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
nameSuffix: -prod
resources: [SOURCE/base, namespaces.yaml, demo]
components: [SOURCE/components/git-token, SOURCE/components/git-ca]
images:
- {name: trainyard, newName: registry.example.com/trainyard, newTag: test}
configMapGenerator:
- name: trainyard
  behavior: merge
  literals:
  - TRAINYARD_REPO=` + remote + `
  - TRAINYARD_ENV=prod
  - TRAINYARD_NAMESPACES=demo
  - TRAINYARD_POLL=1s
  - TRAINYARD_PUBLISH_INTERVAL=1s
- {name: trainyard-policy, behavior: replace, files: [policy.yaml]}
labels:
- pairs: {app.kubernetes.io/instance: prod}
  includeSelectors: true
`,
		"namespaces.yaml":         "apiVersion: v1\nkind: Namespace\nmetadata: {name: demo, labels: {pod-security.kubernetes.io/enforce: baseline}}\n",
		"policy.yaml":             "podSecurity: baseline\nnamespaces: [demo]\nregistries: [docker.io/example]\nserviceAccounts: [default]\nmaxReplicas: 8\n",
		"demo/kustomization.yaml": "namespace: demo\nresources: [SOURCE/jobs]\n",
	}
}

// onHost serves on an address of this machine that pods reach.
func onHost(t *testing.T, n *node.Node, handler http.Handler) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(n.Host(), "0"))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = listener
	t.Cleanup(s.Close)
	return s
}

// serveGit serves the remote by HTTPS to who has the token, and returns its URL.
func (w *onCluster) serveGit(t *testing.T, n *node.Node, token string) string {
	t.Helper()
	backend := &cgi.Handler{
		Path:       filepath.Join(w.git("", "--exec-path"), "git-http-backend"),
		Env:        append([]string{"GIT_PROJECT_ROOT=" + filepath.Dir(w.remote), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=trainyard"}, w.env...),
		InheritEnv: []string{"PATH"},
	}
	s := onHost(t, n, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != token {
			out.Header().Set("WWW-Authenticate", "Basic")
			out.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(out, r)
	}))
	pair, err := tls.X509KeyPair(w.c.ServerCert("git", net.ParseIP(n.Host())))
	require.NoError(t, err)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	return s.URL + "/" + filepath.Base(w.remote)
}

// credentials are what an overlay does not hold.
func credentials(t *testing.T, c *cluster.Cluster, token string) {
	t.Helper()
	core := c.Client().CoreV1()
	_, err := core.Secrets(daemonHome).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "trainyard-git"}, StringData: map[string]string{"token": token + "\n"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	authority, err := os.ReadFile(c.CA())
	require.NoError(t, err)
	_, err = core.ConfigMaps(daemonHome).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "trainyard-git-ca"}, Data: map[string]string{"ca.crt": string(authority)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// loadDaemon builds the daemon's image from the source and brings it to the node.
func loadDaemon(t *testing.T, n *node.Node, name string) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	build := exec.CommandContext(t.Context(), "go", "run", "./deploy/image", "-name", name, "-o", archive)
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	n.LoadImage(t, archive)
}

// holder is who has the lease of the environment, "" if nobody has.
func (w *onCluster) holder() string {
	lease, err := w.c.Client().CoordinationV1().Leases(daemonHome).Get(w.t.Context(), "trainyard-prod", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// leader waits until a pod leads that is not the one named, and is ready.
func (w *onCluster) leader(not string) (leader *corev1.Pod) {
	w.t.Helper()
	w.eventually("a pod leads and is ready", func() bool {
		pods, err := w.c.Client().CoreV1().Pods(daemonHome).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=trainyard"})
		if err != nil {
			return false
		}
		for i, p := range pods.Items {
			if p.Name != not && strings.HasPrefix(w.holder(), p.Name+"_") && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready {
				leader = &pods.Items[i]
				return true
			}
		}
		return false
	})
	return leader
}

// TestNodeRunsDeployment: what deploy has for a cluster, applied to one, runs
// the image that is made of this source; it runs jobs, can be replaced while it
// does, and gives back what it holds.
func TestNodeRunsDeployment(t *testing.T) {
	t.Parallel()
	node.Require(t)
	c := cluster.Start(t, cluster.Options{Nodes: -1, Audit: true})
	n := node.Start(t, c, node.Options{})
	w := &onCluster{world: newWorld(t), c: c, namespace: "demo"}
	loadDaemon(t, n, "registry.example.com/trainyard:test")
	n.LoadTrainyard(t, exampleImages(t)...)
	w.copyExample("parameter-server")
	w.push("a job")

	const token = "let-me-in"
	all := overlay(t, deployed(w.serveGit(t, n, token)))
	ensureNamespace(t, c, daemonHome)
	credentials(t, c, token)
	begin := time.Now()
	apply(t, c, all...)
	w.eventually("it leads", func() bool { return w.holder() != "" })
	t.Logf("%.1f s from apply to a daemon that leads", time.Since(begin).Seconds())
	first := w.leader("")
	w.isConfined(n, first)
	w.eventually("the Deployment is available", func() bool { return w.available() == 1 })
	done := func(job string) {
		w.eventually(job+" succeeds", func() bool {
			rec, _ := w.recordIn("prod", "demo/"+job)
			return rec.Phase == repo.PhaseSucceeded
		})
	}
	done("softmax")

	open := w.gated(t, n)
	w.push("a job that waits")
	w.eventually("it runs", func() bool { rec, _ := w.recordIn("prod", "demo/gated"); return rec.Phase == repo.PhaseRunning })
	require.NoError(t, c.Client().CoreV1().Pods(daemonHome).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	begin = time.Now()
	second := w.leader(first.Name)
	t.Logf("%.1f s from the end of a daemon to the next", time.Since(begin).Seconds())
	open()
	done("gated")
	rec, _ := w.recordIn("prod", "demo/gated")
	require.Len(t, rec.Roles[0].Tasks[0].Attempts, 1)
	t.Logf("memory of the daemon: %s", w.isConfined(n, second))

	_, err := c.Client().AppsV1().Deployments(daemonHome).Patch(t.Context(), "trainyard-prod", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.eventually("the lease is given back", func() bool { return w.holder() == "" }) // one that runs out keeps its holder
	used, forbidden := w.usedRights(daemonUser + "-prod")
	assert.NotEmpty(t, used)
	assert.Empty(t, forbidden)
	assert.Empty(t, without(used, givenRights(t, all)))
}

// gated pushes a job that goes on until open is called.
func (w *onCluster) gated(t *testing.T, n *node.Node) (open func()) {
	t.Helper()
	var opened atomic.Bool
	s := onHost(t, n, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if !opened.Load() {
			out.WriteHeader(http.StatusNotFound)
		}
	}))
	s.Start()
	w.write("jobs/gated.yaml", strings.NewReplacer("metadata: {", "metadata: {namespace: demo, ", "name: main\n          command", "name: main\n          image: example/trainyard:1\n          command").
		Replace(job("gated", "until wget -q -O - "+s.URL+"; do sleep 0.2; done")))
	return func() { opened.Store(true) }
}

func (w *onCluster) available() int32 {
	d, err := w.c.Client().AppsV1().Deployments(daemonHome).Get(w.t.Context(), "trainyard-prod", metav1.GetOptions{})
	if err != nil {
		return 0
	}
	return d.Status.AvailableReplicas
}

// isConfined checks what the kernel says of the daemon's process, and that its
// namespace takes no pod that asks for more. It returns the most memory it has had.
func (w *onCluster) isConfined(n *node.Node, pod *corev1.Pod) (memory string) {
	w.t.Helper()
	assert.EqualValues(w.t, 0, pod.Status.ContainerStatuses[0].RestartCount)
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	script := fmt.Sprintf(`for p in /proc/[0-9]*; do if grep -qs %s $p/cgroup && grep -qs '^Name:.trainyard$' $p/status; then cat $p/status; grep ' / / ' $p/mountinfo; fi; done`, id)
	said := n.Run(w.t, "sh", "-c", script)
	assert.Regexp(w.t, `(?m)^Uid:\s65532\s65532\s65532\s65532$`, said)
	assert.Regexp(w.t, `(?m)^CapEff:\s0+$`, said)
	assert.Regexp(w.t, `(?m)^NoNewPrivs:\s1$`, said)
	assert.Regexp(w.t, `(?m)^Seccomp:\s2$`, said)
	assert.Regexp(w.t, `(?m) / / ro[, ]`, said)
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "shell"}}}}
	_, err := w.c.Client().CoreV1().Pods(daemonHome).Create(context.Background(), other, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	assert.True(w.t, apierrors.IsForbidden(err), "%v", err)
	for line := range strings.Lines(said) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			memory = strings.TrimSpace(rest)
		}
	}
	return memory
}
