package render

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// counting counts what is read of a snapshot.
type counting struct {
	Snapshot
	mu    sync.Mutex
	files []string
	lists []string
}

func (c *counting) Open(name string) (fs.File, error) {
	c.mu.Lock()
	c.files = append(c.files, name)
	c.mu.Unlock()
	return c.Snapshot.Open(name)
}

func (c *counting) ReadDir(name string) ([]fs.DirEntry, error) {
	c.mu.Lock()
	c.lists = append(c.lists, name)
	c.mu.Unlock()
	return c.Snapshot.ReadDir(name)
}

// A commit renders again what it touches, and reads nothing else.
func TestOnlyWhatChangedIsRendered(t *testing.T) {
	files := map[string]string{
		"trainyard.yaml":                   "apiVersion: trainyard.dev/v1\nkind: Repository\n",
		"jobs/a.yaml":                      job("a"),
		"jobs/deep/b.yaml":                 job("b"),
		"jobs/unit/kustomization.yaml":     "resources: [job.yaml]\ncomponents: [../../lib]\nconfigMapGenerator: [{name: x, files: [data]}]",
		"jobs/unit/job.yaml":               job("c"),
		"jobs/unit/data":                   "1",
		"lib/kustomization.yaml":           "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: lib-",
		"overlays/prod/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -prod",
		"README.md":                        "hello",
	}
	r := New(environmentOf)
	last := map[string]string{} // digests by job
	step := func(change map[string]string, wantRead []string, wantJobs ...string) {
		t.Helper()
		for name, text := range change {
			if files[name] = text; text == "" {
				delete(files, name)
			}
		}
		c := &counting{Snapshot: snapshotOf(files)}
		defs, err := r.Render(context.Background(), c)
		require.NoError(t, err)
		require.Empty(t, all(defs))
		if len(change) == 0 && len(last) > 0 {
			require.Empty(t, c.lists, "nothing is listed again")
		}
		var names []string
		for _, j := range defs.Jobs {
			names = append(names, j.Name)
			last[j.Name] = j.Digest
		}
		require.Equal(t, wantJobs, names)
		opened := map[string]bool{}
		for _, f := range c.files {
			if strings.Contains(f, ".") && !strings.HasSuffix(f, "prod") || f == "jobs/unit/data" {
				opened[f] = true
			}
		}
		want := map[string]bool{}
		for _, f := range wantRead {
			want[f] = true
		}
		require.Equal(t, want, opened)

		fresh, err := New(environmentOf).Render(context.Background(), snapshotOf(files))
		require.NoError(t, err)
		require.Equal(t, describe(t, fresh), describe(t, defs), "a cached rendering is the same as a first one")
	}
	jobs := []string{"a-prod", "b-prod", "lib-c-prod"}
	unit := []string{"jobs/unit/kustomization.yaml", "jobs/unit/job.yaml", "jobs/unit/data", "lib/kustomization.yaml"}
	step(nil, append([]string{"trainyard.yaml", "jobs/a.yaml", "jobs/deep/b.yaml", "overlays/prod/kustomization.yaml"}, unit...), jobs...)
	step(nil, nil, jobs...)
	step(map[string]string{"README.md": "world"}, nil, jobs...)
	step(map[string]string{"jobs/a.yaml": job("a") + "# comment\n"}, []string{"jobs/a.yaml"}, jobs...)
	step(map[string]string{"jobs/unit/data": "2"}, unit, jobs...)
	step(map[string]string{"lib/kustomization.yaml": strings.Replace(files["lib/kustomization.yaml"], "lib-", "lob-", 1)}, unit, "a-prod", "b-prod", "lob-c-prod")
	step(map[string]string{"jobs/new.yaml": job("new")}, []string{"jobs/new.yaml"}, "a-prod", "b-prod", "lob-c-prod", "new-prod")
	step(map[string]string{"jobs/new.yaml": ""}, nil, "a-prod", "b-prod", "lob-c-prod")
	// A file that was missed when the unit was read: its own overlay.
	step(map[string]string{"jobs/unit/overlays/prod/kustomization.yaml": "resources: [job.yaml]", "jobs/unit/overlays/prod/job.yaml": job("d")},
		[]string{"jobs/unit/overlays/prod/kustomization.yaml", "jobs/unit/overlays/prod/job.yaml"}, "a-prod", "b-prod", "d-prod")
	// Settings that no job takes anything from, and then one.
	step(map[string]string{"trainyard.yaml": files["trainyard.yaml"] + "status: {shards: 4}\n"}, []string{"trainyard.yaml"}, "a-prod", "b-prod", "d-prod")
	everything := []string{"jobs/a.yaml", "jobs/deep/b.yaml", "jobs/unit/overlays/prod/kustomization.yaml", "jobs/unit/overlays/prod/job.yaml"}
	step(map[string]string{"trainyard.yaml": files["trainyard.yaml"] + "defaults: {deadline: 1h}\n"}, append([]string{"trainyard.yaml"}, everything...), "a-prod", "b-prod", "d-prod")
	step(map[string]string{"overlays/prod/kustomization.yaml": ""}, append([]string{"trainyard.yaml"}, everything...), "a", "b", "d")
}

