package kubernetes

import (
	"encoding/json"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

// settings is a config map of a unit.
func settings(t *testing.T, name string, edits ...func(*corev1.ConfigMap)) repo.Object {
	t.Helper()
	m := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "ours"}}
	for _, f := range edits {
		f(m)
	}
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	return repo.Object{APIVersion: "v1", Kind: "ConfigMap", Name: name, Raw: raw}
}

// TestObjectsOfOthersAreLeftAlone: a repository takes over no object that it did
// not bring: not people's, not another environment's, not those of runs.
func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	core := b.c.Client().CoreV1()
	victim := b.run("victim", 1)
	b.start(victim)
	for name, labels := range map[string]map[string]string{
		"theirs": {"team": "nlp"},
		"dev":    {repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: "dev"},
	} {
		_, err := core.ConfigMaps(b.namespace).Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"a": "theirs"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, why := range map[string]string{
		"theirs": "is not Trainyard's", "dev": `belongs to environment "dev"`, victim.ID: "belongs to run " + victim.ID, "kube-root-ca.crt": "is not Trainyard's",
	} {
		before, err := core.ConfigMaps(b.namespace).Get(b.ctx, name, metav1.GetOptions{})
		if name != "kube-root-ca.crt" {
			require.NoError(t, err)
		} else if apierrors.IsNotFound(err) {
			continue // its controller has not come to it yet
		}
		run := b.run("taker", 1, func(r *repo.Run) { r.Job.Objects = []repo.Object{settings(t, name)} })
		_, err = b.Prepare(b.ctx, run, 0)
		assert.True(t, apierrors.IsBadRequest(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, why)
		after, err := core.ConfigMaps(b.namespace).Get(b.ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, before, after)
	}
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	_, err := core.PersistentVolumeClaims(b.namespace).Create(b.ctx, claim, metav1.CreateOptions{})
	require.NoError(t, err)
	raw, err := json.Marshal(claim)
	require.NoError(t, err)
	run := b.run("taker", 1, func(r *repo.Run) {
		r.Job.Objects = []repo.Object{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "data", Raw: raw}}
	})
	_, err = b.Prepare(b.ctx, run, 0)
	assert.ErrorContains(t, err, "PersistentVolumeClaim data is in namespace "+b.namespace+" already, and is not Trainyard's")
}

// TestObjectsSayNothingOfOurs: what a unit's object says of itself makes it
// neither a run nor immortal.
func TestObjectsSayNothingOfOurs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.run("forger", 1, func(r *repo.Run) {
		r.Job.Objects = []repo.Object{settings(t, "forged", func(m *corev1.ConfigMap) {
			m.Labels = map[string]string{repo.LabelRun: "forged", repo.LabelJob: "other", "team": "nlp"}
			m.Finalizers = []string{"example.org/never"}
			m.Annotations = map[string]string{repo.AnnotationDigest: "x", "note": "kept"}
		})}
	})
	for range 2 { // again, as it is ours by now
		_, err := b.Prepare(b.ctx, run, 0)
		require.NoError(t, err)
	}
	got, err := b.c.Client().CoreV1().ConfigMaps(b.namespace).Get(b.ctx, "forged", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: "test", "team": "nlp"}, got.Labels)
	assert.Equal(t, map[string]string{"note": "kept"}, got.Annotations)
	assert.Empty(t, got.Finalizers)
	assert.Equal(t, run.ID, got.OwnerReferences[0].Name)
}

// TestNamesThatAreTaken: somebody else's service or pod has the name.
func TestNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	core := b.c.Client().CoreV1()
	run := b.run("taken", 1)
	_, err := core.Services(b.namespace).Create(b.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: run.ID}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = b.Prepare(b.ctx, run, 0)
	require.NoError(t, err, "the service of a new run comes later")
	_, err = b.Prepare(b.ctx, run, 1)
	assert.ErrorContains(t, err, "service: its name is taken: "+run.ID+" is not Trainyard's")
	require.NoError(t, core.Services(b.namespace).Delete(b.ctx, run.ID, metav1.DeleteOptions{}))
	addr, err := b.Prepare(b.ctx, run, 0)
	require.NoError(t, err)
	pod := b.pod(run, addr, 0)
	theirs := pod.DeepCopy()
	theirs.Labels, theirs.Finalizers = map[string]string{"team": "nlp"}, nil
	_, err = core.Pods(b.namespace).Create(b.ctx, theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	err = b.Create(b.ctx, pod)
	assert.True(t, apierrors.IsConflict(err), err)
	assert.ErrorContains(t, err, "a pod of this name is there that is somebody else's")
	require.NoError(t, core.Pods(b.namespace).Delete(b.ctx, pod.Name, *metav1.NewDeleteOptions(0)))
	eventually(t, "the name is free", func() bool { return b.Create(b.ctx, pod) == nil })
}

// TestRunIsDeletedByHand: pods of an owner that is gone would be collected as
// soon as they are made, and their retries, for ever.
func TestRunIsDeletedByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.run("byhand", 2)
	addr, err := b.Prepare(b.ctx, run, 0)
	require.NoError(t, err)
	runs := b.c.Client().CoreV1().ConfigMaps(b.namespace)
	require.NoError(t, runs.Delete(b.ctx, run.ID, metav1.DeleteOptions{}))
	eventually(t, "it is noticed", func() bool {
		err := b.Create(b.ctx, b.pod(run, addr, 0))
		return apierrors.IsNotFound(err)
	})
	_, err = b.Prepare(b.ctx, run, 0)
	require.NoError(t, err)
	err = b.Create(b.ctx, b.pod(run, addr, 1))
	require.NoError(t, err)
	made, err := runs.Get(b.ctx, run.ID, metav1.GetOptions{})
	require.NoError(t, err)
	pod, err := b.c.Client().CoreV1().Pods(b.namespace).Get(b.ctx, b.pod(run, addr, 1).Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, made.UID, pod.OwnerReferences[0].UID)
}

