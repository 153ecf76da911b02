package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/status"
)

// binding of the default environment, as it is on the status branch.
func (w *onCluster) binding() (b repo.Binding) {
	w.t.Helper()
	text, err := w.tryGit(w.remote, "show", repo.StatusBranch+":"+repo.Layout{}.Binding(repo.DefaultEnvironment))
	if err != nil {
		return b
	}
	dir := w.t.TempDir()
	file := filepath.Join(dir, repo.Layout{}.Binding(repo.DefaultEnvironment))
	require.NoError(w.t, os.Mkdir(filepath.Dir(file), 0o755))
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o644))
	b, err = status.ReadBinding(os.DirFS(dir), repo.Layout{}, repo.DefaultEnvironment)
	require.NoError(w.t, err)
	return b
}

// editBinding changes the file by hand, as people do.
func (w *onCluster) editBinding(edit func(string) string) {
	w.t.Helper()
	w.eventually("the edit is pushed", func() bool { // a daemon may come first
		dir := filepath.Join(w.t.TempDir(), "records")
		w.git("", "clone", "-q", "--branch", repo.StatusBranch, w.remote, dir)
		file := filepath.Join(dir, repo.Layout{}.Binding(repo.DefaultEnvironment))
		text, err := os.ReadFile(file)
		require.NoError(w.t, err)
		require.NoError(w.t, os.WriteFile(file, []byte(edit(string(text))), 0o644))
		w.git(dir, "commit", "-q", "-a", "-m", "by hand")
		_, err = w.tryGit(dir, "push", "-q")
		return err == nil
	})
}

// pods of a job with the mark of its repository.
func (w *onCluster) pods(job string) []corev1.Pod {
	w.t.Helper()
	list, err := w.c.Client().CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: repo.LabelJob + "=" + job})
	require.NoError(w.t, err)
	return list.Items
}

// TestClusterRepositoriesApart: two repositories with one environment's name, in
// one namespace, without leases, one daemon killed after the other. Neither
// ends what is the other's; a name that both want has one at a time.
func TestClusterRepositoriesApart(t *testing.T) {
	t.Parallel()
	one, two := newOnCluster(t, cluster.Shared(t)), newOnCluster(t, cluster.Shared(t))
	two.namespace = one.namespace
	seen := one.watchBirths()
	one.write("jobs/one.yaml", one.simulated("one", 2, forEver, 0, ""))
	one.write("jobs/same.yaml", one.simulated("same", 1, forEver, 0, ""))
	one.push("jobs")
	first := one.start(one.unleased()...)
	runs := func(r repo.Record) bool { return r.Phase == repo.PhaseRunning }
	one.untilRecord("it runs", "one", runs)
	one.untilRecord("it runs", "same", runs)

	two.write("jobs/two.yaml", two.simulated("two", 2, forEver, 0, ""))
	two.write("jobs/same.yaml", two.simulated("same", 1, forEver, 0, ""))
	two.push("jobs")
	second := two.start(two.unleased()...)
	two.untilRecord("it runs", "two", runs)
	id := one.binding().Repository
	require.NotEmpty(t, id)
	require.NotEqual(t, id, two.binding().Repository)
	two.untilRecord("the name is taken", "same", func(r repo.Record) bool {
		return strings.Contains(r.Message, "its name is taken: config map same-") && strings.Contains(r.Message, `belongs to environment "default" of repository `+id)
	})

	first.kill()
	second.kill()
	first, second = one.start(one.unleased()...), two.start(two.unleased()...)
	one.write("jobs/more.yaml", one.simulated("more", 1, "1s", 0, "")) // whose end says that all else was looked at
	one.push("more")
	two.write("jobs/much.yaml", two.simulated("much", 1, "1s", 0, ""))
	two.push("much")
	succeeds := func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded }
	one.untilRecord("it succeeds", "more", succeeds)
	two.untilRecord("it succeeds", "much", succeeds)
	for w, job := range map[*onCluster]string{one: "one", two: "two"} {
		pods := w.pods(job)
		require.Len(t, pods, 2)
		for _, p := range pods {
			require.Equal(t, w.binding().Repository, p.Labels[repo.LabelRepository])
			w.c.Finish(t, w.namespace, p.Name, 0)
		}
		w.untilRecord("it succeeds", job, succeeds)
	}
	require.Len(t, one.pods("same"), 1)
	one.c.Finish(t, one.namespace, one.pods("same")[0].Name, 0)
	one.untilRecord("it succeeds", "same", succeeds)
	names, pods := seen.count()
	assert.Equal(t, 7, names)
	assert.Equal(t, 7, pods)

	require.NoError(t, os.Remove(filepath.Join(one.checkout, "jobs/same.yaml")))
	one.push("the name is free")
	two.untilRecord("it has the name", "same", runs)
	require.Equal(t, two.binding().Repository, two.pods("same")[0].Labels[repo.LabelRepository])
	for _, d := range []*daemon{first, second} {
		require.NotContains(t, d.out.String(), "another daemon writes")
	}
}

