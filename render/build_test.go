package render

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestTheFileSystemOfABuildIsBounded(t *testing.T) {
	f := newFiles(time.Now().Add(time.Hour))
	f.put("a/b.yaml", []byte("x"))
	d, name, err := f.CleanedAbs("a/./b.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"/a", "b.yaml"}, []string{string(d), name})
	for _, outside := range []string{"/etc/passwd", "../../etc/passwd", "/a/c.yaml"} {
		_, _, err = f.CleanedAbs(outside)
		require.ErrorContains(t, err, "file does not exist")
		_, err = f.ReadFile(outside)
		require.ErrorContains(t, err, "file does not exist")
	}
	require.ErrorIs(t, f.WriteFile("/a/b.yaml", nil), errReadOnly)
	for range maxReads {
		_, err = f.ReadFile("/a/b.yaml")
	}
	require.ErrorIs(t, err, errReads)
	late := newFiles(time.Now().Add(-time.Second))
	late.put("kustomization.yaml", []byte(`{"resources":["a.yaml"]}`))
	_, err = run(late, nil)
	require.Error(t, err)
}

func TestAPanicInKustomizeIsAnError(t *testing.T) {
	_, err := run(nil, nil)
	require.ErrorContains(t, err, "kustomize broke down over this input")
}

// FuzzUnit: whatever a unit and an overlay say, rendering ends, and a job that
// has nothing to do with them is rendered.
func FuzzUnit(f *testing.F) {
	f.Add("resources: [job.yaml]", job("a"), podOverlay)
	f.Add("resources: [job.yaml]\nnamePrefix: x-\npatches: [{path: job.yaml}]", digestJob, "kind: Component\npatches: [{target: {kind: Pod}, patch: '[{op: add, path: /metadata/annotations, value: {}}]'}]")
	f.Add("resources: [job.yaml]\nconfigMapGenerator: [{name: c, files: [a=job.yaml], behavior: merge}]", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", "kind: Component\nlabels: [{pairs: {a: b}, includeTemplates: true}]\nreplacements: [{sourceValue: x, targets: [{select: {kind: Pod}, fieldPaths: [spec.nodeName], options: {create: true}}]}]")
	f.Add("resources: [job.yaml]\nreplacements: [{source: {kind: TrainingJob, fieldPath: metadata.name}, targets: [{select: {kind: TrainingJob}, fieldPaths: ['spec.roles.[name=worker].template.spec.containers.*.image'], options: {delimiter: ':', index: 1}}]}]", digestJob, "")
	f.Fuzz(func(t *testing.T, kustomization, file, overlay string) {
		if strings.Contains(file, "good") || strings.Contains(overlay, "name") || strings.Contains(overlay, "resources") {
			return
		}
		files := withGood(map[string]string{"jobs/bad/kustomization.yaml": kustomization, "jobs/bad/job.yaml": file, "jobs/file.yaml": file})
		if overlay != "" {
			files["overlays/prod/kustomization.yaml"] = overlay
		}
		started := time.Now() // of what runs away
		defs, err := New(environmentOf).Render(context.Background(), snapshotOf(files))
		require.NoError(t, err)
		require.Less(t, time.Since(started), time.Minute)
		found := false
		for _, j := range defs.Jobs {
			found = found || j.Name == "good"
			require.NotEmpty(t, j.Digest)
			require.NotEmpty(t, j.Source.Unit)
		}
		errs, _ := repo.Split(defs.Problems)
		if overlay == "" && len(errs) == 0 {
			require.True(t, found, all(defs))
		}
	})
}
