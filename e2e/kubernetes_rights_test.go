package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	daemonHome = "trainyard" // the namespace and the service account of deploy
	daemonUser = "system:serviceaccount:" + daemonHome + ":" + daemonHome
)

// commandAgent is what commands call themselves, which look once; a daemon adds
// its environment.
const commandAgent = "trainyard"

// right is one that a Role gives, and one that a request needs.
type right struct{ namespace, group, resource, verb string }

func (r right) String() string {
	return fmt.Sprintf("%s %s in group %q, namespace %s", r.verb, r.resource, r.group, r.namespace)
}

// givenRights are those of all Roles among the objects. A ClusterRole is about
// namespaces by name, which count as being in themselves.
func givenRights(t *testing.T, objects []*unstructured.Unstructured) map[right]bool {
	t.Helper()
	out := map[right]bool{}
	for _, o := range objects {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.Role
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						out[right{strings.Join(append(rule.ResourceNames, o.GetNamespace()), ""), group, resource, verb}] = true
					}
				}
			}
		}
	}
	return out
}

// auditEntry is what is read of a line of the API server's audit log.
type auditEntry struct {
	Verb, RequestURI, UserAgent string
	User                        struct{ Username string }
	ObjectRef                   *struct{ Namespace, APIGroup, Resource, Subresource string }
	ResponseStatus              struct {
		Code            int
		Reason, Message string
	}
}

// usedRights are those that a user's daemon needed, and all its requests that
// were forbidden. What belongs to no resource (which groups there are) needs none.
func (w *onCluster) usedRights(user string) (used map[right]bool, forbidden []string) {
	w.t.Helper()
	log, err := os.Open(w.c.AuditLog())
	require.NoError(w.t, err)
	defer log.Close()
	used = map[right]bool{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEntry
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.User.Username != user { // the last line may be written just now
			continue
		}
		if e.ResponseStatus.Code == http.StatusForbidden {
			forbidden = append(forbidden, e.Verb+" "+e.RequestURI+": "+e.ResponseStatus.Message)
		}
		if e.ObjectRef == nil || e.ObjectRef.Resource == "" || e.UserAgent == commandAgent {
			continue
		}
		r := right{e.ObjectRef.Namespace, e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.Verb}
		if e.ObjectRef.Subresource != "" {
			r.resource += "/" + e.ObjectRef.Subresource
		}
		used[r] = true
		if e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated { // by server-side apply
			r.verb = "create"
			used[r] = true
		}
	}
	require.NoError(w.t, lines.Err())
	return used, forbidden
}

// without are the rights of a that b lacks, in words.
func without(a, b map[right]bool) (out []string) {
	for r := range maps.Keys(a) {
		if !b[r] {
			out = append(out, r.String())
		}
	}
	slices.Sort(out)
	return out
}

// TestClusterRights: a daemon with the Roles of deploy, for one namespace, does
// all that there is to do. It is never told that it may not, and there is no
// right that it has not used. The server is one that sends no lists by watch, as
// older ones: a daemon has to ask for them there.
func TestClusterRights(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{
		Nodes: 3, NodeGrace: 10 * time.Second, Audit: true,
		Gates: "GenericWorkload=true,GangScheduling=true,WatchList=false", Runtime: "scheduling.k8s.io/v1alpha2=true",
	})
	for _, kind := range []string{"volcano", "coscheduling"} {
		definePodGroups(t, c, kind)
	}
	w := newOnCluster(t, c)
	all := overlay(t, map[string]string{
		"kustomization.yaml":      "resources: [SOURCE/base, jobs]\ncomponents: [SOURCE/components/gang-native, SOURCE/components/gang-volcano, SOURCE/components/gang-coscheduling]\n",
		"jobs/kustomization.yaml": "namespace: " + w.namespace + "\nresources: [SOURCE/jobs]\n",
	})
	apply(t, c, slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, o.GetKind())
	})...)
	kubeconfig := c.KubeconfigFor(t, c.As(t, daemonUser, "system:serviceaccounts", "system:serviceaccounts:"+daemonHome))
	flags := []string{"--runner", "kubernetes", "--kubeconfig", kubeconfig, "--namespaces", w.namespace, "--lease-namespace", daemonHome}

	given := givenRights(t, all)
	require.Greater(t, len(given), 20)
	w.useEverything(flags)
	for _, kind := range []string{"volcano", "coscheduling"} {
		w.startGang(kind, flags)
	}

	used, forbidden := w.usedRights(daemonUser)
	assert.Empty(t, forbidden)
	assert.Empty(t, without(given, used), "the Roles give what nothing needs")
	assert.Empty(t, without(used, given), "the daemon asks for what the Roles do not give")
}

