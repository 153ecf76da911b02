package rules

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// end is how a container ended, and first the first rule that fits it, read
// as the runner reads rules, for a container alone.
type end struct {
	container, reason, message string
	code                       int32
}

func first(table []repo.FailureRule, e end) repo.FailureRule {
	for _, r := range table {
		in := func(c repo.CodeRange) bool { return c.Min <= e.code && e.code <= c.Max }
		switch {
		case len(r.ExitCodes) > 0 && !slices.ContainsFunc(r.ExitCodes, in):
		case r.Container != "" && r.Container != e.container:
		case len(r.Reasons) > 0 && !slices.Contains(r.Reasons, e.reason):
		case r.ReasonPattern != "" && !regexp.MustCompile(r.ReasonPattern).MatchString(e.reason):
		case r.MessagePattern != "" && !regexp.MustCompile(r.MessagePattern).MatchString(e.message):
		case r.NoMessage && e.message != "":
		default:
			return r
		}
	}
	return repo.FailureRule{Class: repo.Unknown}
}

// TestExitCodes is the table of exit codes across systems.
func TestExitCodes(t *testing.T) {
	const tr, cf, pe, un = repo.Transient, repo.TransientConflict, repo.Permanent, repo.Unknown
	tables := []struct {
		container string
		table     []repo.FailureRule
	}{{"main", TrainingJob()}, {"main", FrameworkController(repo.Settings{})}, {"main", Launcher()}, {"tensorflow", TfJob()}, {"mxnet", MxJob()}}
	tests := []struct {
		end  end
		want [5]repo.Class // TrainingJob, FrameworkController, launcher, TfJob, MxJob (with a message)
	}{
		{end{code: 1}, [5]repo.Class{un, un, un, pe, pe}},
		{end{code: 2}, [5]repo.Class{un, un, un, pe, pe}},
		{end{code: 126}, [5]repo.Class{pe, un, un, pe, pe}},
		{end{code: 126, reason: "ContainerCannotRun"}, [5]repo.Class{pe, pe, un, pe, pe}},
		{end{code: 127, reason: "ContainerCannotRun"}, [5]repo.Class{pe, pe, un, pe, pe}},
		{end{code: 128}, [5]repo.Class{un, un, un, tr, tr}},
		{end{code: 130}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 134}, [5]repo.Class{un, un, un, tr, tr}},
		{end{code: 137}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 137, reason: "OOMKilled"}, [5]repo.Class{pe, pe, un, pe, pe}},
		{end{code: 138}, [5]repo.Class{un, un, un, tr, tr}},
		{end{code: 139}, [5]repo.Class{pe, pe, un, tr, tr}},
		{end{code: 143}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 200}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 201}, [5]repo.Class{cf, cf, cf, tr, tr}},
		{end{code: 210}, [5]repo.Class{pe, pe, pe, tr, tr}},
		{end{code: 244}, [5]repo.Class{un, un, un, tr, tr}},
		{end{code: 1, reason: "Evicted"}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 1, reason: "OutOfnvidia.com/gpu"}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 1, reason: "OutOfcpu"}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 255}, [5]repo.Class{un, un, un, tr, tr}},
		{end{code: 255, reason: "Unknown"}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 137, reason: "ContainerStatusUnknown"}, [5]repo.Class{tr, tr, tr, tr, tr}},
		{end{code: 1, reason: "DisruptionTarget"}, [5]repo.Class{tr, tr, tr, tr, tr}},
	}
	for _, tt := range tests {
		for i, table := range tables {
			e := tt.end
			e.container, e.message = table.container, "message"
			assert.Equal(t, tt.want[i], first(table.table, e).Class, "%+v in table %d", tt.end, i)
		}
	}
	assert.Equal(t, tr, first(MxJob(), end{container: "mxnet", code: 1}).Class, "no message: retried whatever the code")
	assert.Equal(t, pe, first(MxJob(), end{container: "mxnet", code: 244, reason: "OOMKilled"}).Class, "but not out of memory")
	assert.Equal(t, tr, first(TfJob(), end{container: "init", code: 1}).Class, "another container says nothing of the training")
	evicted := end{code: 1, reason: "Evicted", message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."}
	assert.Equal(t, pe, first(TrainingJob(), evicted).Class)
	assert.True(t, first(TrainingJob(), end{reason: "Preempting"}).Free)
	assert.False(t, first(TrainingJob(), end{code: 137}).Free)
	for reason, want := range map[string]string{
		"Evicted": "Evicted", "EvictionByEvictionAPI": "Evicted", "Preempting": "Preempted", "PreemptionByScheduler": "Preempted",
		"NodeLost": "NodeLost", "DeletionByTaintManager": "NodeLost", "DeletionByPodGC": "NodeLost", "ContainerStatusUnknown": "NodeLost",
		"DeletionByDeviceTaintManager": "DeviceLost", "Terminated": "NodeShutdown", "NodeShutdown": "NodeShutdown", "TerminationByKubelet": "NodeShutdown",
		"DisruptionTarget": "Disrupted", "OutOfpods": "NodeRefused", "UnexpectedAdmissionError": "NodeRefused", "NodeAffinity": "NodeRefused",
		"TopologyAffinityError": "NodeRefused", "VolumeAttachmentLimitExceeded": "NodeRefused",
	} {
		for _, table := range [][]repo.FailureRule{TrainingJob(), Kubeflow(), TfJob()} {
			r := first(table, end{reason: reason})
			assert.Equal(t, want, r.Name, reason)
			assert.True(t, r.Free, reason)
		}
	}
	for message, want := range map[string]repo.Class{
		`exec: "nope": executable file not found in $PATH: unknown`:                                                   pe,
		`runc create failed: unable to start container process: exec: "/nope": stat /nope: no such file or directory`: pe,
		`runc create failed: unable to start container process: exec: "/etc": permission denied: unknown`:             pe,
		`chdir to cwd ("/x") set in config.json failed: no such file or directory`:                                    pe,
		`nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown`:            un,
		`failed to create containerd task: failed to create shim task: context canceled: unknown`:                     tr,
		`failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown`:             tr,
		`failed to create shim task: context deadline exceeded: unknown`:                                              un,
		`error mounting "/var/lib/kubelet/pods/x/volume-subpaths/y" to rootfs: no such file or directory: unknown`:    un,
	} {
		assert.Equal(t, want, first(TrainingJob(), end{code: 128, reason: "StartError", message: message}).Class, message)
	}
	interrupted := end{code: 128, reason: "StartError", message: "failed to start containerd task: context canceled: unknown"}
	for _, table := range [][]repo.FailureRule{TrainingJob(), Kubeflow(), TfJob()} {
		assert.Equal(t, "StartInterrupted", first(table, interrupted).Name)
		assert.True(t, first(table, interrupted).Free)
	}
	assert.Equal(t, "ContainerStartInterrupted", first(FrameworkController(repo.Settings{}), interrupted).Name)
	missing := end{code: 128, reason: "ContainerCannotRun", message: "exec: no such file"}
	assert.Equal(t, "ContainerDockerStartCmdNotFound", first(FrameworkController(repo.Settings{}), missing).Name)
}

