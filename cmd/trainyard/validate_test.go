package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// rendered lets validate and render see the same definitions in every environment.
func (b *bench) rendered(defs repo.Definitions, seen *[]string) {
	b.parts.Render = func(_ context.Context, _ fs.FS, environment string, paths []string) (repo.Definitions, error) {
		*seen = append(append(*seen, environment), paths...)
		return defs, nil
	}
}

func TestValidate(t *testing.T) {
	b := newBench(t)
	b.write(t, "jobs/a.yaml", "")
	b.write(t, "overlays/prod/kustomization.yaml", "")
	warning := &repo.Error{File: "jobs/a.yaml", Line: 2, Message: "odd", Warning: true}
	wrong := &repo.Error{File: "jobs/b.yaml", Line: 3, Column: 5, Field: "spec.rolse", Message: `unknown field, not "roles"`}
	defs := repo.Definitions{
		Jobs:     []repo.Job{{Key: repo.Key{Namespace: "default", Name: "a"}, Warnings: []*repo.Error{warning}}},
		Invalid:  []repo.Invalid{{Errors: []*repo.Error{wrong}}},
		Problems: []*repo.Error{{File: "trainyard.yaml", Line: 1, Message: "empty"}},
	}
	var seen []string
	b.rendered(defs, &seen)
	code, out, errs := b.run("validate")
	assert.Equal(t, exitProblems, code)
	assert.Equal(t, "jobs/a.yaml:2: warning: odd\njobs/b.yaml:3:5: spec.rolse: unknown field, not \"roles\"\ntrainyard.yaml:1: empty\n", out)
	assert.Equal(t, "1 job, 2 errors, 1 warning (environments: default, prod)\n", errs)
	assert.Equal(t, []string{"default", "prod"}, seen, "each environment, all of it")

	seen, defs.Invalid, defs.Problems = nil, nil, nil
	b.rendered(defs, &seen)
	code, _, errs = b.run("validate", "--env", "prod", "jobs/a.yaml")
	assert.Equal(t, exitFine, code, "warnings are fine")
	assert.Equal(t, "1 job, 0 errors, 1 warning (environment: prod)\n", errs)
	assert.Equal(t, []string{"prod", "jobs/a.yaml"}, seen)

	b.parts.Render = func(context.Context, fs.FS, string, []string) (repo.Definitions, error) {
		return repo.Definitions{}, errors.New("disk on fire")
	}
	code, _, errs = b.run("validate")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, errs, "for environment default: disk on fire")
}

func TestFindTree(t *testing.T) {
	b := newBench(t)
	b.write(t, ".git/HEAD", "")
	b.write(t, "examples/hello/jobs/deep/jobs/a.yaml", "")
	b.write(t, "loose/a.yaml", "")
	sys := func(dir string) system { return system{Dir: filepath.Join(b.dir, filepath.FromSlash(dir))} }
	tree, err := findTree(sys("examples/hello/jobs/deep/jobs"), nil)
	require.NoError(t, err)
	assert.Equal(t, workTree{Root: filepath.Join(b.dir, "examples", "hello")}, tree, "the topmost with jobs")
	tree, err = findTree(sys("."), []string{"examples/hello/jobs/deep", "examples/hello/jobs/deep/jobs/a.yaml"})
	require.NoError(t, err)
	assert.Equal(t, []string{"jobs/deep", "jobs/deep/jobs/a.yaml"}, tree.Paths)
	tree, err = findTree(sys("."), []string{"examples/hello"})
	require.NoError(t, err)
	assert.Empty(t, tree.Paths, "the whole of it")
	tree, err = findTree(sys("loose"), nil)
	require.NoError(t, err)
	assert.Equal(t, b.dir, tree.Root, "the checkout")
	_, err = findTree(sys("."), []string{"examples/hello", "loose/a.yaml"})
	assert.ErrorContains(t, err, "lie in two repositories")

	outside := newBench(t)
	outside.write(t, "a.yaml", "")
	_, err = findTree(system{Dir: outside.dir}, nil)
	assert.ErrorContains(t, err, "lies in no repository")
	tree, err = findTree(system{Dir: outside.dir}, []string{"a.yaml"})
	require.NoError(t, err)
	assert.Equal(t, workTree{Root: outside.dir, Paths: []string{"a.yaml"}}, tree)
}

