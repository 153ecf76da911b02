package render

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLabelsMakeNoRoles: an overlay that labels every template adds no template
// where a job has none.
func TestLabelsMakeNoRoles(t *testing.T) {
	files := map[string]string{
		"jobs/new.yaml":   "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: new}\nspec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, image: b}]}}}}}\n",
		"jobs/old.yaml":   "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: old}\nspec: {replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, image: b}]}}}, {tfReplicaType: PS}]}\n",
		"jobs/older.yaml": "apiVersion: mlkube.io/v1beta1\nkind: TfJob\nmetadata: {name: older}\nspec: {replica_specs: [{template: {spec: {containers: [{name: tensorflow, image: b}]}}}]}\n",
	}
	without := render(t, files)
	require.Empty(t, without.Invalid)
	files["overlays/prod/kustomization.yaml"] = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nlabels: [{pairs: {team: x}, includeTemplates: true}]\ncommonAnnotations: {note: it}\n"
	with := render(t, files)
	for _, i := range with.Invalid {
		for _, e := range i.Errors {
			t.Error(e)
		}
	}
	require.Len(t, with.Jobs, 3)
	for n, job := range with.Jobs {
		assert.Empty(t, job.Warnings, job.Name)
		assert.Len(t, job.Roles, len(without.Jobs[n].Roles), job.Name)
		for _, role := range job.Roles {
			if role.Name != "ps" { // which has no template to be labelled
				assert.Equal(t, "x", role.Template.Labels["team"], job.Name)
				assert.Equal(t, "it", role.Template.Annotations["note"], job.Name)
			}
		}
	}
}
