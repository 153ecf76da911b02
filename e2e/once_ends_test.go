package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// TestOnceEnds: what waits for a person or a time is at rest, and what could
// not run is a failure.
func TestOnceEnds(t *testing.T) {
	spec := func(line string) string {
		return strings.Replace(job("a", "true"), "spec:\n", "spec:\n  "+line+"\n", 1)
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("maxReplicas: 0\n"), 0o644))
	plain := filepath.Join(t.TempDir(), "plain.yaml")
	require.NoError(t, os.WriteFile(plain, []byte("{}\n"), 0o644))
	service := spec("stop: false") + "---\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: NodePort, ports: [{port: 80}]}}\n"
	for _, c := range []struct {
		name, file, content string
		args                []string
		exit                int
		phase               repo.Phase
		says                string
	}{
		{"suspended", "jobs/a.yaml", spec("suspend: true"), nil, 0, repo.PhaseSuspended, ""},
		{"stopped", "jobs/a.yaml", spec("stop: true"), nil, 0, repo.PhaseStopped, ""},
		{"scheduled", "jobs/a.yaml", spec(`schedule: {cron: "0 0 1 1 *"}`), nil, 0, repo.PhaseScheduled, ""},
		{"invalid", "jobs/a.yaml", spec("roll: 1"), nil, 1, repo.PhaseInvalid, "default/a: Invalid: jobs/a.yaml:"},
		{"forbidden", "jobs/a.yaml", spec("stop: false"), []string{"--policy", policy}, 1, repo.PhaseWaiting, "default/a: PolicyForbids: "},
		{"forbidden Service", "jobs/a.yaml", service, []string{"--policy", plain}, 1, repo.PhaseWaiting, "default/a: PolicyForbids"},
		{"settings with errors", "trainyard.yaml", "nonsense: 1\n", nil, 1, "", "trainyard.yaml:1"},
		{"no such branch", "jobs/a.yaml", spec("stop: true"), []string{"--branch", "mian"}, 1, "", "mian"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(c.file, c.content)
			w.push("a job")
			code, out := w.once(c.args...)
			require.Equal(t, c.exit, code, out)
			require.Equal(t, c.phase, w.phase("default/a"))
			require.Contains(t, out, c.says)
		})
	}
}

// TestOnceInterrupted: whoever asked for the end of everything did not get it.
func TestOnceInterrupted(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.write("jobs/gate.yaml", gate("gate", dir))
	w.push("a job")
	d := w.start("--once")
	w.eventually("the job starts", func() bool { return contents(t, dir+"/gate") == "start\n" })
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	select {
	case err := <-d.done:
		d.done <- err
		require.Error(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("it did not end")
	}
	require.Contains(t, d.out.String(), "interrupted")
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	code, out := w.once()
	require.Equal(t, 0, code, out)
	require.Equal(t, "start\nend\n", contents(t, dir+"/gate"))
}