func TestRender(t *testing.T) {
	b := newBench(t)
	b.write(t, "jobs/a.yaml", "")
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "train", Command: []string{"true"}}}}}
	job := repo.Job{Key: repo.Key{Namespace: "nlp", Name: "a"}, Digest: "d", Roles: []repo.Role{{
		Name: "worker", Replicas: 2, Port: 2222, Template: template,
		Env: repo.Env{Vars: []corev1.EnvVar{{Name: "PEERS", Value: `{{join "," "worker"}}`}}},
	}}}
	var seen []string
	b.rendered(repo.Definitions{Jobs: []repo.Job{job}}, &seen)
	code, out, errs := b.run("render", "--env", "prod")
	require.Zero(t, code, errs)
	id := repo.RunID("prod", job.Key, "d", repo.Trigger{Kind: repo.TriggerPush})
	assert.Contains(t, out, "---\napiVersion: v1\nkind: Pod\n")
	assert.Contains(t, out, "value: worker-0."+id+":2222,worker-1."+id+":2222\n")
	assert.Contains(t, out, "name: "+id+"-worker-1-0-0\n")
	assert.NotContains(t, out, "status:")
	code, out, _ = b.run("render", "-o", "json")
	require.Zero(t, code)
	assert.Contains(t, out, `"kind": "List"`)

	b.rendered(repo.Definitions{Problems: []*repo.Error{{File: "trainyard.yaml", Message: "bad"}}}, &seen)
	code, out, errs = b.run("render", "-o", "json")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, out, `"items": []`)
	assert.Equal(t, "trainyard.yaml: bad\n", errs)
}

// Which environments validate looks at, and what it says of those that cannot be.
func TestEnvironmentsOfValidate(t *testing.T) {
	b := newBench(t)
	var seen []string
	b.rendered(repo.Definitions{}, &seen)
	b.write(t, "jobs/a.txt", "")
	b.write(t, "overlays/prod/kustomization.yaml", "")
	b.write(t, "overlays/De Fault/kustomization.yaml", "")
	code, out, errs := b.run("validate")
	assert.Equal(t, exitFine, code)
	assert.Equal(t, "overlays/De Fault: warning: no environment can have this name: small letters, digits and - within, 63 at most\n", out)
	assert.Contains(t, errs, "hint: jobs are defined in files jobs/….yaml, .yml or .json")
	assert.Equal(t, []string{"default", "prod"}, seen)

	seen = nil
	b.write(t, "trainyard.yaml", "environments: {prod: {}, dev: {}, No Name: {}}\n")
	_, _, _ = b.run("validate")
	assert.Equal(t, []string{"dev", "prod"}, seen, "the list is all there are")

	for _, hostile := range []string{"environments: &x {a: *x}", "environments: [prod]", "{", strings.Repeat("[", 20000)} {
		seen = nil
		b.write(t, "trainyard.yaml", hostile)
		code, _, _ = b.run("validate")
		assert.Equal(t, exitFine, code, "rendering, which is none here, tells what is wrong")
		assert.Contains(t, seen, "default")
	}
	for _, command := range []string{"validate", "render"} {
		code, _, errs = b.run(command, "--env", "../x")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, errs, command+`: --env: "../x" is no name`)
	}
}

func TestArgumentsThatAreWrong(t *testing.T) {
	b := newBench(t)
	for line, want := range map[string]string{
		"version x":      "trainyard: version: too many arguments: x\nhint: the form is trainyard version\n",
		"run x --repo .": "trainyard: run: too many arguments: x\nhint: the form is trainyard run --repo URL [flags]\n",
		"logs":           "trainyard: logs: an argument is missing\nhint: the form is trainyard logs JOB [TASK]\n",
		"logs a b c":     "trainyard: logs: too many arguments: a b c\nhint: the form is trainyard logs JOB [TASK]\n",
		"rerun":          "trainyard: rerun: an argument is missing\nhint: the form is trainyard rerun JOB\n",
	} {
		code, _, errs := b.run(strings.Fields(line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Equal(t, want, errs, line)
	}
}
