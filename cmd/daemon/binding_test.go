package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/sync"
)

// place is a backend as far as bindings are concerned.
type place struct {
	Backend
	cluster string
	owner   string
}

func (p *place) Cluster(context.Context) (string, error) { return p.cluster, nil }

func (p *place) Own(_ context.Context, repository string) error {
	p.owner = repository
	return nil
}

// on is a daemon on a cluster whose repository would be derived as given.
func (b *bench) on(cluster, repository string) (*ledger, *place, *error) {
	l, told := b.daemon("nobody")
	p := &place{cluster: cluster}
	l.environment, l.backend, l.repository = "prod", p, repository
	return l, p, told
}

// binding is the file on the branch.
func (b *bench) binding() string {
	return b.git("--git-dir", b.remote, "show", repo.StatusBranch+":prod/environment.yaml")
}

// edit pushes a file by hand.
func (b *bench) edit(file, text string) {
	b.t.Helper()
	l, _ := b.daemon("nobody")
	_, err := l.mirror.Publish(b.t.Context(), gitsync.PublishRequest{
		Branch: repo.StatusBranch, Author: l.author, When: time.Unix(1_750_000_000, 0),
		Build: func(*gitsync.Snapshot) (map[string][]byte, string, error) {
			return map[string][]byte{file: []byte(text)}, "by hand", nil
		},
	})
	require.NoError(b.t, err)
}

// TestBinding: who comes first says whose an environment's pods are and where
// they run; whoever comes later keeps to it.
func TestBinding(t *testing.T) {
	b := newBench(t)
	first, p, told := b.on("c1", "jobs-a")
	_, err := first.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "jobs-a", p.owner)
	require.Contains(t, b.binding(), "\ncluster: c1\nkind: Environment\nrepository: jobs-a")
	require.Contains(t, b.git("--git-dir", b.remote, "log", "-1", "--format=%B", repo.StatusBranch), "[skip ci]")

	tip := b.git("--git-dir", b.remote, "rev-parse", repo.StatusBranch)
	moved, p, _ := b.on("c1", "elsewhere-b")
	_, err = moved.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "jobs-a", p.owner, "the repository is what it was")
	unknown, p, _ := b.on("", "jobs-a")
	_, err = unknown.Load(t.Context())
	require.NoError(t, err, "who may not know where it is goes on")
	require.Equal(t, "jobs-a", p.owner)
	require.Equal(t, tip, b.git("--git-dir", b.remote, "rev-parse", repo.StatusBranch))

	other, p, _ := b.on("c2", "jobs-a")
	_, err = other.Load(t.Context())
	require.ErrorContains(t, err, "environment prod runs on cluster c1, and nothing of it is started on this one, c2")
	require.Empty(t, p.owner)
	local, _ := b.daemon("dev")
	local.environment, local.backend = "prod", struct{ Backend }{}
	_, err = local.Load(t.Context())
	require.ErrorContains(t, err, "nothing of it is started on this machine")

	b.git("--git-dir", b.remote, "update-ref", "-d", "refs/heads/"+repo.StatusBranch)
	require.NoError(t, b.publish(first, running()))
	require.Contains(t, b.binding(), "cluster: c1", "it is written again with the records")
	require.NoError(t, *told)
}

// TestBindingAtOnce: of two daemons that begin at once, without having seen each
// other, one decides for both.
func TestBindingAtOnce(t *testing.T) {
	b := newBench(t)
	one, p1, _ := b.on("c1", "jobs-a")
	two, p2, _ := b.on("c1", "jobs-b")
	three, p3, _ := b.on("c3", "jobs-c")
	for _, l := range []*ledger{one, two, three} {
		_, err := l.fetch(t.Context()) // all see that nobody is there
		require.NoError(t, err)
	}
	_, err := one.bind(t.Context(), nil)
	require.NoError(t, err)
	_, err = two.bind(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "jobs-a", p1.owner)
	require.Equal(t, "jobs-a", p2.owner)
	_, err = three.bind(t.Context(), nil)
	require.ErrorContains(t, err, "environment prod runs on cluster c1")
	require.Empty(t, p3.owner)
}

// TestRebound: an environment that was given to another cluster is let go.
func TestRebound(t *testing.T) {
	for old, now := range map[string]string{"c1": "c2", "jobs-a": "jobs-b", "kind: Environment": "kind: Nonsense"} {
		b := newBench(t)
		l, _, told := b.on("c1", "jobs-a")
		_, err := l.Load(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.publish(l, running()))
		text := strings.Replace(b.binding()+"\n", old, now, 1)
		b.edit("prod/environment.yaml", text)
		require.Error(t, b.publish(l, running(ended(0, "Error"))))
		require.True(t, isOvertaken(*told), "%v", *told)
		require.Equal(t, strings.TrimSpace(text), b.binding())
	}
}
