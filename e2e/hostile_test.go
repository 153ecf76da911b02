package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// What a file of a stranger may cost.
const (
	maxTime   = 2 * time.Second // of the processors: the machine may be busy
	maxMemory = 300 << 20
)

// measured runs the program and fails the test if it took too much.
func (w *world) measured(args ...string) (code int, output string) {
	w.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = w.checkout, w.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	state := cmd.ProcessState
	took := state.UserTime() + state.SystemTime()
	memory := int64(state.SysUsage().(*syscall.Rusage).Maxrss)
	if runtime.GOOS == "linux" {
		memory <<= 10
	}
	assert.Less(w.t, took, maxTime, "trainyard %v", args)
	assert.Less(w.t, memory, int64(maxMemory), "trainyard %v", args)
	return state.ExitCode(), out.String()
}

// requirePlain fails if the output shows the inside of the program, or more
// than a person would read.
func requirePlain(t *testing.T, output string) {
	t.Helper()
	for _, inside := range []string{"panic", "goroutine ", "runtime error", "kustomize:", "0x", "%!", "map[", "resid.", "error converting YAML", "cannot unmarshal", "\x1b", "\x00"} {
		require.NotContains(t, output, inside)
	}
	for line := range strings.SplitSeq(output, "\n") {
		require.Less(t, len(line), 1200)
	}
}

// hostileFiles are files that may not do harm, by the job that each defines or
// is named after, and what is said of them. %s is that name.
func hostileFiles() map[string]struct{ text, want string } {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for _, c := range "bcdefghi" {
		laughs += fmt.Sprintf("%[1]c: &%[1]c [%[2]s*%[3]c]\n", c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 8), c-1)
	}
	with := func(old, new string) string {
		return strings.Replace(strings.Replace(job("NAME", "true"), old, new, 1), "NAME", "%s", 1)
	}
	role := func(line string) string { return with("  - name: main\n    t", "  - name: main\n    "+line+"\n    t") }
	env := func(value string) string {
		return with("          command:", "          env: [{name: A, value: "+value+"}]\n          command:")
	}
	return map[string]struct{ text, want string }{
		"unknown-field":   {with("command:", "comand:"), `:12:11: spec.roles[0].template.spec.containers[0].comand: unknown field; did you mean "command"?`},
		"unknown-kind":    {with("TrainingJob", "TraningJob"), `:2:1: kind: trainyard.dev/v1 TraningJob is not a kind that is read; did you mean "TrainingJob"?`},
		"text-for-number": {role(`replicas: "2"`), `:7:5: spec.roles[0].replicas: want a number, not the text "2"`},
		"map-for-list":    {with("[sh, -c, \"true\"]", "{a: b}"), `:12:11: spec.roles[0].template.spec.containers[0].command: want a list, not a map`},
		"half-a-replica":  {role("replicas: 1.5"), "want a whole number, not the number 1.5"},
		"far-too-many":    {role("replicas: 99999999999999999999"), "want a whole number"},
		"duplicate-key":   {with("kind: TrainingJob", "kind: TrainingJob\nkind: TrainingJob"), ":3:1: kind: written twice, first in line 2"},
		"long-role":       {with("name: main\n    t", "name: "+strings.Repeat("r", 64)+"\n    t"), "has 64 characters; 58 are the most"},
		"upper-role":      {with("name: main\n    t", "name: Main\n    t"), "main would do"},
		"large":           {with("spec:", "# "+strings.Repeat("x", 10<<20)+"\nspec:"), ": larger than 1024 KiB (10240 KiB)"},
		"not-utf8":        {with("true", "caf\xe9"), ": a byte that is not UTF-8 (0xe9)"},
		"utf16":           {"\xff\xfea\x00:\x00", ":1:1: the file is UTF-16; save it as UTF-8"},
		"mark":            {"\ufeff" + with("", ""), ":1:1: the file begins with a byte order mark"},
		"nul":             {with("true", "tr\x00ue"), ": a NUL byte (0x00)"},
		"escaped-nul":     {with("true", `tr\0ue`), "has a NUL character"},
		"tab":             {with("    template:", "\ttemplate:"), ":7:1: a tab indents this line"},
		"laughs":          {laughs, ": aliases stand for too much"},
		"self":            {with("spec:\n", "spec: &s\n  x: *s\n"), ":5:6: alias *s refers to itself"},
		"self-list":       {"a: &x [*x]\n", ":1:8: alias *x refers to itself"},
		"self-merge":      {"a: &x\n  <<: *x\n", ":2:7: alias *x refers to itself"},
		"deep-flow":       {"a: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), ":1:1: nested more than 100 levels deep"},
		"deep-open":       {strings.Repeat("{a: ", 200000), ":1:1: nested more than 100 levels deep"},
		"deep-block":      {strings.Repeat("- ", 20000) + "x", ":1:1: nested more than 100 levels deep"},
		"many-documents":  {strings.Repeat("---\n", 250000), ":1001:1: more than 1000 documents in one file"},
		"many-keys":       {strings.Repeat("k: 1\n", 200000), ": a map of 200000 keys is too large"},
		"many-items":      {"a: [" + strings.Repeat("1,", 500000) + "]", ":1:1: apiVersion: required"},
		"long-tag":        {"a: " + strings.Repeat("!", 1000000), "is not understood"},
		"norway":          {env("no"), `want text: unquoted no is read as the boolean false by many YAML readers; write "no" in quotes`},
		"old-octal":       {env("010"), `want text, not the number 8: unquoted 010 is read as the number 8; write "010" in quotes`},
		"grouped":         {env("1_000"), `unquoted 1_000 is read as the number 1000`},
		"infinite":        {env(".inf"), `:12:34: spec.roles[0].template.spec.containers[0].env[0].value: unquoted .inf is read as a number that no field can hold`},
		"merge-conflict":  {"<<<<<<< HEAD\n" + with("", ""), `"<<<<<<<" was left behind by a merge conflict`},
		"secret":          {"apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\n", ":2:1: kind: secrets are never read"},
		"a-list":          {"- a\n- b\n", ":1:1: expected an object with apiVersion and kind, found a list"},
	}
}

