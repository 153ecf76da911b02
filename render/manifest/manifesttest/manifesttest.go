// Package manifesttest helps the tests of the job formats: it reads a file the
// way render does, without kustomize, and stamps pods. It is for tests only.
package manifesttest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// Read reads a file of one document. It returns the job and all problems, one a line.
func Read(t testing.TB, f manifest.Format, text string) (*repo.Job, string) {
	t.Helper()
	return ReadWith(t, f, repo.Settings{}, text)
}

// ReadWith reads a file of one document in a repository with settings.
func ReadWith(t testing.TB, f manifest.Format, settings repo.Settings, text string) (*repo.Job, string) {
	t.Helper()
	docs, errs := manifest.Parse("f.yaml", []byte(text))
	if len(errs) > 0 {
		return nil, lines(errs)
	}
	require.Len(t, docs, 1)
	var built map[string]any
	require.NoError(t, docs[0].Root.Decode(&built))
	o := manifest.NewObject(built, docs[0], settings)
	job := f.Read(o)
	if o.Failed() {
		return nil, lines(o.Problems())
	}
	return job, lines(o.Problems())
}

// Good is the job of a file without a problem.
func Good(t testing.TB, f manifest.Format, text string) *repo.Job {
	t.Helper()
	job, said := Read(t, f, text)
	require.Empty(t, said)
	require.NotNil(t, job)
	return job
}

func lines(errs []*repo.Error) string {
	out := make([]string, 0, len(errs))
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return strings.Join(out, "\n")
}

// Pod stamps the pod of a job's task. Every task is at ROLE-INDEX.example and
// the port of its role.
func Pod(t testing.TB, job *repo.Job, role string, index int32) *corev1.Pod {
	t.Helper()
	run := &repo.Run{ID: job.Name + "-abc", Environment: "test", Revision: "1234", Job: *job}
	at := func(task repo.Task) repo.Address {
		a := repo.Address{Host: task.String() + ".example"}
		if r := job.Role(task.Role); r != nil {
			a.Port = r.Port
		}
		return a
	}
	pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: role, Index: index}, RunAttempt: 1, Attempt: 2}, at)
	require.NoError(t, err)
	return pod
}

// Env is the environment of a container without the variables that every
// container of every format has, as NAME=value in its order.
func Env(t testing.TB, pod *corev1.Pod, container string) (env []string) {
	t.Helper()
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if c.Name != container {
				continue
			}
			for _, e := range c.Env {
				switch {
				case strings.HasPrefix(e.Name, "TRAINYARD_"):
				case e.ValueFrom != nil && e.ValueFrom.FieldRef != nil:
					env = append(env, fmt.Sprintf("%s=<%s>", e.Name, e.ValueFrom.FieldRef.FieldPath))
				default:
					env = append(env, e.Name+"="+e.Value)
				}
			}
			return env
		}
	}
	t.Fatalf("pod %s has no container %q", pod.Name, container)
	return nil
}

// Corpus reads every file of the directory named by TRAINYARD_CORPUS that the
// format is for, and hands over the file's name and its problems.
func Corpus(t *testing.T, f manifest.Format, each func(name, problems string)) {
	t.Helper()
	dir := os.Getenv("TRAINYARD_CORPUS")
	if dir == "" {
		t.Skip("TRAINYARD_CORPUS names no directory of job files")
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		docs, errs := manifest.Parse(name, data)
		if len(errs) > 0 {
			return nil
		}
		for _, doc := range docs {
			if problems, ok := readDocument(f, doc); ok {
				each(name, problems)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

func readDocument(f manifest.Format, doc *manifest.Document) (problems string, ok bool) {
	for _, k := range f.Kinds {
		if doc.APIVersion() != k.GroupVersion().String() || doc.Kind() != k.Kind {
			continue
		}
		var built map[string]any
		if err := doc.Root.Decode(&built); err != nil {
			return err.Error(), true
		}
		o := manifest.NewObject(built, doc, repo.Settings{})
		f.Read(o)
		return lines(o.Problems()), true
	}
	return "", false
}

// Fuzz feeds a format with files that begin as the seeds.
func Fuzz(f *testing.F, format manifest.Format, seeds ...string) {
	for _, s := range append(seeds, kept(f)...) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := firstObject(data)
		if o == nil {
			return
		}
		job := format.Read(o)
		if o.Failed() {
			return
		}
		for i := range job.Roles {
			if job.Roles[i].Replicas > 0 && job.Tasks() < 100 {
				Pod(t, job, job.Roles[i].Name, 0)
			}
		}
		if job.Tasks() < 100 {
			run := &repo.Run{ID: job.Name + "-abc", Environment: "test", Revision: "1234", Job: *job}
			_, err := run.Objects(0, func(task repo.Task) repo.Address { return repo.Address{Host: task.String() + ".example", Port: 1} })
			require.NoError(t, err)
		}
	})
}

// FuzzConfig feeds a reader of an operator's configuration with files that
// begin as the seeds.
func FuzzConfig(f *testing.F, read func(*manifest.Object, *repo.Settings), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := firstObject(data)
		if o == nil {
			return
		}
		var settings repo.Settings
		read(o, &settings)
		if o.Failed() {
			return
		}
		for _, r := range settings.FrameworkRules { // whose patterns are read without a second look
			require.NotEmpty(t, r.Class)
			for _, pattern := range []string{r.ReasonPattern, r.MessagePattern} {
				_, err := regexp.Compile(pattern)
				require.NoError(t, err)
			}
		}
	})
}

// firstObject is that of a file's first document, nil when none can be read.
func firstObject(data []byte) *manifest.Object {
	docs, errs := manifest.Parse("f.yaml", data)
	if len(errs) > 0 || len(docs) == 0 {
		return nil
	}
	var built map[string]any
	if docs[0].Root.Decode(&built) != nil || built == nil {
		return nil
	}
	return manifest.NewObject(built, docs[0], repo.Settings{})
}

// kept are the inputs that earlier fuzzing found of interest: a quoted string
// on each line of testdata/fuzz.txt.
func kept(f *testing.F) (inputs []string) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "fuzz.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(f, err)
	for line := range strings.Lines(string(text)) {
		s, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		require.NoError(f, err)
		inputs = append(inputs, s)
	}
	return inputs
}