var update = flag.Bool("update", false, "rewrite testdata")

// TestTrainingJobTable keeps the table where those who judge pods by it can read
// it without importing this package.
func TestTrainingJobTable(t *testing.T) {
	const file = "testdata/trainingjob.json"
	text, err := json.MarshalIndent(TrainingJob(), "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text)+"\n", "the table has changed: go test ./render/rules -update")
}

func TestReadRules(t *testing.T) {
	o := object(t, `[{"exitCodes": [42, "200-209"], "class": "Transient"}, {"logPattern": "CUDA error: .*ECC", "class": "Transient", "avoidNode": true}]`)
	got := decode(o)
	require.Empty(t, o.Problems())
	assert.Equal(t, []repo.FailureRule{
		{ExitCodes: []repo.CodeRange{{Min: 42, Max: 42}, {Min: 200, Max: 209}}, Class: repo.Transient},
		{LogPattern: "CUDA error: .*ECC", Class: repo.Transient, AvoidNode: true},
	}, got)

	for in, want := range map[string]string{
		`{"exitCodes": ["x"], "class": "Transient"}`:          `rules[0].exitCodes[0]: want a number like 42 or a range like 200-209, not x`,
		`{"exitCodes": ["9-3"], "class": "Transient"}`:        `not 9-3`,
		`{"exitCodes": [300], "class": "Transient"}`:          `want numbers from 1 to 255`,
		`{"exitCodes": [1]}`:                                  `rules[0].class: required`,
		`{"exitCodes": [1], "class": "transient"}`:            `"transient" is not one of Transient, TransientConflict, Permanent, Unknown; did you mean "Transient"?`,
		`{"logPattern": "(", "class": "Transient"}`:           `RE2`,
		`{"class": "Transient"}`:                              `a rule without a condition would match every failure`,
		`{"exitCode": [1], "class": "Transient"}`:             `rules[0].exitCode: unknown field; did you mean "exitCodes"?`,
		`{"name": "a b", "signals": [9], "class": "Unknown"}`: `not one word`,
	} {
		o := object(t, "["+in+"]")
		decode(o)
		require.NotEmpty(t, o.Problems(), in)
		assert.Contains(t, o.Problems()[0].Error(), want)
	}
	assert.Len(t, All(got, repo.Settings{Rules: got[:1]}, TfJob()), 3+len(TfJob()))
}

func object(t *testing.T, text string) *manifest.Object {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return manifest.NewObject(map[string]any{"s": map[string]any{"rules": v}}, nil, repo.Settings{})
}

func decode(o *manifest.Object) []repo.FailureRule {
	var s struct {
		Rules []Spec `json:"rules"`
	}
	o.Decode("s", &s, manifest.Options{})
	return Read(o, "s.rules", s.Rules)
}