// TestClusterRepositoryMoves: a repository that is found elsewhere is the same.
func TestClusterRepositoryMoves(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	w.write("jobs/job.yaml", w.simulated("job", 2, forEver, 0, ""))
	w.push("a job")
	d := w.start(w.unleased()...)
	w.untilRecord("it runs", "job", func(r repo.Record) bool { return r.Phase == repo.PhaseRunning })
	d.kill()
	before := w.binding()
	moved := w.remote + "-moved"
	require.NoError(t, os.Rename(w.remote, moved))
	w.remote = moved
	w.another(w.unleased()...)
	for _, p := range w.pods("job") {
		w.c.Finish(t, w.namespace, p.Name, 0)
	}
	w.untilRecord("it succeeds", "job", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	require.Equal(t, before, w.binding())
	_, pods := seen.count()
	require.Equal(t, 2, pods)
}

// TestClusterEnvironmentStays: an environment that runs on another cluster is
// left alone by who is started on this one, until people say that it moves.
func TestClusterEnvironmentStays(t *testing.T) {
	t.Parallel()
	w := newOnCluster(t, cluster.Shared(t))
	seen := w.watchBirths()
	w.write("jobs/job.yaml", w.simulated("job", 1, "1s", 0, ""))
	w.push("a job")
	code, out := w.once(w.unleased()...)
	require.Equal(t, 0, code, out)
	here := w.binding().Cluster
	require.NotEmpty(t, here)

	w.editBinding(func(s string) string { return strings.Replace(s, here, "another", 1) })
	w.write("jobs/next.yaml", w.simulated("next", 1, forEver, 0, ""))
	w.push("another job")
	tip := w.tip()
	const words = "environment default runs on cluster another, and nothing of it is started"
	code, out = w.once(w.unleased()...)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, words+" on this one, "+here)
	code, out = w.once()
	require.Equal(t, 1, code, out)
	require.Contains(t, out, words+" on this machine")
	d := w.start(w.unleased()...)
	w.eventually("it says so", func() bool { return strings.Contains(d.out.String(), words) })
	_, pods := seen.count()
	require.Equal(t, 1, pods)
	require.Equal(t, tip, w.tip(), "nobody writes records")

	w.editBinding(func(s string) string { return strings.Replace(s, "cluster: another\n", "", 1) })
	w.untilRecord("it goes on", "next", func(r repo.Record) bool { return r.Phase == repo.PhaseRunning })
	require.Equal(t, here, w.binding().Cluster)

	w.editBinding(func(s string) string { return strings.Replace(s, here, "a-third", 1) })
	w.c.Finish(t, w.namespace, w.pods("next")[0].Name, 0)
	w.eventually("it stops", func() bool { return strings.Contains(d.out.String(), "environment default runs on cluster a-third") })
	rec, _ := w.clusterRecord("next")
	require.Equal(t, repo.PhaseRunning, rec.Phase, "and writes no more")
	w.editBinding(func(s string) string { return strings.Replace(s, "a-third", here, 1) })
	w.untilRecord("nothing is lost", "next", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	_, pods = seen.count()
	require.Equal(t, 2, pods)
}
