package render

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// environmentOf is the environment that the tests render for.
const environmentOf = "prod"

// files makes a snapshot of files by name.
func snapshotOf(files map[string]string) Snapshot {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Dir(tree, "0123abc")
}

func render(t testing.TB, files map[string]string) repo.Definitions {
	t.Helper()
	defs, err := New(environmentOf).Render(context.Background(), snapshotOf(files))
	require.NoError(t, err)
	return defs
}

// archive splits a test of txtar into files; those of an input begin with no dot.
func archive(t testing.TB, text string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, f := range txtar.Parse([]byte(text)).Files {
		files[f.Name] = string(f.Data)
	}
	return files
}

const wantFile = "WANT"

func TestGolden(t *testing.T) {
	eachGolden(t, "testdata/*.txtar", func(t *testing.T, _ string, files map[string]string) string {
		return describe(t, render(t, files))
	})
}

// eachGolden holds what is made of the files of each archive against its last one.
func eachGolden(t *testing.T, pattern string, got func(t *testing.T, name string, files map[string]string) string) {
	tests, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	for _, file := range tests {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			files := map[string]string{}
			want := ""
			for _, f := range a.Files {
				if f.Name == wantFile {
					want = string(f.Data)
				} else {
					files[f.Name] = string(f.Data)
				}
			}
			got := got(t, name, files)
			if *update {
				a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == wantFile })
				a.Files = append(a.Files, txtar.File{Name: wantFile, Data: []byte(got)})
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
				return
			}
			require.Equal(t, want, got)
		})
	}
}

// describe writes all that was rendered: for each job what is not its default
// and one pod of each role, and everything that is wrong.
func describe(t testing.TB, defs repo.Definitions) string {
	t.Helper()
	var b strings.Builder
	for i := range defs.Jobs {
		job := &defs.Jobs[i]
		fmt.Fprintf(&b, "job %s from %s (%s:%d)\ndigest %.19s shape %.19s\n", job.Key, job.Source.Unit, job.Source.File, job.Source.Line, job.Digest, job.Shape)
		for _, w := range job.Warnings {
			fmt.Fprintln(&b, w)
		}
		for _, o := range job.Objects {
			fmt.Fprintf(&b, "object %s\n", o.Raw)
		}
		run := repo.Run{ID: repo.RunID(defs.Environment, job.Key, "fixed", repo.Trigger{}), Environment: defs.Environment, Revision: defs.Revision, Job: *job}
		for _, role := range job.Roles {
			fmt.Fprintf(&b, "%d × %s\n%s", role.Replicas, role.Name, podText(t, first(t, &run, role.Name)))
		}
	}
	b.WriteString(wrongs(defs))
	return b.String()
}

// brief writes what is a job's own: one pod of each role, without what every
// pod of every job has, and everything that is said.
func brief(t testing.TB, defs repo.Definitions) string {
	t.Helper()
	var b strings.Builder
	for i := range defs.Jobs {
		job := &defs.Jobs[i]
		fmt.Fprintf(&b, "job %s\n", job.Key)
		for _, w := range job.Warnings {
			fmt.Fprintln(&b, w)
		}
		for _, o := range job.Objects {
			fmt.Fprintf(&b, "object %s %s\n", o.Kind, o.Name)
		}
		run := repo.Run{ID: "RUN", Environment: defs.Environment, Revision: defs.Revision, Job: *job}
		for _, role := range job.Roles {
			pod := first(t, &run, role.Name)
			ours := func(key, _ string) bool {
				return strings.HasPrefix(key, "trainyard.dev/") || strings.HasPrefix(key, "app.kubernetes.io/")
			}
			maps.DeleteFunc(pod.Labels, ours)
			maps.DeleteFunc(pod.Annotations, ours)
			pod.Finalizers, pod.Namespace = nil, ""
			for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range list {
					list[i].Env = slices.DeleteFunc(list[i].Env, func(e corev1.EnvVar) bool { return strings.HasPrefix(e.Name, "TRAINYARD_") })
				}
			}
			fmt.Fprintf(&b, "%d × %s\n%s", role.Replicas, role.Name, podText(t, pod))
		}
	}
	b.WriteString(wrongs(defs))
	return b.String()
}

// first stamps the pod of a role's first task.
func first(t testing.TB, run *repo.Run, role string) *corev1.Pod {
	t.Helper()
	pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: role}}, func(task repo.Task) repo.Address {
		return repo.Address{Host: task.String() + ".test", Port: 1000}
	})
	require.NoError(t, err)
	delete(pod.Annotations, repo.AnnotationDigest)
	return pod
}

func podText(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	text, err := yaml.Marshal(pod)
	require.NoError(t, err)
	return indent(string(text))
}

// wrongs are the problems that are no job's own.
func wrongs(defs repo.Definitions) string {
	var b strings.Builder
	for _, i := range defs.Invalid {
		fmt.Fprintf(&b, "invalid %s from %s\n", i.Key, i.Source.Unit)
		for _, e := range i.Errors {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	for _, e := range defs.Problems {
		fmt.Fprintf(&b, "problem %s\n", e)
	}
	return b.String()
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