// TestHostileFiles: each is told of in its own words and at its own line, costs
// little, and keeps nobody else from running.
func TestHostileFiles(t *testing.T) {
	w := newWorld(t)
	files := hostileFiles()
	for name, c := range files {
		text := strings.Replace(c.text, "%s", name, 1)
		w.write("jobs/"+name+".yaml", text)
		code, out := w.measured("validate", "jobs/"+name+".yaml")
		assert.Equal(t, 1, code, "%s: %s", name, out)
		assert.Contains(t, out, "jobs/"+name+".yaml:", name)
		assert.Contains(t, out, c.want, name)
		if !strings.Contains(c.want, "0x") {
			requirePlain(t, out)
		}
	}
	w.write("jobs/empty.yaml", "")
	w.write("jobs/comment.yaml", "# nothing\n---\n# at all\n")
	w.write("jobs/crlf.yaml", strings.ReplaceAll(job("crlf", "true"), "\n", "\r\n"))
	w.write("jobs/healthy.yaml", job("healthy", "true"))
	w.push("everything at once")
	code, out := w.once()
	require.Equal(t, 1, code, out)
	require.Equal(t, repo.PhaseSucceeded, w.phase("default/healthy"))
	require.Equal(t, repo.PhaseSucceeded, w.phase("default/crlf"))
	_, printed := w.trainyard("validate")
	require.Contains(t, printed, "jobs/empty.yaml: warning: no job is defined here")
	for name := range files {
		rec, ok := w.record("default/" + name)
		require.True(t, ok, name)
		require.Equal(t, repo.PhaseInvalid, rec.Phase, name)
		require.NotEmpty(t, rec.Errors, name)
		for _, e := range rec.Errors {
			require.Contains(t, printed, e+"\n", "validate prints the same")
		}
	}
	tip := w.tip()
	code, _ = w.once()
	require.Equal(t, 1, code)
	require.Equal(t, tip, w.tip(), "the same errors commit nothing")
}