// TestRunThatIsGoingIsNotUsed: a config map that waits for its finalizers takes
// with it whatever is made for it now.
func TestRunThatIsGoingIsNotUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.run("going", 1)
	_, err := b.Prepare(b.ctx, run, 0)
	require.NoError(t, err)
	runs := b.c.Client().CoreV1().ConfigMaps(b.namespace)
	hold := func(finalizers string) {
		_, err := runs.Patch(b.ctx, run.ID, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	hold(`["example.org/hold"]`)
	require.NoError(t, runs.Delete(b.ctx, run.ID, metav1.DeleteOptions{}))
	_, err = b.Prepare(b.ctx, run, 0)
	assert.ErrorContains(t, err, "is being deleted")
	hold("null")
	_, err = b.Prepare(b.ctx, run, 0)
	require.NoError(t, err)
}

// of is a backend of the same environment of a repository.
func (b *bench) of(repository string) *bench {
	b.t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(b.t))
	other, err := kubernetes.New(kubernetes.Options{Config: b.c.Config(), Environment: "test", Repository: repository, Namespaces: []string{b.namespace}, Log: log})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, other.Close()) })
	_, err = other.Runs(b.ctx)
	require.NoError(b.t, err)
	return &bench{Backend: other, t: b.t, c: b.c, namespace: b.namespace, ctx: b.ctx}
}

// TestRepositoriesShareACluster: two repositories have an environment of the
// same name in one namespace. Neither sees what is the other's, takes it over,
// or has it in place of its own.
func TestRepositoriesShareACluster(t *testing.T) {
	t.Parallel()
	one := newBench(t)
	two, one := one.of("two-x"), one.of("one-x")
	owned := func(r *repo.Run) { r.Job.Objects = []repo.Object{settings(t, "settings")} }
	mine := one.run("mine", 1, owned)
	pod := one.start(mine)[0]
	theirs := two.run("theirs", 1)
	two.start(theirs)
	one.until(pod.Name, "runs", phase(corev1.PodRunning))
	for b, run := range map[*bench]*repo.Run{one: mine, two: theirs} {
		jobs, err := b.Jobs(b.ctx)
		require.NoError(t, err)
		require.Equal(t, []repo.Key{run.Job.Key}, jobs)
		runs, err := b.Runs(b.ctx)
		require.NoError(t, err)
		require.Equal(t, []repo.Run{*run}, runs)
	}
	pods, err := two.Pods(t.Context(), mine.Job.Key)
	require.NoError(t, err)
	require.Empty(t, pods)

	same := two.run("mine", 1) // of the same name, down to its pods'
	require.Equal(t, mine.ID, same.ID)
	const why = `belongs to environment "test" of repository one-x`
	_, err = two.Prepare(t.Context(), same, 0)
	require.ErrorContains(t, err, "its name is taken: config map "+mine.ID+" "+why)
	require.False(t, apierrors.IsBadRequest(err), "that may pass")
	err = two.Create(t.Context(), pod)
	require.True(t, apierrors.IsConflict(err), err)
	require.ErrorContains(t, err, "its name is taken: the pod of this name "+why)
	_, err = two.Prepare(t.Context(), two.run("other", 1, owned), 0)
	require.True(t, apierrors.IsBadRequest(err), err)
	require.ErrorContains(t, err, "ConfigMap settings is in namespace "+one.namespace+" already, and "+why)
	require.ErrorContains(t, two.Own(t.Context(), "three-x"), "start the daemon again")
}

// TestUnmarkedPodsAreTakenOver: what was made before repositories were told
// apart goes to the first one that comes.
func TestUnmarkedPodsAreTakenOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.run("old", 2)
	pods := b.start(run)
	b.until(pods[1].Name, "runs", phase(corev1.PodRunning))
	one := b.of("one-x")
	found, err := one.Pods(t.Context(), run.Job.Key)
	require.NoError(t, err)
	require.Len(t, found, 2)
	for _, p := range found {
		require.Equal(t, "one-x", p.Labels[repo.LabelRepository])
	}
	runs, err := one.Runs(t.Context())
	require.NoError(t, err)
	require.Equal(t, []repo.Run{*run}, runs)
	addr, err := one.Prepare(t.Context(), run, 1)
	require.NoError(t, err, "the run's service is its own, too")
	service, err := b.c.Client().CoreV1().Services(b.namespace).Get(t.Context(), run.ID, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "one-x", service.Labels[repo.LabelRepository])
	require.True(t, apierrors.IsAlreadyExists(one.Create(t.Context(), one.pod(run, addr, 0))))
	found, err = b.of("two-x").Pods(t.Context(), run.Job.Key)
	require.NoError(t, err)
	require.Empty(t, found, "it came second")
}

// TestClusterHasOneIdentity: whoever asks; who may not ask is told nothing.
func TestClusterHasOneIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, err := b.Cluster(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, one)
	two, err := b.of("two-x").Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, one, two)
	nobody, err := kubernetes.New(kubernetes.Options{Config: b.c.As(t, "nobody"), Environment: "test", Namespaces: []string{b.namespace}, Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nobody.Close()) })
	none, err := nobody.Cluster(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
}