func TestOneBadFileAmongAHundred(t *testing.T) {
	files := map[string]string{}
	for i := range 99 {
		files[fmt.Sprintf("jobs/team%d/job%02d.yaml", i%7, i)] = job(fmt.Sprintf("job%02d", i))
	}
	r := New(environmentOf)
	_, err := r.Render(context.Background(), snapshotOf(files))
	require.NoError(t, err)
	files["jobs/bad.yaml"] = strings.Replace(job("bad"), "roles:", "rolls:", 1)
	defs, err := r.Render(context.Background(), snapshotOf(files))
	require.NoError(t, err)
	require.Len(t, defs.Jobs, 99)
	require.Len(t, defs.Invalid, 1)
	require.Equal(t, "default/bad", defs.Invalid[0].Key.String())
	require.Equal(t, repo.Source{Unit: "jobs/bad.yaml", File: "jobs/bad.yaml", Line: 1}, defs.Invalid[0].Source)
	require.Contains(t, strings.Join(all(defs), "\n"), "jobs/bad.yaml:5:3: spec.rolls: unknown field")
}

// With settings or an overlay that cannot be read nothing is known of what jobs
// should be: they stay as they were, all of them.
func TestBrokenSettingsAndOverlays(t *testing.T) {
	jobs := map[string]string{"jobs/a.yaml": job("a"), "jobs/b/kustomization.yaml": "resources: [job.yaml]", "jobs/b/job.yaml": job("b")}
	header := "apiVersion: trainyard.dev/v1\nkind: Repository\n"
	component := "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	tests := map[string]struct{ file, text, want string }{
		"unknown setting":     {"trainyard.yaml", header + "default: {}\n", `trainyard.yaml:3:1: default: unknown field; did you mean "defaults"?`},
		"kind":                {"trainyard.yaml", "apiVersion: trainyard.dev/v1\nkind: Repo\n", `trainyard.yaml:2:1: kind: want Repository, not "Repo"`},
		"environment":         {"trainyard.yaml", header + "environments: {dev: {}, prd: {}}\n", `trainyard.yaml:3:1: environments: environment "prod" is not among them: dev, prd; did you mean "prd"?`},
		"duration":            {"trainyard.yaml", header + "defaults: {deadline: 12}\n", `want a duration like 90s, 30m, 12h or 2d, not 12`},
		"onChange":            {"trainyard.yaml", header + "defaults: {onChange: restart}\n", `defaults.onChange: "restart" is not one of Finish, Restart, Ignore`},
		"shards":              {"trainyard.yaml", header + "status: {shards: -1}\n", `status.shards: want a number from 0 to 256, not -1`},
		"maxShare":            {"trainyard.yaml", header + "removal: {maxShare: 50}\n", `removal.maxShare: want a number above 0 and at most 1, not 50`},
		"rules":               {"trainyard.yaml", header + "failureRules: [{exitCodes: [1], class: Transiet}]\n", `trainyard.yaml:3`},
		"no YAML":             {"trainyard.yaml", "]", `trainyard.yaml:1`},
		"two documents":       {"trainyard.yaml", header + "---\n" + header, `one document`},
		"overlay: no target":  {"overlays/prod/kustomization.yaml", component + "patches: [{patch: '{apiVersion: v1, kind: Pod, metadata: {name: x}}'}]", `overlays/prod/kustomization.yaml:3:11: patches[0]: a patch of an environment's overlay needs a target`},
		"overlay: kind":       {"overlays/prod/kustomization.yaml", "resources: []", `must be a Component: write "apiVersion: kustomize.config.k8s.io/v1alpha1" and "kind: Component"`},
		"overlay: unknown":    {"overlays/prod/kustomization.yaml", component + "patchs: []", `patchs: unknown field; did you mean "patches"?`},
		"overlay: no file":    {"overlays/prod/readme.txt", "", `overlays/prod: there is no kustomization.yaml in it`},
		"overlay: URL":        {"overlays/prod/kustomization.yaml", component + "resources: [https://example.com/x.yaml]", `is a URL`},
		"overlay: unreadable": {"overlays/prod/kustomization.yaml", "]", `overlays/prod/kustomization.yaml:1`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(jobs)
			files[test.file] = test.text
			defs := render(t, files)
			require.Empty(t, defs.Jobs)
			require.Len(t, defs.Invalid, 2)
			require.Equal(t, []string{"a", "b"}, []string{defs.Invalid[0].Name, defs.Invalid[1].Name})
			require.NotEmpty(t, defs.Problems)
			require.Contains(t, defs.Problems[0].Error(), test.want)
			require.Contains(t, defs.Invalid[0].Errors[0].Error(), test.want)
		})
	}
}