// TestHostileKustomizations: nothing outside the repository is read or asked,
// no tree of bases grows without end, and the words are the same each time.
func TestHostileKustomizations(t *testing.T) {
	w := newWorld(t)
	asked := listener(t)
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(secret, []byte(job("stolen", "true")), 0o600))
	units := map[string]string{}
	for field, text := range map[string]string{
		"resources": "resources: [job.yaml, '%s']", "bases": "resources: [job.yaml]\nbases: ['%s']", "components": "resources: [job.yaml]\ncomponents: ['%s']",
		"patches": "resources: [job.yaml]\npatches: [{path: '%s'}]", "merges": "resources: [job.yaml]\npatchesStrategicMerge: ['%s']",
		"json": "resources: [job.yaml]\npatchesJson6902: [{target: {kind: TrainingJob}, path: '%s'}]", "replacements": "resources: [job.yaml]\nreplacements: [{path: '%s'}]",
		"files": "resources: [job.yaml]\nconfigMapGenerator: [{name: x, files: ['k=%s']}]", "envs": "resources: [job.yaml]\nconfigMapGenerator: [{name: x, envs: ['%s']}]",
		"secrets": "resources: [job.yaml]\nsecretGenerator: [{name: x, files: ['%s']}]", "openapi": "resources: [job.yaml]\nopenapi: {path: '%s'}",
		"crds": "resources: [job.yaml]\ncrds: ['%s']", "generators": "resources: [job.yaml]\ngenerators: ['%s']", "transformers": "resources: [job.yaml]\ntransformers: ['%s']",
		"validators": "resources: [job.yaml]\nvalidators: ['%s']", "helm": "resources: [job.yaml]\nhelmCharts: [{name: x, repo: '%s'}]", "configurations": "resources: [job.yaml]\nconfigurations: ['%s']",
	} {
		for i, address := range []string{asked.url + "/x.yaml", "git@127.0.0.1:a/b", "github.com/a/b", secret, "../../../../../../../../../../" + secret, "git::" + asked.url, "../../.git/config"} {
			units[fmt.Sprintf("%s-%d", field, i)] = fmt.Sprintf(text, address)
		}
	}
	units["cycle"] = "resources: [job.yaml, ../cycle]"
	units["twice"] = "resources: [job.yaml]\nconfigMapGenerator: [{name: a, literals: [x=1]}, {name: a, literals: [x=1]}]"
	units["headless"] = "resources: [job.yaml]\npatches: [{target: {kind: TrainingJob}, patch: '[{op: remove, path: /kind}]'}]"
	units["exponential"] = "resources: [l12]"
	for i := 1; i <= 12; i++ {
		dir := fmt.Sprintf("jobs/exponential/l%d/", i)
		w.write(dir+"kustomization.yaml", "resources: [a, b]")
		w.write(dir+"a/kustomization.yaml", fmt.Sprintf("namePrefix: a-\nresources: [../../l%d]", i-1))
		w.write(dir+"b/kustomization.yaml", fmt.Sprintf("namePrefix: b-\nresources: [../../l%d]", i-1))
	}
	w.write("jobs/exponential/l0/kustomization.yaml", "resources: [../job.yaml]")
	for name, text := range units {
		w.write("jobs/"+name+"/kustomization.yaml", text)
		w.write("jobs/"+name+"/job.yaml", job(name, "true"))
	}
	w.write("jobs/kustomization.yaml.d/kustomization.yaml/job.yaml", job("in-a-directory", "true"))
	w.write("jobs/healthy.yaml", job("healthy", "true"))
	w.push("hostile units")

	code, printed := w.measured("validate")
	require.Equal(t, 1, code)
	requirePlain(t, printed)
	for name := range units {
		require.Contains(t, printed, "jobs/"+name+"/", name)
	}
	require.NotContains(t, printed, "stolen")
	code, out := w.once()
	require.Equal(t, 1, code, out)
	require.Equal(t, repo.PhaseSucceeded, w.phase("default/healthy"))
	require.Equal(t, repo.PhaseSucceeded, w.phase("default/in-a-directory"))
	for name := range units {
		rec, _ := w.record("default/" + name)
		if name == "exponential" && rec.Phase == "" {
			continue // its job has thousands of names
		}
		require.Equal(t, repo.PhaseInvalid, rec.Phase, name)
		for _, e := range rec.Errors {
			require.Contains(t, printed, e+"\n", "validate prints the same")
		}
	}
	tip := w.tip()
	_, _ = w.once()
	require.Equal(t, tip, w.tip(), "the same errors in the same words")
	require.Zero(t, asked.count.Load(), "something was fetched")
}

// TestHostileTree: links, submodules and names that are not the same on every
// system are passed over, and somebody is told; in a checkout as in a commit.
func TestHostileTree(t *testing.T) {
	w := newWorld(t)
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(secret, []byte(job("stolen", "true")), 0o600))
	w.write("jobs/healthy.yaml", job("healthy", "true"))
	w.write("jobs/my 'own' \"job\".yaml", job("quoted", "true"))
	w.write("jobs/größe 中.yaml", job("unicode", "true"))
	w.write("jobs/--help.yaml", job("dashes", "true"))
	w.write("jobs/a\nb.yaml", job("newline", "true"))
	w.write("jobs/a\x1b[31mb.yaml", job("escape", "true"))
	w.write("jobs/unit/kustomization.yaml", "resources: [job.yaml, link.yaml, linked]")
	w.write("jobs/unit/job.yaml", job("unit", "true"))
	for link, to := range map[string]string{
		"jobs/file.yaml": secret, "jobs/dir": filepath.Dir(secret), "jobs/loop": "..", "jobs/self.yaml": "self.yaml",
		"jobs/unit/link.yaml": secret, "jobs/unit/linked": filepath.Dir(secret),
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(w.checkout, link)))
	}
	w.git(w.checkout, "add", "-A")
	w.git(w.checkout, "update-index", "--add", "--cacheinfo", "160000,0123456789012345678901234567890123456789,jobs/module")
	w.git(w.checkout, "commit", "-q", "-m", "a hostile tree")
	w.git(w.checkout, "push", "-q", "origin", "HEAD:main")

	code, printed := w.measured("validate")
	require.Equal(t, 1, code)
	requirePlain(t, printed)
	code, out := w.once("--log-level", "debug")
	require.Equal(t, 1, code, out)
	for _, name := range []string{"healthy", "quoted", "unicode", "dashes"} {
		require.Equal(t, repo.PhaseSucceeded, w.phase("default/"+name), name)
	}
	rec, _ := w.record("default/unit")
	require.Equal(t, repo.PhaseInvalid, rec.Phase)
	require.Contains(t, printed, rec.Errors[0]+"\n")
	for _, name := range []string{"stolen", "newline", "escape"} {
		require.Empty(t, w.phase("default/"+name), name)
	}
	for _, told := range []string{"jobs/file.yaml: warning: is a symbolic link", "jobs/dir: warning: is a symbolic link", "jobs/loop: warning", `"a\nb.yaml" is not read`} {
		require.Contains(t, printed, told)
	}
	require.NotContains(t, out, "\x1b[31mb")
}