// writeEverything writes a job for each thing that a daemon does with pods and
// what is around them, but for gangs that the cluster does not schedule itself.
func (w *onCluster) writeEverything() {
	w.t.Helper()
	annotate := func(job, annotation string) string {
		return strings.Replace(job, "annotations: {", "annotations: {"+annotation+", ", 1)
	}
	w.write("trainyard.yaml", "removal: {maxShare: 1}\n")
	w.write("jobs/good.yaml", w.simulated("good", 2, "1s", 0, "  gang: true\n"))
	w.write("jobs/bad.yaml", w.simulated("bad", 1, "1s", 3, "  retry: {limit: 1, backoff: {initial: 1s}}\n"))
	w.write("jobs/stays.yaml", annotate(w.simulated("stays", 1, forEver, 0, ""), "simulate.trainyard.dev/log: hello"))
	w.write("jobs/scaled.yaml", scaled(w.namespace, 1))
	w.write("jobs/deleted.yaml", w.simulated("deleted", 1, forEver, 0, ""))
	w.write("jobs/stuck.yaml", annotate(w.simulated("stuck", 1, forEver, 0, ""), "simulate.trainyard.dev/waiting: ContainerCreating"))
	w.write("jobs/roles.yaml", w.simulated("roles", 1, forEver, 0, "")+otherRole)
	w.write("jobs/unit.yaml", w.simulated("unit", 1, forEver, 0, "")+beside(w.namespace))
	w.write("jobs/board.yaml", withBoard(w.namespace))
	w.write("jobs/lost.yaml", strings.NewReplacer(
		"terminationGracePeriodSeconds: 1", impatiently, "    replicas: 1\n", "    replicas: 1\n    forceDeleteAfter: 3s\n",
	).Replace(w.simulated("lost", 1, forEver, 0, "")))
	w.push("everything")
}

// useEverything lets a daemon do all that, to its own end.
func (w *onCluster) useEverything(flags []string) {
	w.t.Helper()
	w.writeEverything()
	d := w.start(flags...)
	is := func(phase repo.Phase) func(repo.Record) bool {
		return func(r repo.Record) bool { return r.Phase == phase }
	}
	for _, job := range []string{"stays", "scaled", "roles", "unit", "board"} {
		w.untilRecord(job+" runs", job, is(repo.PhaseRunning))
	}
	pod := w.untilPod("a pod to delete", "deleted", attempt("0"))
	require.NoError(w.t, w.c.Client().CoreV1().Pods(w.namespace).Delete(w.t.Context(), pod.Name, metav1.DeleteOptions{}))
	code, log := w.trainyard(append([]string{"logs", w.namespace + "/stays", "--repo", w.remote}, flags[:6]...)...)
	require.Equal(w.t, 0, code, log)
	require.Contains(w.t, log, "hello")

	w.write("jobs/scaled.yaml", scaled(w.namespace, 3))
	w.write("jobs/roles.yaml", w.simulated("roles", 1, forEver, 0, "  stop: true\n")+otherRole)
	require.NoError(w.t, os.Remove(filepath.Join(w.checkout, "jobs/unit.yaml")))
	w.push("more tasks, a stop, a removal")
	w.untilRecord("it stops", "roles", is(repo.PhaseStopped))
	w.untilRecord("it is removed", "unit", is(repo.PhaseRemoved))
	w.untilRecord("there are more", "scaled", func(r repo.Record) bool { return r.Roles[0].Running == 3 })
	w.untilRecord("it succeeds", "good", is(repo.PhaseSucceeded))
	w.untilRecord("it fails twice", "bad", is(repo.PhaseFailed))
	w.untilPod("the deleted one runs again", "deleted", attempt("1"))
	w.eventually("somebody asks why one does not start", func() bool {
		used, _ := w.usedRights(daemonUser)
		return used[right{w.namespace, "", "events", "list"}]
	})

	pod = w.untilPod("a pod to lose", "lost", attempt("0"))
	w.c.SetNode(w.t, pod.Spec.NodeName, false)
	w.untilPod("the lost one runs again", "lost", attempt("1"))
	require.NoError(w.t, d.end(w.t, syscall.SIGTERM))
}

