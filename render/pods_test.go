package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const componentHeader = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"

// Mistakes in patches of pods are the overlay's, and named as such.
func TestBadOverlaysOfPods(t *testing.T) {
	tests := map[string]struct{ patch, want string }{
		"unknown field":     {`'{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {nodeSelecter: {a: b}}}'`, `overlays/prod/kustomization.yaml: on the pods of role worker of job default/job: spec.nodeSelecter: unknown field; did you mean "nodeSelector"?`},
		"wrong type":        {`'{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {hostNetwork: perhaps}}'`, `overlays/prod/kustomization.yaml: on the pods of role worker of job default/job: spec.hostNetwork: want true or false`},
		"deleted":           {`'{apiVersion: v1, kind: Pod, metadata: {name: x}, $patch: delete}'`, `the overlay deletes them`},
		"path is not there": {`'[{op: add, path: /spec/nodeSelector/pool, value: gpu}]'`, `overlays/prod/kustomization.yaml:3:11: patches[0]: the JSON patch does not fit: add: doc is missing path`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			defs := render(t, map[string]string{
				"jobs/a.yaml":                      digestJob,
				"overlays/prod/kustomization.yaml": componentHeader + "patches: [{target: {kind: Pod}, patch: " + test.patch + "}]",
			})
			require.Empty(t, defs.Jobs)
			require.Len(t, defs.Invalid, 1)
			require.Equal(t, "default/job", defs.Invalid[0].Key.String())
			require.Contains(t, strings.Join(all(defs), "\n"), test.want)
		})
	}
}

// An overlay may rename and relabel the pods that it is shown, and replace all
// their annotations, by which they are found again; none of it reaches the
// job's name.
func TestPodsAreFoundAgain(t *testing.T) {
	job := only(t, map[string]string{
		"jobs/a.yaml": digestJob,
		"overlays/prod/kustomization.yaml": componentHeader + `namePrefix: x-
namespace: elsewhere
patches:
- target: {kind: Pod}
  patch: '[{op: replace, path: /metadata/annotations, value: {a: b}}, {op: replace, path: /metadata/labels, value: {c: d}}]'
`,
	})
	require.Equal(t, "elsewhere/x-job", job.Key.String())
	template := job.Roles[0].Template
	require.Equal(t, map[string]string{"a": "b"}, template.Annotations)
	require.Equal(t, map[string]string{"c": "d"}, template.Labels)
	require.Empty(t, template.Name)
	require.Empty(t, template.Namespace)
}

// Labels of a job are there for an overlay's selectors, and do not become the pods'.
func TestLabelsOfJobsAreForSelectors(t *testing.T) {
	job := only(t, map[string]string{
		"jobs/a.yaml":                      digestJob,
		"overlays/prod/kustomization.yaml": componentHeader + "patches: [{target: {kind: Pod, labelSelector: 'team=nlp,app=x,trainyard.dev/job=job'}, patch: '[{op: add, path: /spec/priorityClassName, value: high}]'}]",
	})
	require.Equal(t, "high", job.Roles[0].Template.Spec.PriorityClassName)
	require.NotContains(t, job.Roles[0].Template.Labels, "team")
	require.Equal(t, "x", job.Roles[0].Template.Labels["app"])
}

// The same job in two units of one environment, one of them bad, is still twice.
func TestABadDuplicate(t *testing.T) {
	defs := render(t, map[string]string{"jobs/a.yaml": job("a"), "jobs/b.yaml": strings.Replace(job("a"), "roles", "rolls", 1)})
	require.Empty(t, defs.Jobs)
	require.Len(t, defs.Invalid, 1)
	require.Contains(t, strings.Join(all(defs), "\n"), "defined twice: here and at jobs/b.yaml:1")
}
