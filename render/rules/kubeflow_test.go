package rules

import (
	"testing"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// The exit codes of the restart policy ExitCode, and before v1.
func TestKubeflow(t *testing.T) {
	const tr, pe, un = repo.Transient, repo.Permanent, repo.Unknown
	tables := [][]repo.FailureRule{Kubeflow(ExitCode("main", nil)...), Kubeflow(EarlyExitCode("main", nil)...), Kubeflow()}
	for _, tt := range []struct {
		end  end
		want [3]repo.Class // ExitCode, before v1, the other policies
	}{
		{end{code: 1}, [3]repo.Class{pe, pe, un}},
		{end{code: 127}, [3]repo.Class{pe, pe, un}},
		{end{code: 128}, [3]repo.Class{tr, pe, un}},
		{end{code: 130}, [3]repo.Class{tr, tr, un}},
		{end{code: 137, reason: "OOMKilled"}, [3]repo.Class{tr, tr, un}},
		{end{code: 138}, [3]repo.Class{tr, tr, un}},
		{end{code: 139}, [3]repo.Class{tr, pe, un}},
		{end{code: 143}, [3]repo.Class{tr, tr, un}},
		{end{code: 255}, [3]repo.Class{tr, pe, un}},
		{end{code: 1, reason: "DisruptionTarget"}, [3]repo.Class{tr, tr, tr}},
		{end{code: 1, container: "init"}, [3]repo.Class{un, un, un}},
	} {
		if tt.end.container == "" {
			tt.end.container = "main"
		}
		for i, table := range tables {
			assert.Equal(t, tt.want[i], first(table, tt.end).Class, "%+v in table %d", tt.end, i)
		}
	}
	evicted := first(tables[2], end{reason: "Evicted", message: "The node was low on resource: memory."})
	assert.True(t, evicted.Free, "nobody's fault")
	full := first(tables[2], end{reason: "Evicted", message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."})
	assert.Equal(t, un, full.Class)
	assert.False(t, full.Free, "its own fault: the restart policy says what happens")

	for _, r := range ExitCode("main", []string{"worker"}) {
		assert.Equal(t, []string{"worker"}, r.Roles)
	}
}
