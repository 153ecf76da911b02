package edit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

const rerunNoon = `trainyard.dev/rerun: "2026-07-01T12:00:00Z"`

func TestApply(t *testing.T) {
	const own = "apiVersion: trainyard.dev/v1\nkind: TrainingJob\n"
	const mx = "apiVersion: mlkube.io/v1beta1\nkind: MxJob\n"
	const framework = "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\n"
	for _, c := range []struct {
		name   string
		action Action
		in     string
		want   string
	}{
		{"adds suspend before a nested field", Suspend,
			own + "metadata: {name: a}\nspec:\n  # the roles\n  roles:\n  - name: w # x\n",
			own + "metadata: {name: a}\nspec:\n  # the roles\n  suspend: true\n  roles:\n  - name: w # x\n"},
		{"adds suspend behind the one-line fields", Suspend,
			own + "spec:\n    gang: true   # all or none\n    deadline: 1h\n    roles: []\n",
			own + "spec:\n    gang: true   # all or none\n    deadline: 1h\n    suspend: true\n    roles: []\n"},
		{"replaces a value and keeps its comment", Suspend,
			own + "spec:\n  suspend:   false   # later\n  roles: []\n",
			own + "spec:\n  suspend:   true   # later\n  roles: []\n"},
		{"replaces a quoted boolean by a boolean", Suspend,
			own + "spec: {suspend: 'false', roles: []}\n",
			own + "spec: {suspend: true, roles: []}\n"},
		{"resumes", Resume,
			own + "spec:\n  suspend: true\n",
			own + "spec:\n  suspend: false\n"},
		{"resumes what an annotation suspended", Resume,
			own + "metadata: {name: a, annotations: {trainyard.dev/suspend: 'true'}}\nspec: {suspend: true}\n",
			own + "metadata: {name: a, annotations: {trainyard.dev/suspend: 'false'}}\nspec: {suspend: false}\n"},
		{"stops a flow document", Stop,
			own + "metadata: {name: a}\nspec: {roles: [{name: w}]}\n",
			own + "metadata: {name: a}\nspec: {stop: true, roles: [{name: w}]}\n"},
		{"stops a JSON document as JSON", Stop,
			`{"apiVersion":"mlkube.io/v1beta1","kind":"MxJob","metadata":{"name":"a"},"spec":{}}`,
			`{"apiVersion":"mlkube.io/v1beta1","kind":"MxJob","metadata":{"name":"a", "annotations": {"trainyard.dev/stop": "true"}},"spec":{}}`},
		{"fills an empty mapping", Suspend, own + "spec: {}\n", own + "spec: {suspend: true}\n"},
		{"fills an empty value", Suspend, own + "spec:\n  suspend: # ?\n  roles: []\n", own + "spec:\n  suspend: true # ?\n  roles: []\n"},
		{"fills a null", Suspend, mx + "metadata:\n  name: a\n  annotations: ~\n", mx + "metadata:\n  name: a\n  annotations: {trainyard.dev/suspend: \"true\"}\n"},
		{"fills a value that is not there", Suspend, mx + "metadata:\n  annotations:\n  name: a\n", mx + "metadata:\n  annotations: {trainyard.dev/suspend: \"true\"}\n  name: a\n"},
		{"stops a Framework", Stop,
			framework + "spec:\n  executionType: Start\n  retryPolicy: {}\n",
			framework + "spec:\n  executionType: Stop\n  retryPolicy: {}\n"},
		{"stops a Framework with quotes", Stop,
			framework + "spec:\n  executionType: \"Start\"\n",
			framework + "spec:\n  executionType: \"Stop\"\n"},
		{"suspends a Framework by annotation", Suspend,
			framework + "metadata:\n  name: a\nspec: {executionType: Start}\n",
			framework + "metadata:\n  name: a\n  annotations:\n    trainyard.dev/suspend: \"true\"\nspec: {executionType: Start}\n"},
		{"adds annotations in the indentation of the file", Rerun,
			mx + "metadata:\n    name: a\n    labels: {x: y}\nspec: {}\n",
			mx + "metadata:\n    name: a\n    annotations:\n        " + rerunNoon + "\n    labels: {x: y}\nspec: {}\n"},
		{"adds to annotations", Rerun,
			mx + "metadata:\n  name: a\n  annotations:\n    note: |\n      two\n      lines\n    x: y\n",
			mx + "metadata:\n  name: a\n  annotations:\n    " + rerunNoon + "\n    note: |\n      two\n      lines\n    x: y\n"},
		{"adds to flow annotations over lines", Rerun,
			mx + "metadata:\n  annotations: {\n    x: y,\n    z: \"ü\"  # last\n  }\n",
			mx + "metadata:\n  annotations: {\n    x: y,\n    z: \"ü\", " + rerunNoon + "  # last\n  }\n"},
		{"reruns again later", Rerun,
			mx + "metadata: {name: a, annotations: {trainyard.dev/rerun: 2026-01-01}}\n",
			mx + "metadata: {name: a, annotations: {" + rerunNoon + "}}\n"},
		{"reruns again within the second", Rerun,
			mx + "metadata: {name: a, annotations: {trainyard.dev/rerun: '2026-07-01T12:00:00Z'}}\n",
			mx + "metadata: {name: a, annotations: {trainyard.dev/rerun: '2026-07-01T12:00:01Z'}}\n"},
		{"reruns what was stopped", Rerun,
			own + "metadata:\n  name: a\nspec:\n  stop: true\n",
			own + "metadata:\n  name: a\n  annotations:\n    " + rerunNoon + "\nspec:\n  stop: false\n"},
		{"reruns a stopped Framework", Rerun,
			framework + "metadata: {name: a}\nspec: {executionType: Stop}\n",
			framework + "metadata: {name: a, annotations: {" + rerunNoon + "}}\nspec: {executionType: Start}\n"},
		{"keeps CRLF", Suspend,
			"apiVersion: trainyard.dev/v1\r\nkind: TrainingJob\r\nspec:\r\n  gang: true\r\n  roles: []\r\n",
			"apiVersion: trainyard.dev/v1\r\nkind: TrainingJob\r\nspec:\r\n  gang: true\r\n  suspend: true\r\n  roles: []\r\n"},
		{"keeps a missing last newline", Suspend, own + "spec:\n  gang: true", own + "spec:\n  gang: true\n  suspend: true"},
		{"keeps a byte order mark", Suspend,
			"\ufeff{apiVersion: trainyard.dev/v1, kind: TrainingJob, spec: {}}",
			"\ufeff{apiVersion: trainyard.dev/v1, kind: TrainingJob, spec: {suspend: true}}"},
		{"knows characters from bytes", Suspend,
			"{apiVersion: trainyard.dev/v1, kind: TrainingJob, ü: é, spec: {}}",
			"{apiVersion: trainyard.dev/v1, kind: TrainingJob, ü: é, spec: {suspend: true}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Apply([]byte(c.in), 0, c.action, noon)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
			_, err = Apply(got, 0, c.action, noon)
			if c.action != Rerun {
				assert.ErrorIs(t, err, ErrUnchanged, "a second time")
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	const own = "apiVersion: trainyard.dev/v1\nkind: TrainingJob\n"
	for _, c := range []struct{ name, in, want string }{
		{"an anchored mapping", own + "spec: &s\n  roles: []\nother: *s\n", "line 3: spec has the anchor &s"},
		{"an aliased mapping", own + "x: &s {}\nspec: *s\n", "spec is no mapping"},
		{"an anchored value", own + "spec:\n  suspend: &no false\n", "spec.suspend has an anchor"},
		{"a tagged value", own + "spec:\n  suspend: !!bool false\n", "spec.suspend has an anchor, an alias, a tag"},
		{"a field twice", own + "spec:\n  suspend: false\n  suspend: false\n", "suspend is there 2 times"},
		{"a list for a mapping", own + "spec: [a]\n", "spec is no mapping"},
		{"a mapping for a value", own + "spec: {suspend: {}}\n", "spec.suspend is no single value"},
		{"what is no YAML", own + "spec: [", "read as YAML: line 3"},
		{"a merged mapping", own + "x: &s {suspend: true}\nspec: {<<: *s}\n", "spec is merged from an alias, which may hold suspend"},
		{"a tagged mapping", own + "spec: !!map {a: b}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Apply([]byte(c.in), 0, Suspend, noon)
			if c.want == "" && err == nil {
				assert.Contains(t, string(got), "suspend: true")
				return
			}
			require.Error(t, err)
			assert.Nil(t, got)
			assert.Contains(t, err.Error(), c.want)
		})
	}
}

func TestApplyUnchanged(t *testing.T) {
	for action, in := range map[Action]string{
		Suspend: "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nspec: {suspend: true}\n",
		Resume:  "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nspec: {}\n",
		Stop:    "kind: MxJob\napiVersion: mlkube.io/v1beta1\nmetadata: {annotations: {trainyard.dev/stop: 'true'}}\n",
	} {
		_, err := Apply([]byte(in), 0, action, noon)
		assert.ErrorIs(t, err, ErrUnchanged, action)
	}
}

func TestSeveralDocuments(t *testing.T) {
	const file = "# head\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n" +
		"apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata:\n  name: a # one\n  namespace: nlp\nspec:\n  roles: []\n" +
		"---\n# nothing\n---\napiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata:\n  name: b\nspec:\n  roles: []\n...\n"
	docs, err := Documents([]byte(file))
	require.NoError(t, err)
	require.Len(t, docs, 3)
	assert.False(t, docs[0].IsJob())
	assert.True(t, docs[1].IsJob())
	assert.Equal(t, "nlp/a", docs[1].Key.String())
	assert.Equal(t, 7, docs[1].Line)
	got, err := Apply([]byte(file), docs[2].Index, Suspend, noon)
	require.NoError(t, err)
	at := strings.LastIndex(file, "  roles")
	assert.Equal(t, file[:at]+"  suspend: true\n"+file[at:], string(got))
}

// FuzzApply edits any file and reads the result with another eye: as plain
// values, in which the field that was set is the only difference.
func FuzzApply(f *testing.F) {
	f.Add([]byte("apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: a}\nspec:\n  roles:\n  - name: w\n"))
	f.Add([]byte("{\"kind\":\"MxJob\",\"metadata\":{\"name\":\"a\",\"annotations\":{\"x\":\"y\"}}}"))
	f.Add([]byte("kind: Framework\r\napiVersion: frameworkcontroller.microsoft.com/v1\r\nspec:\r\n  executionType: Start # x\r\n"))
	f.Add([]byte("a: &x [1]\n---\nkind: b\nmetadata:\n  ? name\n  : *x\n"))
	f.Add([]byte("\ufeffkind: a\nmetadata:\n  annotations: # c\n  name: |\n   x\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		docs, err := parse(file)
		if err != nil || len(file) > 1<<16 {
			return
		}
		for i := range docs {
			for _, action := range []Action{Suspend, Stop, Resume} {
				got, err := Apply(file, i, action, noon)
				if err != nil {
					continue
				}
				before, after := values(t, file), values(t, got)
				if _, plain := before[i].(map[string]any); !plain {
					continue // keys that are no strings: no object of ours
				}
				require.Len(t, after, len(before))
				for j := range before {
					if j == i {
						forget(before[j])
						forget(after[j])
					}
					assert.Equal(t, before[j], after[j], "%s of %q gave %q", action, file, got)
				}
				if action != Resume { // which may set two fields
					assert.NotContains(t, string(removed(file, got)), "\n", "%s of %q gave %q", action, file, got)
				}
			}
		}
	})
}

// values decodes every document, aliases and all, or skips the test.
func values(t *testing.T, file []byte) []any {
	var out []any
	dec := yaml.NewDecoder(bytes.NewReader(file))
	for {
		var v any
		if err := dec.Decode(&v); err != nil {
			if err.Error() == "EOF" {
				return out
			}
			t.Skip("not decodable: ", err)
		}
		out = append(out, v)
	}
}

// forget removes the fields that actions set, and the mappings that are empty without them.
func forget(doc any) {
	m, _ := doc.(map[string]any)
	spec, _ := m["spec"].(map[string]any)
	for _, k := range []string{"suspend", "stop", "executionType"} {
		delete(spec, k)
	}
	meta, _ := m["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for _, k := range []string{"suspend", "stop", "rerun"} {
		delete(annotations, "trainyard.dev/"+k)
	}
	if len(annotations) == 0 {
		delete(meta, "annotations")
	}
	if len(spec) == 0 {
		delete(m, "spec")
	}
	if len(meta) == 0 {
		delete(m, "metadata")
	}
}

// removed is what of a is not in b, when b is a with one place changed.
func removed(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a
}
