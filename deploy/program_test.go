package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// compiled is the program that all of this is about.
func compiled(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trainyard")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", name, "../cmd/trainyard")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return name
}

// TestProgramTakesIt: every flag and variable that is written here is one of
// `trainyard run`, and every policy one that it reads.
func TestProgramTakesIt(t *testing.T) {
	trainyard := compiled(t)
	help, err := exec.Command(trainyard, "run", "--help").Output()
	require.NoError(t, err)
	var flags []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllSubmatch(help, -1) {
		flags = append(flags, string(m[1]))
	}
	require.Contains(t, flags, "repo")
	named := map[string]bool{}
	variable := func(name string) {
		if flag, ours := strings.CutPrefix(name, "TRAINYARD_"); ours {
			named[strings.ReplaceAll(strings.ToLower(flag), "_", "-")] = true
		}
	}
	each(t, func(t *testing.T, all objects) {
		_, c := program(t, all)
		require.Equal(t, "run", c.Args[0])
		for _, a := range c.Args[1:] {
			flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
			named[flag] = true
		}
		for _, e := range c.Env {
			variable(e.Name)
		}
		for _, m := range of[*corev1.ConfigMap](all) {
			for name := range m.Data {
				variable(name)
			}
		}
	})
	for _, name := range []string{"README.md", "systemd/trainyard.service"} {
		for _, m := range regexp.MustCompile(`TRAINYARD_[A-Z_]*[A-Z]`).FindAllString(readText(t, name), -1) {
			variable(m)
		}
	}
	require.True(t, named["repo"] && named["listen"] && named["token-file"])
	for flag := range named {
		assert.Contains(t, flags, flag)
	}
	for _, text := range []string{"podSecurity: none\n", readText(t, "kubernetes/base/policy.yaml"), readText(t, "kubernetes/"+prod+"/policy.yaml")} {
		policy := filepath.Join(t.TempDir(), "policy.yaml")
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
		run := exec.Command(trainyard, "run", "--once", "--repo", filepath.Join(t.TempDir(), "none"), "--state-dir", t.TempDir(), "--policy", policy)
		said, err := run.CombinedOutput()
		require.Error(t, err, "there is no repository")
		assert.Equal(t, strings.HasPrefix(text, "podSecurity: none"), bytes.Contains(said, []byte("--policy")), "%s", said)
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

// TestREADME: labels, objects and files that it names are there.
func TestREADME(t *testing.T) {
	text := readText(t, "README.md")
	labels := []string{
		repo.LabelManagedBy, repo.LabelEnvironment, repo.LabelJob, repo.LabelRun, repo.LabelRole, repo.LabelIndex, repo.LabelRunAttempt, repo.LabelAttempt,
		repo.LabelRepository, repo.Finalizer,
	}
	named := regexp.MustCompile(`(?:trainyard\.dev|app\.kubernetes\.io)/[a-z-]+`).FindAllString(text, -1)
	require.NotEmpty(t, named)
	for _, label := range named {
		assert.True(t, label == "app.kubernetes.io/name" || label == "app.kubernetes.io/instance" || slices.Contains(labels, label), label)
	}
	for _, link := range regexp.MustCompile(`\]\(([^):#]+)\)`).FindAllStringSubmatch(text, -1) {
		_, err := os.Stat(link[1])
		assert.NoError(t, err)
	}
	for _, c := range components {
		assert.Contains(t, text, "`"+c+"`", "a component that nobody is told of")
	}
	assert.Contains(t, text, strings.TrimSpace(second), "what it says of a second environment is not what is tested")
}

// TestDockerfileSeesTheSource: what it does not copy is nothing that it builds from.
func TestDockerfileSeesTheSource(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "../cmd/trainyard", "./image")
	out, err := list.Output()
	require.NoError(t, err)
	needed := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if rest, ours := strings.CutPrefix(strings.TrimSpace(line), "github.com/trainyard/trainyard/"); ours {
			top, _, _ := strings.Cut(rest, "/")
			needed[top] = true
		}
	}
	require.True(t, needed["cmd"] && needed["deploy"])
	for line := range strings.Lines(readText(t, "Dockerfile.dockerignore")) {
		pattern := strings.TrimSpace(line)
		assert.False(t, needed[pattern], "%s is needed", pattern)
		assert.NotContains(t, pattern, "*.md", "the skeleton of a repository has one")
	}
}
