package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/e2e/cluster"
	"github.com/trainyard/trainyard/e2e/cluster/node"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestNodeLostWhileStarting: a node is lost after it has made a container and
// before it has started it. Its kubelet never starts that, nor makes another one
// (kubernetes/kubernetes#118321): the pod would be Pending for ever.
func TestNodeLostWhileStarting(t *testing.T) {
	t.Parallel()
	node.Require(t)
	c := cluster.Start(t, cluster.Options{Nodes: -1}) // the node is back before anybody takes it for lost
	n := node.Start(t, c, node.Options{})
	n.LoadShell(t, shellImage)
	w := newOnCluster(t, c)
	w.real = &realNodes{nodes: []*node.Node{n}, told: t.TempDir()}
	require.NoError(t, os.Chmod(w.real.told, 0o777))

	// From here on, until the node boots again, containers are made and not started.
	runc, err := exec.LookPath("runc")
	require.NoError(t, err)
	dir := t.TempDir()
	copied, slow, began := filepath.Join(dir, "runc"), filepath.Join(dir, "slow"), filepath.Join(dir, "began")
	n.Run(t, "cp", runc, copied)
	require.NoError(t, os.WriteFile(slow, fmt.Appendf(nil, `#!/bin/sh
case "$*" in
*create\ --bundle*)
  args="$*"; bundle=${args#*--bundle }
  if grep -q 'container-type": *"container"' "${bundle%%%% *}/config.json"; then touch %s; exec sleep 1000; fi ;;
esac
exec %s "$@"
`, began, copied), 0o755))
	n.Run(t, "mount", "--bind", slow, runc)

	w.write("jobs/job.yaml", w.own("job", "  retry: {limit: 0}\n", "", 1, 0, "1s"))
	w.push("a job")
	w.start(w.flags()...)
	w.eventually("a container is being started", func() bool { _, err := os.Stat(began); return err == nil })
	n.Kill(t)
	n.Boot(t)

	defer func() {
		if t.Failed() {
			(&chaos{onCluster: w}).diagnoseWaiting()
		}
	}()
	w.untilRecord("the task is tried again", "job", func(r repo.Record) bool { return len(r.Roles) > 0 && len(r.Roles[0].Tasks[0].Attempts) == 2 })
	rec := w.untilRecord("it succeeds", "job", func(r repo.Record) bool { return r.Phase == repo.PhaseSucceeded })
	task := rec.Roles[0].Tasks[0]
	require.Len(t, task.Attempts, 2)
	assert.Equal(t, "StartInterrupted", task.Attempts[0].Reason)
	assert.Nil(t, task.Attempts[0].StartedAt)
	assert.EqualValues(t, 0, task.Retries.Accountable, "nobody's budget is used up")
	for pod, s := range w.stories() {
		assert.Equal(t, 1, s.starts, pod)
	}
}
