package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What kustomize finds wrong is said in the words of the file's author, at the
// line where it is, and in the same words each time: they go into records.
func TestWordsForWhatKustomizeFinds(t *testing.T) {
	const patch = "resources: [job.yaml]\npatches:\n- target: {kind: TrainingJob}\n  patch: '[{op: %s}]'\n"
	for name, c := range map[string]struct{ kustomization, want string }{
		"map where a list is":      {"resources: [job.yaml]\npatches: [{path: patch.yaml}]", `:2:11: patches[0]: a patch does not fit: it has a map where the object has a list, or the other way round`},
		"patch removes kind":       {fmt.Sprintf(patch, "remove, path: /kind"), `:3:3: patches[0]: a patch leaves an object without kind`},
		"patch removes metadata":   {fmt.Sprintf(patch, "remove, path: /metadata"), `:3:3: patches[0]: a patch leaves an object without metadata.name`},
		"patch removes all":        {fmt.Sprintf(patch, `remove, path: ""`), `:3:3: patches[0]: line 1 of the patch: operation 0: path is empty, which is the whole object: name a field of it, as in /spec`},
		"patch replaces all":       {fmt.Sprintf(patch, `replace, path: "", value: 5`), `:3:3: patches[0]: line 1 of the patch: operation 0: path is empty, which is the whole object: name a field of it, as in /spec`},
		"replacement of nothing":   {"resources: [job.yaml]\nreplacements: [{source: {kind: Nope}, targets: [{select: {kind: TrainingJob}, fieldPaths: [a.b]}]}]", `:2:16: replacements[0]: the replacement's source selects nothing`},
		"replacement into nothing": {"resources: [job.yaml]\nreplacements: [{sourceValue: x, targets: [{select: {kind: TrainingJob}, fieldPaths: [spec.nope.x]}]}]", `:2:16: replacements[0]: the replacement's target has no field "spec.nope.x" (options: {create: true} makes it)`},
		"config map made twice":    {"resources: [job.yaml]\nconfigMapGenerator:\n- {name: a, literals: [x=1]}\n- {name: a, literals: [y=1]}", `:4:3: configMapGenerator[1]: ConfigMap "a" is there already; to add to it or to replace it, give behavior: merge or replace`},
		"config map merged":        {"resources: [job.yaml]\nconfigMapGenerator:\n- {name: a, behavior: merge, literals: [x=1]}", `:3:3: configMapGenerator[0]: there is no ConfigMap "a" yet that could be merged with or replaced`},
		"behavior":                 {"resources: [job.yaml]\nconfigMapGenerator: [{name: a, behavior: merg, literals: [x=1]}]", `:2:32: configMapGenerator[0].behavior: "merg" is not one of create, merge, replace; did you mean "merge"?`},
		"literal":                  {"resources: [job.yaml]\nconfigMapGenerator: [{name: a, literals: [x]}]", `:2:43: configMapGenerator[0].literals[0]: want key=value, not "x"`},
		"key of a literal":         {"resources: [job.yaml]\nconfigMapGenerator: [{name: a, literals: [a b=c]}]", `:2:43: configMapGenerator[0].literals[0]: "a b" cannot be a key of a ConfigMap: letters, digits, -, _ and . only`},
		"key of a file":            {"resources: [job.yaml]\nconfigMapGenerator: [{name: a, files: [../../x=job.yaml]}]", `:2:40: configMapGenerator[0].files[0]: "../../x" cannot be a key of a ConfigMap: letters, digits, -, _ and . only`},
		"variables":                {"resources: [job.yaml]\nconfigMapGenerator: [{name: a, envs: [some.env]}]", `:2:39: configMapGenerator[0].envs[0]: jobs/bad/some.env:3: want name=value, not "HOME"`},
		"replicas":                 {"resources: [job.yaml]\nreplicas: [{name: bad, count: 3}]", `:2:1: replicas: is refused: it changes Deployments and their like, never a job; patch the replicas of the job's role`},
		"empty file":               {"# later\n", `:1: the file is empty; a kustomization is a map of fields, resources among them`},
	} {
		t.Run(name, func(t *testing.T) {
			files := withGood(map[string]string{
				"jobs/bad/kustomization.yaml": c.kustomization,
				"jobs/bad/job.yaml":           job("bad"),
				"jobs/bad/patch.yaml":         "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: bad}\nspec: {roles: {}}\n",
				"jobs/bad/some.env":           "# comment\nA=b\nHOME\n",
			})
			defs := render(t, files)
			requireGood(t, defs)
			assert.Equal(t, []string{"jobs/bad/kustomization.yaml" + c.want}, all(defs))
			assert.Equal(t, all(defs), all(render(t, files)), "the same words each time")
		})
	}
}

// An overlay, a component or a unit that says nothing is none, as init writes one.
func TestAKustomizationThatSaysNothing(t *testing.T) {
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	for name, files := range map[string]map[string]string{
		"overlay":   {"overlays/prod/kustomization.yaml": component},
		"with list": {"overlays/prod/kustomization.yaml": component + "patches: []\n"},
		"component": {
			"overlays/prod/kustomization.yaml": component + "components: [../../lib]\n",
			"lib/kustomization.yaml":           component,
		},
	} {
		defs := render(t, withGood(files))
		require.Empty(t, all(defs), name)
		requireGood(t, defs)
	}
	defs := render(t, withGood(map[string]string{"jobs/none/kustomization.yaml": "kind: Kustomization\n"}))
	requireGood(t, defs)
	require.Equal(t, []string{"jobs/none: warning: no job is defined here, so nothing of it is used"}, all(defs))
}

// What the head of an object has to be is said with what it is.
func TestWordsForMetadata(t *testing.T) {
	for metadata, want := range map[string]string{
		`[name, bad]`:                         `:3:1: metadata: want a map, not a list`,
		`bad`:                                 `:3:1: metadata: want a map, not the text "bad"`,
		`{name: bad, namespace: 7}`:           `:3:23: metadata.namespace: want text, not the number 7: write "7" in quotes`,
		`{name: bad, labels: {a: 010}}`:       `:3:32: metadata.labels.a: want text, not the number 8: unquoted 010 is read as the number 8; write "010" in quotes`,
		`{name: bad, annotations: {a: true}}`: `:3:37: metadata.annotations.a: want text, not the boolean true: write "true" in quotes`,
		`{name: bad, labels: {a: "b c"}}`:     `:3:32: metadata.labels.a: not a label's value: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
	} {
		text := strings.Replace(job("bad"), "{name: bad}", metadata, 1)
		defs := render(t, withGood(map[string]string{"jobs/bad.yaml": text}))
		requireGood(t, defs)
		assert.Equal(t, []string{"jobs/bad.yaml" + want}, all(defs))
	}
}

// No process can be started with a NUL: better said before the job has started.
func TestNULInACommand(t *testing.T) {
	defs := render(t, withGood(map[string]string{"jobs/bad.yaml": strings.Replace(job("bad"), "[echo]", `[echo, "a\0b"], env: [{name: A, value: "\0"}]`, 1)}))
	requireGood(t, defs)
	require.Len(t, all(defs), 2)
	require.Contains(t, all(defs)[0], "spec.roles[0].template.spec.containers[0].command[1]: has a NUL character")
	require.Contains(t, all(defs)[1], "env[0].value: has a NUL character")
}
