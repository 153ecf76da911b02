package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestServicesFollow: the service of a run is there soon after its pods, is made
// again when it is deleted or a daemon was killed before it came to it, and what
// keeps it from being is told with the pods.
func TestServicesFollow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	services := b.c.Client().CoreV1().Services(b.namespace)
	run := b.run("follows", 1)
	leads := func(attempt string) func() bool {
		return func() bool {
			s, err := services.Get(b.ctx, run.ID, metav1.GetOptions{})
			return err == nil && s.Spec.Selector[repo.LabelRunAttempt] == attempt && s.OwnerReferences[0].Name == run.ID
		}
	}
	pod := b.start(run)[0]
	eventually(t, "it follows", leads("0"))
	require.NoError(t, services.Delete(b.ctx, run.ID, metav1.DeleteOptions{}))
	eventually(t, "it was deleted, and is there again", leads("0"))

	for _, attempt := range []int32{1, 0} { // the second is a belated one
		_, err := b.Prepare(b.ctx, run, attempt)
		require.NoError(t, err)
		require.True(t, leads("1")(), "names never lead back to an earlier attempt")
	}

	require.NoError(t, b.Close())
	require.NoError(t, services.Delete(b.ctx, run.ID, metav1.DeleteOptions{}))
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: run.ID}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	_, err := services.Create(b.ctx, theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	b.reopen()
	_, err = b.Runs(b.ctx)
	require.NoError(t, err)
	told := func() string {
		pods, err := b.Pods(b.ctx, run.Job.Key)
		require.NoError(t, err)
		require.Len(t, pods, 1)
		return pods[0].Annotations[repo.AnnotationTrouble]
	}
	eventually(t, "somebody has the name", func() bool { return told() != "" })
	assert.Equal(t, "service: its name is taken: "+run.ID+" is not Trainyard's", told())
	require.NoError(t, services.Delete(b.ctx, run.ID, metav1.DeleteOptions{}))
	eventually(t, "the name is free", leads("0"))
	eventually(t, "all is well", func() bool { return told() == "" })

	uid := string(b.until(pod.Name, "is there", func(p *corev1.Pod) bool { return p != nil }).UID)
	require.NoError(t, b.Delete(b.ctx, b.namespace, pod.Name, uid, new(int64)))
	require.NoError(t, b.Release(b.ctx, b.namespace, pod.Name, uid))
	b.until(pod.Name, "is gone", isGone)
	require.NoError(t, b.Forget(b.ctx, run.ID, b.namespace))
	eventually(t, "nothing is left", func() bool {
		_, err := services.Get(b.ctx, run.ID, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestServicesOfNewRunsComeLast: a run is prepared without its service.
func TestServicesOfNewRunsComeLast(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	services := b.c.Client().CoreV1().Services(b.namespace)
	var runs []*repo.Run
	start := time.Now()
	for _, job := range []string{"a", "b", "c", "d"} {
		run := b.run(job, 1)
		_, err := b.Prepare(b.ctx, run, 0)
		require.NoError(t, err)
		runs = append(runs, run)
	}
	if time.Since(start) < time.Second { // else they may be there
		_, err := services.Get(b.ctx, runs[3].ID, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	}
	for _, run := range runs {
		eventually(t, "it follows", func() bool {
			_, err := services.Get(b.ctx, run.ID, metav1.GetOptions{})
			return err == nil
		})
	}
}
