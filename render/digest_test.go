package render

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const digestJob = `apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: job, labels: {team: nlp}}
spec:
  roles:
  - name: worker
    replicas: 2
    template:
      metadata: {labels: {app: x}}
      spec: {containers: [{name: train, image: "busybox:1", command: [echo, a]}]}
`

const podOverlay = `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- target: {kind: Pod, labelSelector: trainyard.dev/role=worker}
  patch: '{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {nodeSelector: {pool: gpu}}}'
`

func only(t *testing.T, files map[string]string) repo.Job {
	t.Helper()
	defs := render(t, files)
	require.Empty(t, all(defs))
	require.Len(t, defs.Jobs, 1)
	return defs.Jobs[0]
}

func TestWhatChangesTheDigest(t *testing.T) {
	was := only(t, map[string]string{"jobs/a.yaml": digestJob, "overlays/prod/kustomization.yaml": podOverlay})
	require.True(t, strings.HasPrefix(was.Digest, "v1:") && len(was.Digest) == 3+64, was.Digest)
	const same, rescaled, other = "the same", "other replicas", "another"
	edit := func(from, to string) map[string]string {
		require.Contains(t, digestJob, from)
		return map[string]string{"jobs/a.yaml": strings.Replace(digestJob, from, to, 1)}
	}
	spec := func(line string) map[string]string { return edit("spec:\n  roles", "spec:\n  "+line+"\n  roles") }
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":         {nil, same},
		"comment":         {edit("spec:", "spec: # comment"), same},
		"whitespace":      {edit("    replicas: 2\n", "\n    replicas:   2\n\n"), same},
		"quotes":          {edit("image: \"busybox:1\"", "image: 'busybox:1'"), same},
		"key order":       {edit("{name: train, image: \"busybox:1\", command: [echo, a]}", "{command: [echo, a], image: \"busybox:1\", name: train}"), same},
		"another file":    {map[string]string{"jobs/a.yaml": "", "jobs/z/b.yml": digestJob}, same},
		"job label":       {edit("team: nlp", "team: cv"), same},
		"annotation":      {edit("labels:", "annotations: {trainyard.dev/rerun: \"1\"}, labels:"), same},
		"suspend":         {spec("suspend: true"), same},
		"not suspended":   {spec("suspend: false"), same},
		"stop":            {spec("stop: true"), same},
		"schedule":        {spec("schedule: {cron: \"0 2 * * *\"}"), same},
		"onChange":        {spec("onChange: Restart"), same},
		"cleanup":         {spec("cleanup: {pods: None}"), same},
		"settings":        {map[string]string{"trainyard.yaml": "apiVersion: trainyard.dev/v1\nkind: Repository\ndefaults: {onChange: Restart, deadline: 3h}\n"}, same},
		"overlay comment": {map[string]string{"overlays/prod/kustomization.yaml": "# comment\n" + podOverlay}, same},
		"overlay of none": {map[string]string{"overlays/prod/kustomization.yaml": podOverlay + "- {target: {kind: Pod, labelSelector: trainyard.dev/role=ps}, path: ps.yaml}\n", "overlays/prod/ps.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {hostNetwork: true}\n"}, same},
		"replicas":        {edit("replicas: 2", "replicas: 3"), rescaled},
		"command":         {edit("[echo, a]", "[echo, b]"), other},
		"image":           {edit("busybox:1", "busybox:2"), other},
		"template label":  {edit("app: x", "app: z"), other},
		"deadline":        {spec("deadline: 1h"), other},
		"retry":           {spec("retry: {limit: 3}"), other},
		"role's name":     {edit("name: worker", "name: trainer"), other},
		"pod overlay":     {map[string]string{"overlays/prod/kustomization.yaml": strings.Replace(podOverlay, "pool: gpu", "pool: cpu", 1)}, other},
		"no overlay":      {map[string]string{"overlays/prod/kustomization.yaml": ""}, other},
		"overlay of jobs": {map[string]string{"overlays/prod/kustomization.yaml": podOverlay + "- {target: {kind: TrainingJob}, patch: '[{op: add, path: /spec/deadline, value: 2h}]'}\n"}, other},
		"config map":      {map[string]string{"jobs/a.yaml": digestJob + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"}, other},
		"overlay's label": {map[string]string{"overlays/prod/kustomization.yaml": podOverlay + "labels: [{pairs: {cost: \"17\"}}]\n"}, same},
		"pods' label":     {map[string]string{"overlays/prod/kustomization.yaml": podOverlay + "labels: [{pairs: {cost: \"17\"}, includeTemplates: true}]\n"}, other},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"jobs/a.yaml": digestJob, "overlays/prod/kustomization.yaml": podOverlay}
			for f, text := range test.files {
				if files[f] = text; text == "" {
					delete(files, f)
				}
			}
			is := only(t, files)
			require.Equal(t, was.Key, is.Key)
			got := other
			switch {
			case is.Digest == was.Digest && is.Shape == was.Shape:
				got = same
			case is.Shape == was.Shape:
				got = rescaled
			}
			require.Equal(t, test.want, got)
		})
	}
}

// Digests are in the records of everybody's repositories: one that changes
// without a change of its job runs that job again. When this test fails, it is
// the change that made it fail that is wrong, not testdata/digests.txt.
func TestDigestsStayWhatTheyAre(t *testing.T) {
	const file = "testdata/digests.txt"
	var b strings.Builder
	for _, name := range []string{"plain", "overlay", "unit", "formats"} {
		text, err := os.ReadFile("testdata/" + name + ".txtar")
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		files := archive(t, string(text))
		delete(files, wantFile)
		for _, j := range render(t, files).Jobs {
			fmt.Fprintf(&b, "%s %s %s %s\n", name, j.Key, j.Digest, j.Shape)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}
