package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	require.Error(t, d.end(t, os.Interrupt))
	require.Contains(t, d.out.String(), "interrupted")
	require.NoError(t, os.WriteFile(dir+"/open", nil, 0o644))
	code, out := w.once()
	require.Equal(t, 0, code, out)
	require.Equal(t, "start\nend\n", contents(t, dir+"/gate"))
}

// TestRecordChangedByHand: a record that cannot be keeps its job still, which
// says what is wrong with it, and no other one.
func TestRecordChangedByHand(t *testing.T) {
	w := newWorld(t)
	w.write("jobs/a.yaml", job("a", "true"))
	w.write("jobs/b.yaml", job("b", "true"))
	w.push("two jobs")
	code, out := w.once()
	require.Equal(t, 0, code, out)

	file := "default/default/a/" + repo.StatusFile
	other := filepath.Join(t.TempDir(), "status")
	w.git(t.TempDir(), "clone", "-q", "-b", repo.StatusBranch, w.remote, other)
	text, err := os.ReadFile(filepath.Join(other, file))
	require.NoError(t, err)
	edited := strings.Replace(string(text), "replicas: 1", "replicas: 7", 1)
	require.NotEqual(t, string(text), edited)
	require.NoError(t, os.WriteFile(filepath.Join(other, file), []byte(edited), 0o600))
	w.git(other, "commit", "-qam", "seven of them")
	w.git(other, "push", "-q")

	w.write("jobs/a.yaml", job("a", "sleep 0"))
	w.write("jobs/b.yaml", job("b", "sleep 0"))
	w.push("both change")
	code, out = w.once()
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "1 of 2 jobs failed: "+file+": decode record: roles[0].replicas: 7, and there are 1 tasks")
	count := func(name string) int {
		return strings.Count(w.git(w.remote, "show", repo.StatusBranch+":default/default/"+name+"/"+repo.HistoryFile), "\n") + 1
	}
	require.Equal(t, 2, count("b"))

	w.git(other, "pull", "-q")
	w.git(other, "checkout", "-q", "HEAD", ".")
	require.NoError(t, os.WriteFile(filepath.Join(other, file), text, 0o600))
	w.git(other, "commit", "-qam", "as it was")
	w.git(other, "push", "-q")
	code, out = w.once()
	require.Equal(t, 0, code, out)
	require.Equal(t, 2, count("a"), "put right, it goes on")
}
