package kubernetes

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

// journal is a log that is read while it is written.
type journal struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Write(p)
}

func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.out.String(), what)
}

// deployed are the rules of the Role that the daemon is deployed with.
func deployed(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/jobs/role.yaml")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var role rbacv1.Role
	require.NoError(t, yaml.UnmarshalStrict([]byte(first), &role))
	return role.Rules
}

// limited is a bench whose backend has these rights and no others.
func limited(t *testing.T, user string, rules []rbacv1.PolicyRule) (*bench, *journal) {
	b := newBench(t)
	rbac, log := b.c.Client().RbacV1(), &journal{}
	_, err := rbac.Roles(b.namespace).Create(b.ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.RoleBindings(b.namespace).Create(b.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	b.Backend, err = kubernetes.New(kubernetes.Options{Config: b.c.As(t, user), Environment: "test", Namespaces: []string{b.namespace}, Log: zerolog.New(log)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	eventually(t, "the rights are known", func() bool { _, err := b.Runs(b.ctx); return err == nil })
	return b, log
}

// life takes a run from its beginning to its end.
func life(t *testing.T, b *bench) {
	run := b.run("limited", 1, func(r *repo.Run) { r.Job.Objects = []repo.Object{settings(t, "settings")} })
	pod := b.start(run)[0]
	_, err := b.Prepare(b.ctx, run, 1)
	require.NoError(t, err)
	uid := string(b.until(pod.Name, "runs", phase(corev1.PodRunning)).UID)
	for _, what := range []string{"one", "two", "three"} {
		b.Announce(b.ctx, b.namespace, pod.Name, uid, "Tested", what, true)
	}
	require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, uid, new(int64)))
	require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, uid))
	b.until(pod.Name, "is gone", isGone)
	require.NoError(t, b.Forget(b.ctx, run.ID, b.namespace))
}

// TestDeployedRights: a run needs no more than the Role in deploy.
func TestDeployedRights(t *testing.T) {
	t.Parallel()
	b, log := limited(t, "deployed", deployed(t))
	life(t, b)
	eventually(t, "events are written", func() bool {
		events, err := b.c.Client().CoreV1().Events(b.namespace).List(b.ctx, metav1.ListOptions{FieldSelector: "reason=Tested"})
		return err == nil && len(events.Items) == 3
	})
	assert.Zero(t, log.count("forbidden"))
	_, err := b.Pods(b.ctx, repo.Key{Namespace: "elsewhere", Name: "limited"})
	assert.True(t, apierrors.IsForbidden(err), "none to be seen is not the same as none: %v", err)
}

// TestRightsThatAreMissing: without events and logs runs go on, which is told once.
func TestRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	b, log := limited(t, "poor", slices.DeleteFunc(deployed(t), func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "events") || slices.Contains(r.Resources, "pods/log")
	}))
	life(t, b)
	eventually(t, "it is told", func() bool { return log.count("events of pods cannot be written") > 0 })
	require.NoError(t, b.Close())
	assert.Equal(t, 1, log.count("forbidden"), "once")
}
