package gitsync

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFetchAndPublishOverHTTP(t *testing.T) {
	b := newBare(t)
	first := b.commit("main", map[string]string{"jobs/a.yaml": "one", "jobs/b.yaml": "two", "top": "x"})
	srv := serve(t, b)
	m := mirrorOf(t, srv.url())

	snap, changed, err := m.Fetch(t.Context(), "main")
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, first, snap.Revision())
	assert.Equal(t, "one", read(t, snap, "jobs/a.yaml"))
	srv.requests()

	_, changed, err = m.Fetch(t.Context(), "main")
	require.NoError(t, err)
	assert.False(t, changed)
	assert.Equal(t, []string{"GET refsgit-upload-pack"}, srv.requests(), "a poll without a change is one listing")

	second := b.commit("main", map[string]string{"jobs/a.yaml": "three", "jobs/b.yaml": "two", "top": "x"})
	next := fetch(t, m, "main")
	assert.Equal(t, second, next.Revision())
	assert.Equal(t, "three", read(t, next, "jobs/a.yaml"))
	assert.Equal(t, "one", read(t, snap, "jobs/a.yaml"), "the older snapshot stays as it was")
	changes, err := Changed(snap, next)
	require.NoError(t, err)
	assert.Equal(t, []Change{{"jobs/a.yaml", Modified}}, changes)
	srv.requests()

	rev, err := m.Publish(t.Context(), put("trainyard/status", map[string]string{"default/ns/a/status.yaml": "phase: Running\n"}))
	require.NoError(t, err)
	assert.Equal(t, rev, b.tip("trainyard/status"))
	assert.Equal(t, "phase: Running", b.show("trainyard/status", "default/ns/a/status.yaml"))
	srv.requests()

	again, err := m.Publish(t.Context(), put("trainyard/status", map[string]string{"default/ns/a/status.yaml": "phase: Running\n"}))
	require.NoError(t, err)
	assert.Equal(t, rev, again, "nothing changed, so there is no commit")
	assert.Equal(t, []string{"GET refsgit-receive-pack"}, srv.requests())

	rev, err = m.Publish(t.Context(), put("trainyard/status", map[string]string{"default/ns/a/status.yaml": "phase: Failed\n"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"GET refsgit-receive-pack", "POST git-receive-pack"}, srv.requests(), "nothing is fetched to publish")
	snap = fetch(t, m, "trainyard/status")
	assert.Equal(t, rev, snap.Revision())
	assert.Equal(t, []string{"GET refsgit-upload-pack"}, srv.requests(), "what was published need not be fetched")
	assert.Equal(t, "phase: Failed\n", read(t, snap, "default/ns/a/status.yaml"))
	b.git("fsck", "--strict")
}
