package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asked runs `trainyard run` and returns what the daemon was asked for.
func asked(t *testing.T, b *bench, args ...string) (*runOptions, int, string) {
	var got *runOptions
	b.parts.Daemon = func(_ context.Context, o runOptions, _ streams) error { got = &o; return nil }
	code, _, errs := b.run(append([]string{"run"}, args...)...)
	return got, code, errs
}

func TestRunDefaults(t *testing.T) {
	b := newBench(t)
	got, code, errs := asked(t, b, "--repo", ".")
	require.Zero(t, code, errs)
	assert.Equal(t, b.dir, got.Repo, "paths become absolute")
	assert.Equal(t, "main", got.Branch)
	assert.Equal(t, "trainyard/status", got.StatusBranch)
	assert.Equal(t, "default", got.Environment)
	assert.Equal(t, "local", got.Runner)
	assert.Equal(t, 15*time.Second, got.Poll)
	assert.Equal(t, 10*time.Second, got.PublishInterval)
	assert.Equal(t, "Trainyard", got.AuthorName)
	assert.Equal(t, "trainyard@localhost", got.AuthorEmail)
	assert.Equal(t, filepath.Join(b.vars["HOME"], ".local", "state", "trainyard"), filepath.Dir(got.StateDir))
}

func TestVariables(t *testing.T) {
	b := newBench(t)
	b.vars["TRAINYARD_REPO"] = "https://user:secret@git.example.com/team/jobs"
	b.vars["TRAINYARD_POLL"] = "2s"
	b.vars["TRAINYARD_ONCE"] = "true"
	b.vars["TRAINYARD_ENV"] = "prod"
	b.vars["TRAINYARD_STATUS_BRANCH"] = ""
	b.vars["TRAINYARD_KNOWN_HOSTS"] = "one,two"
	b.write(t, "one", "")
	b.write(t, "two", "")
	got, code, errs := asked(t, b, "--env", "dev")
	require.Zero(t, code, errs)
	assert.Equal(t, "dev", got.Environment, "the flag wins")
	assert.Equal(t, 2*time.Second, got.Poll)
	assert.True(t, got.Once)
	assert.Equal(t, "trainyard/status", got.StatusBranch, "an empty variable is none")
	assert.Equal(t, []string{filepath.Join(b.dir, "one"), filepath.Join(b.dir, "two")}, got.KnownHosts)
	assert.NotContains(t, got.String(), "secret")
	assert.NotContains(t, got.String(), "user", "a user may be a token")
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		vars map[string]string
		want string
	}{
		{[]string{"run"}, nil, "trainyard: run: --repo is missing\nhint: URL or path of the repository; give it as --repo or in TRAINYARD_REPO\n"},
		{[]string{"run", "--repo", ".", "--pol", "1s"}, nil, "trainyard: run: unknown flag: --pol\nhint: see trainyard run --help\n"},
		{[]string{"run", "--repo", ".", "--poll", "fast"}, nil, "--poll"},
		{[]string{"run", "--repo", ".", "--poll", "0s"}, nil, "run: --poll: 0s is not above zero\nhint: write it as in 15s or 2m"},
		{[]string{"run", "--repo", ".", "--runner", "slurm"}, nil, `"slurm" is none of local, kubernetes`},
		{[]string{"run", "--repo", ".", "--env", "Prod/1"}, nil, `--env: "Prod/1" is no name`},
		{[]string{"run", "--repo", ".", "--env", ".."}, nil, `--env: ".." is no name`},
		{[]string{"run", "--repo", ".", "--branch", "refs/heads/main"}, nil, "give its short name"},
		{[]string{"run", "--repo", ".", "--policy", "absent"}, nil, "run: --policy: stat "},
		{[]string{"run", "--repo", ".", "--token-file", "."}, nil, "is a directory"},
		{[]string{"run", "--repo", ".", "--author", "Ada"}, nil, "--author: \"Ada\" is not of the form 'Name <mail>'"},
		{[]string{"run", "--repo", ".", "extra"}, nil, "the form is trainyard run --repo URL [flags]"},
		{[]string{"run", "--repo", "."}, map[string]string{"TRAINYARD_POLL": "often"}, "trainyard: run: TRAINYARD_POLL: "},
		{[]string{"run", "--repo", "."}, map[string]string{"TRAINYARD_RUNNER": "k8s"}, "hint: the variable stands for --runner: where pods run (local|kubernetes)"},
		{[]string{"run", "--repo", "."}, map[string]string{"HOME": ""}, "neither XDG_STATE_HOME nor HOME is set\nhint: give a directory as --state-dir"},
		{[]string{"stat"}, nil, "trainyard: unknown command \"stat\"\nhint: did you mean status?\n"},
		{[]string{"fly"}, nil, "hint: see trainyard --help"},
		{[]string{}, nil, "trainyard: a command is missing"},
		{[]string{"stop"}, nil, "the form is trainyard stop JOB"},
		{[]string{"logs"}, nil, "the form is trainyard logs JOB [TASK]"},
		{[]string{"init"}, nil, "the form is trainyard init DIR"},
		{[]string{"status", "-o", "xml"}, nil, `"xml" is none of table, yaml, json`},
		{[]string{"status"}, nil, "--repo is missing and there is no checkout here"},
		{[]string{"validate", "absent.yaml"}, nil, "absent.yaml: no such file"},
		{[]string{"shim"}, nil, "the form is trainyard shim DIR"},
	} {
		b := newBench(t)
		for k, v := range c.vars {
			b.vars[k] = v
		}
		b.parts.Daemon = func(context.Context, runOptions, streams) error { t.Error("ran"); return nil }
		code, _, errs := b.run(c.args...)
		assert.Equal(t, exitUsage, code, "%v: %s", c.args, errs)
		assert.Contains(t, errs, c.want, "%v", c.args)
	}
}