// otherRole makes the job before it one of two roles.
const otherRole = "  - {name: other, template: {spec: {containers: [{name: main, image: example/other:1}]}}}\n"

// impatiently are fields of a pod that does not wait for its node.
const impatiently = `tolerations:
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        terminationGracePeriodSeconds: 1`

// beside are an object of each kind that may stand beside a job.
func beside(namespace string) string {
	return fmt.Sprintf(`---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: %[1]s}, data: {a: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: dashboard, namespace: %[1]s}, spec: {selector: {app: dashboard}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: %[1]s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpus, namespace: %[1]s}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
`, namespace)
}

// scaled is a job of a format whose number of tasks may change while it runs.
func scaled(namespace string, tasks int) string {
	return fmt.Sprintf(`apiVersion: frameworkcontroller.microsoft.com/v1
kind: Framework
metadata: {name: scaled, namespace: %s}
spec:
  executionType: Start
  taskRoles:
  - name: worker
    taskNumber: %d
    task: {pod: {spec: {containers: [{name: main, image: example/train:1}]}}}
`, namespace, tasks)
}

// withBoard is a job with a TensorBoard.
func withBoard(namespace string) string {
	return fmt.Sprintf(`apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: board, namespace: %s}
spec:
  tensorboard: {logDir: /tmp/logs}
  replicaSpecs:
  - tfReplicaType: MASTER
    template:
      spec:
        restartPolicy: OnFailure
        containers: [{name: tensorflow, image: tensorflow/tensorflow}]
`, namespace)
}

// definePodGroups brings the groups of another scheduler to the cluster.
func definePodGroups(t *testing.T, c *cluster.Cluster, kind string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("kubernetes", "testdata", "gangs", kind+".yaml"))
	require.NoError(t, err)
	var object unstructured.Unstructured
	require.NoError(t, yaml.Unmarshal(text, &object.Object))
	apply(t, c, &object)
	group, _, err := unstructured.NestedString(object.Object, "spec", "group")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		all, err := c.Client().Discovery().ServerGroups()
		return err == nil && slices.ContainsFunc(all.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	}, time.Minute, 50*time.Millisecond, "%s is served", group)
}

// startGang lets a daemon of another environment start a gang by what the
// cluster has of another scheduler, which does not run.
func (w *onCluster) startGang(kind string, flags []string) {
	w.t.Helper()
	require.NoError(w.t, os.RemoveAll(filepath.Join(w.checkout, "jobs")))
	w.write("jobs/gang.yaml", w.simulated("gang", 2, forEver, 0, "  gang: true\n"))
	w.push("a gang")
	d := w.another(append(flags, "--env", kind, "--gang", kind)...)
	w.eventually("a pod of "+kind, func() bool {
		pods, err := w.c.Client().CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: repo.LabelEnvironment + "=" + kind})
		return err == nil && len(pods.Items) == 2
	})
	d.kill()
}
