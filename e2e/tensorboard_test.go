package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestTensorBoardOutlivesItsJob runs a program of TensorBoard's name, which
// goes on when the job has succeeded and ends when the job is removed.
func TestTensorBoardOutlivesItsJob(t *testing.T) {
	w := newWorld(t)
	bin := t.TempDir()
	pidFile := filepath.Join(bin, "pid")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "tensorboard"), []byte(
		"#!/bin/sh\necho \"$@\" > "+filepath.Join(bin, "args")+"\necho $$ > "+pidFile+"\nexec sleep 1000\n"), 0o755))
	w.env = append(w.env, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	w.write("jobs/other.yaml", job("other", "true"))
	w.write("jobs/board.yaml", `apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: board}
spec:
  tensorboard: {logDir: /tmp/logs}
  replicaSpecs:
  - tfReplicaType: MASTER
    template:
      spec:
        restartPolicy: OnFailure
        containers: [{name: tensorflow, image: tensorflow/tensorflow, command: [sh, -c, "while ! test -s `+pidFile+`; do sleep 0.1; done"]}]
`)
	w.push("a job with a TensorBoard")
	code, out := w.once()
	require.Equal(t, 0, code, out)

	var board repo.TaskRecord
	w.eventually("the record of TensorBoard's address", func() bool {
		rec, _ := w.record("default/board")
		require.Equal(t, repo.PhaseSucceeded, rec.Phase)
		for _, role := range rec.Roles {
			if role.Outlives {
				board = role.Tasks[0]
			}
		}
		return len(board.Attempts) == 1
	})
	require.Equal(t, repo.TaskRunning, board.Phase)
	address := board.Attempts[0].Address
	require.True(t, strings.HasPrefix(address, "127.0.0.1:"), address)
	args, err := os.ReadFile(filepath.Join(bin, "args"))
	require.NoError(t, err)
	assert.Equal(t, "--logdir /tmp/logs --host 0.0.0.0 --port "+strings.TrimPrefix(address, "127.0.0.1:")+"\n", string(args))
	text, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	require.NoError(t, unix.Kill(pid, 0), "it goes on")
	page := w.git(w.remote, "show", repo.StatusBranch+":default/default/board/README.md")
	assert.Contains(t, page, address)

	code, out = w.once()
	require.Equal(t, 0, code, out)
	require.NoError(t, unix.Kill(pid, 0), "a new daemon leaves it alone")

	require.NoError(t, os.Remove(filepath.Join(w.checkout, "jobs/board.yaml")))
	w.push("without it")
	code, out = w.once()
	require.Equal(t, 0, code, out)
	w.eventually("the end of TensorBoard", func() bool { return unix.Kill(pid, 0) != nil })
	require.Equal(t, repo.PhaseRemoved, w.phase("default/board"))
}
