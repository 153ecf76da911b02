package render

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// thousand is a repository of a thousand job files with an overlay for jobs
// and pods.
func thousand() map[string]string {
	files := map[string]string{"overlays/prod/kustomization.yaml": podOverlay + `- target: {kind: TrainingJob}
  patch: |
    apiVersion: trainyard.dev/v1
    kind: TrainingJob
    metadata: {name: any}
    spec: {roles: [{name: worker, template: {spec: {volumes: [{name: scratch, emptyDir: {}}]}}}]}
`}
	for i := range 1000 {
		files[fmt.Sprintf("jobs/team%02d/job%03d.yaml", i/50, i)] = fmt.Sprintf(`apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: job%03d, namespace: team%02d}
spec:
  deadline: 12h
  roles:
  - name: ps
    replicas: 2
    daemon: true
    template: {spec: {containers: [{name: train, image: "busybox:1", command: [serve]}]}}
  - name: worker
    replicas: 4
    template:
      spec:
        containers:
        - {name: train, image: "busybox:1", command: [train, --lr, "0.%03d"], env: [{name: A, value: b}]}
`, i, i/50, i)
	}
	return files
}

func BenchmarkFirstRender1000(b *testing.B) {
	s := snapshotOf(thousand())
	s.Hash(".")
	New(environmentOf)
	for b.Loop() {
		defs, err := New(environmentOf).Render(context.Background(), s)
		require.NoError(b, err)
		require.Len(b, defs.Jobs, 1000)
	}
}

func BenchmarkOneChange1000(b *testing.B) {
	files := thousand()
	r := New(environmentOf)
	_, err := r.Render(context.Background(), snapshotOf(files))
	require.NoError(b, err)
	changed := "jobs/team07/job350.yaml"
	text := files[changed]
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		files[changed] = text + fmt.Sprintf("# %d\n", i)
		s := snapshotOf(files)
		s.Hash(".")
		b.StartTimer()
		defs, err := r.Render(context.Background(), s)
		require.NoError(b, err)
		require.Len(b, defs.Jobs, 1000)
	}
}