func TestSettings(t *testing.T) {
	defs := render(t, map[string]string{"jobs/a.yaml": job("a"), "trainyard.yaml": `apiVersion: trainyard.dev/v1
kind: Repository
metadata: {name: ours}
environments: {prod: {}, dev: }
defaults: {namespace: ml, onChange: Restart, deadline: 12h, cleanup: {pods: Running, after: 5m}}
failureRules:
- {exitCodes: [42, 200-209], class: Transient}
status: {shards: 16}
removal: {maxShare: 0.2, confirm: abc}
`})
	require.Empty(t, all(defs))
	want := repo.Settings{
		Defaults: repo.Defaults{
			Namespace: "ml", OnChange: repo.Restart, Deadline: 12 * time.Hour,
			Cleanup: &repo.Cleanup{Pods: repo.CleanupRunning, After: 5 * time.Minute},
		},
		Rules:   []repo.FailureRule{{ExitCodes: []repo.CodeRange{{Min: 42, Max: 42}, {Min: 200, Max: 209}}, Class: repo.Transient}},
		Shards:  16,
		Removal: repo.Removal{MaxShare: 0.2, Confirm: "abc"},
	}
	require.Equal(t, want.Defaults, defs.Settings.Defaults)
	require.Equal(t, want.Rules[0].ExitCodes, defs.Settings.Rules[0].ExitCodes)
	require.Equal(t, want.Removal, defs.Settings.Removal)
	require.Equal(t, 16, defs.Settings.Shards)
	require.Equal(t, "ml/a", defs.Jobs[0].Key.String())
	require.Equal(t, 12*time.Hour, defs.Jobs[0].Deadline)
	require.Equal(t, repo.Restart, defs.Jobs[0].OnChange)
}

func TestRenderPaths(t *testing.T) {
	s := snapshotOf(map[string]string{
		"a.yaml": job("a"), "more/b.yaml": job("b"), "more/c.json": "{", "unit/kustomization.yaml": "resources: [job.yaml]", "unit/job.yaml": job("u"),
		"trainyard.yaml":            "apiVersion: trainyard.dev/v1\nkind: Repository\n",
		"jobs/x/kustomization.yaml": "resources: [base]", "jobs/x/base/kustomization.yaml": "resources: [job.yaml]", "jobs/x/base/job.yaml": job("x"),
		"overlays/prod/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -prod",
	})
	tests := map[string]struct {
		paths []string
		want  []string
	}{
		"a file":                   {[]string{"./a.yaml", "a.yaml"}, []string{"a-prod"}},
		"a directory":              {[]string{"more"}, []string{"b-prod", "!c"}},
		"a unit":                   {[]string{"unit"}, []string{"u-prod"}},
		"its kustomization":        {[]string{"unit/kustomization.yaml"}, []string{"u-prod"}},
		"a file of a unit in jobs": {[]string{"jobs/x/base/job.yaml"}, []string{"x-prod"}},
		"everything":               {[]string{".", "overlays/prod", "trainyard.yaml"}, []string{"x-prod"}},
		"nothing":                  {[]string{"absent"}, []string{"?absent: no such file or directory"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			defs, err := New(environmentOf).RenderPaths(context.Background(), s, test.paths...)
			require.NoError(t, err)
			var got []string
			for _, j := range defs.Jobs {
				got = append(got, j.Name)
			}
			for _, i := range defs.Invalid {
				got = append(got, "!"+i.Name)
			}
			for _, e := range defs.Problems {
				got = append(got, "?"+e.Error())
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := New(environmentOf).Render(ctx, snapshotOf(map[string]string{"jobs/a.yaml": job("a")}))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnEmptyRepository(t *testing.T) {
	defs := render(t, nil)
	require.Empty(t, defs.Jobs)
	require.Empty(t, all(defs))
}

// Durations of the settings are written as those of jobs.
func TestDurationsOfSettings(t *testing.T) {
	defs := render(t, withGood(map[string]string{"trainyard.yaml": "apiVersion: trainyard.dev/v1\nkind: Repository\ndefaults: {deadline: 2d, cleanup: {after: 1d12h}}\n"}))
	requireGood(t, defs)
	require.Equal(t, 48*time.Hour, defs.Jobs[0].Deadline)
	require.Equal(t, 36*time.Hour, defs.Jobs[0].Cleanup.After)
}

// The place of a bad job is that of its definition, wherever its errors are.
func TestTheSourceOfABadJob(t *testing.T) {
	defs := render(t, map[string]string{
		"jobs/b/kustomization.yaml": "resources: [job.yaml]", "jobs/b/job.yaml": "# one\n" + job("b"), "jobs/a.yaml": "# one\n# two\n" + job("a"),
		"overlays/prod/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\npatchs: []\n",
	})
	require.Len(t, defs.Invalid, 2)
	require.Equal(t, repo.Source{Unit: "jobs/a.yaml", File: "jobs/a.yaml", Line: 3}, defs.Invalid[0].Source)
	require.Equal(t, repo.Source{Unit: "jobs/b", File: "jobs/b/job.yaml", Line: 2}, defs.Invalid[1].Source)
	require.Equal(t, "overlays/prod/kustomization.yaml", defs.Invalid[0].Errors[0].File)
}