func TestStateDir(t *testing.T) {
	b := newBench(t)
	sys := system{Env: func(name string) (string, bool) { v, ok := b.vars[name]; return v, ok }, Dir: "/x"}
	of := func(remote, environment string) string {
		dir, err := stateDir(sys, absoluteRepo(remote, sys), environment)
		require.NoError(t, err)
		return dir
	}
	for _, same := range []string{
		"https://git.example.com/team/jobs.git", "https://ada:token@Git.Example.com/team/jobs/", "ssh://git@git.example.com/team/jobs",
		"git@git.example.com:team/jobs.git", "git.example.com:team/jobs", "https://git.example.com:443/team/jobs",
	} {
		assert.Equal(t, of("https://git.example.com/team/jobs", "prod"), of(same, "prod"), same)
	}
	for _, other := range []string{
		"https://git.example.com/team/other", "https://git.example.com:8443/team/jobs", "/team/jobs", "file:///git.example.com/team/jobs",
	} {
		assert.NotEqual(t, of("https://git.example.com/team/jobs", "prod"), of(other, "prod"), other)
	}
	assert.NotEqual(t, of("/a", "prod"), of("/a", "dev"))
	assert.NotEqual(t, of("/a", "prod"), of("/a.git", "prod"), "two directories")
	assert.Equal(t, of("/a", "prod"), of("file:///a/", "prod"))
	assert.Equal(t, of("/x/a", "prod"), of("a", "prod"))
	b.vars["XDG_STATE_HOME"] = "/state"
	assert.Equal(t, "/state/trainyard", filepath.Dir(of("/a", "prod")))
}

func TestReport(t *testing.T) {
	var w bytes.Buffer
	assert.Equal(t, 0, report(&w, nil))
	assert.Equal(t, 7, report(&w, exitCode(7)))
	assert.Empty(t, w.String())
	assert.Equal(t, 1, report(&w, hint(hint(assert.AnError, "inner"), "outer")))
	assert.Equal(t, "trainyard: "+assert.AnError.Error()+"\nhint: outer\nhint: inner\n", w.String())
}

// Every command explains itself, with an example, and no flag takes the name of
// a variable that pods are given.
func TestHelp(t *testing.T) {
	b := newBench(t)
	root := newRootCommand(system{Env: func(string) (string, bool) { return "", false }}, b.parts)
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		assert.NotEmpty(t, cmd.Short, cmd.Name())
		assert.NotEmpty(t, cmd.Example, cmd.Name())
		for _, taken := range []string{"job", "namespace", "run-id", "run-attempt", "role", "index", "task-attempt", "port"} {
			assert.Nil(t, cmd.Flags().Lookup(taken), "%s: pods are given %s", cmd.Name(), variable(taken))
		}
		code, out, _ := b.run(cmd.Name(), "--help")
		assert.Zero(t, code)
		assert.Contains(t, out, cmd.Example)
	}
	code, out, _ := b.run("completion", "bash")
	assert.Zero(t, code)
	assert.Contains(t, out, "bash completion")
	code, _, _ = b.run("help", "status")
	assert.Zero(t, code)
}

func TestLogger(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		format   string
		json     bool
	}{{false, "auto", true}, {true, "auto", false}, {false, "console", false}, {true, "json", true}} {
		var w bytes.Buffer
		log := newLogger(&w, c.terminal, c.format, "warn")
		log.Info().Msg("unseen")
		log.Warn().Msg("seen")
		assert.Equal(t, c.json, bytes.HasPrefix(w.Bytes(), []byte("{")), "%v", c)
		assert.NotContains(t, w.String(), "unseen")
	}
}
