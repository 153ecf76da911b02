package render

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const goodJob = `apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: %s}
spec:
  roles:
  - name: worker
    template: {spec: {containers: [{name: train, image: "busybox:1", command: [echo]}]}}
`

func job(name string) string { return fmt.Sprintf(goodJob, name) }

// all that is wrong, one line each.
func all(defs repo.Definitions) []string {
	var lines []string
	for _, i := range defs.Invalid {
		for _, e := range i.Errors {
			lines = append(lines, e.Error())
		}
	}
	for _, e := range defs.Problems {
		lines = append(lines, e.Error())
	}
	return lines
}

// withGood adds a good unit beside what is tested: it has to be rendered
// whatever happens to the other.
func withGood(files map[string]string) map[string]string {
	files = maps.Clone(files)
	files["jobs/good.yaml"] = job("good")
	return files
}

func requireGood(t *testing.T, defs repo.Definitions) {
	t.Helper()
	require.Len(t, defs.Jobs, 1, "the good unit is rendered, and nothing else")
	require.Equal(t, "good", defs.Jobs[0].Name)
}

// Every field of a kustomization that can name a file, given every kind of
// address that kustomize would fetch, or a path that leads out.
func TestNothingOutsideTheRepositoryIsNamed(t *testing.T) {
	var asked atomic.Int32
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }), ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	defer func() { _ = server.Close(); <-served }()
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(secret, []byte(job("stolen")), 0o600))

	fields := map[string]string{
		"resources":               "resources: [job.yaml, %s]",
		"bases":                   "resources: [job.yaml]\nbases: [%s]",
		"components":              "resources: [job.yaml]\ncomponents: [%s]",
		"patches":                 "resources: [job.yaml]\npatches: [{path: %s}]",
		"patchesStrategicMerge":   "resources: [job.yaml]\npatchesStrategicMerge: [%s]",
		"patchesJson6902":         "resources: [job.yaml]\npatchesJson6902: [{target: {kind: TrainingJob}, path: %s}]",
		"replacements":            "resources: [job.yaml]\nreplacements: [{path: %s}]",
		"configMapGenerator":      "resources: [job.yaml]\nconfigMapGenerator: [{name: x, files: [%s]}]",
		"configMapGenerator envs": "resources: [job.yaml]\nconfigMapGenerator: [{name: x, envs: [%s]}]",
		"configMapGenerator env":  "resources: [job.yaml]\nconfigMapGenerator: [{name: x, env: %s}]",
		"openapi":                 "resources: [job.yaml]\nopenapi: {path: %s}",
		"crds":                    "resources: [job.yaml]\ncrds: [%s]",
		"configurations":          "resources: [job.yaml]\nconfigurations: [%s]",
		"transformers":            "resources: [job.yaml]\ntransformers: [%s]",
		"generators":              "resources: [job.yaml]\ngenerators: [%s]",
		"validators":              "resources: [job.yaml]\nvalidators: [%s]",
		"secretGenerator":         "resources: [job.yaml]\nsecretGenerator: [{name: x, files: [%s]}]",
		"helmCharts":              "resources: [job.yaml]\nhelmCharts: [{name: x, repo: %s}]",
	}
	base := "http://" + listener.Addr().String()
	addresses := []string{
		base + "/job.yaml", strings.Replace(base, "http:", "https:", 1) + "/job.yaml", "HTTP://127.0.0.1/x", "http://user:pw@169.254.169.254/latest",
		"ssh://git@127.0.0.1/a/b", "git@127.0.0.1:a/b", "user@host.example:a/b", "git::" + base + "/a/b", "ext::sh -c id", "file://" + secret,
		"github.com/kubernetes-sigs/kustomize//examples", "GitHub.com/a/b", "www.github.com/a/b", "gh:a/b", "./github.com/a/b?ref=main", "a/b?ref=main",
		"git.example.com:a/b.git", secret, "/proc/self/environ", "~/secret.yaml", "../../../secret.yaml", "a/../../../../etc/passwd",
		`..\..\secret.yaml`, "job.yaml//", ".git/config", ".GIT/config", strings.Repeat("a/", 2500) + "x", "link.yaml", "missing.yaml",
		`"job.yaml\0"`, `"a\nb"`, "%2e%2e/secret", "",
	}
	for field, text := range fields {
		for _, address := range addresses {
			name := field + " " + shorten(address)
			if address == "" {
				if field == "configMapGenerator env" {
					continue // the same as none
				}
				address = `""`
			}
			defs := render(t, withGood(map[string]string{
				"jobs/bad/kustomization.yaml": fmt.Sprintf(text, address),
				"jobs/bad/job.yaml":           job("bad"),
				"secret.yaml":                 job("outside"),
			}))
			require.Len(t, defs.Jobs, 1, name)
			if assert.NotEmpty(t, defs.Invalid, name) {
				assert.Equal(t, "jobs/bad/kustomization.yaml", defs.Invalid[0].Errors[0].File, "%s: %v", name, defs.Invalid[0].Errors[0])
			}
			for _, line := range all(defs) {
				assert.NotContains(t, line, "kustomize:", "%s reached kustomize", name)
			}
		}
	}
	require.Zero(t, asked.Load(), "something was fetched")
}

func TestHostileInputs(t *testing.T) {
	exponential := map[string]string{"jobs/bad/kustomization.yaml": "resources: [l10/a, l10/b]"}
	for i := 10; i >= 0; i-- {
		for _, side := range []string{"a", "b"} {
			dir := fmt.Sprintf("jobs/bad/l%d/%s", i, side)
			next := fmt.Sprintf("../../l%d", i-1)
			exponential[dir+"/kustomization.yaml"] = fmt.Sprintf("namePrefix: %s-\nresources: [%s/a, %s/b]", side, next, next)
		}
	}
	exponential["jobs/bad/l-1/a/kustomization.yaml"] = "resources: [job.yaml]"
	exponential["jobs/bad/l-1/b/kustomization.yaml"] = "resources: [job.yaml]"
	exponential["jobs/bad/l-1/a/job.yaml"], exponential["jobs/bad/l-1/b/job.yaml"] = job("bad"), job("bad")

	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	kustomized := func(kustomization string, more ...string) map[string]string {
		files := map[string]string{"jobs/bad/kustomization.yaml": kustomization, "jobs/bad/job.yaml": job("bad")}
		for i := 0; i < len(more); i += 2 {
			files["jobs/bad/"+more[i]] = more[i+1]
		}
		return files
	}
	copies := "[{op: add, path: /spec/x, value: [" + strings.Repeat("aaaaaaaa, ", 1000) + "a]}"
	for range 40 {
		copies += ", {op: copy, from: /spec, path: /spec/y}"
	}
	tests := map[string]struct {
		files map[string]string
		want  string // in one of the errors
	}{
		"self alias in a job file":   {map[string]string{"jobs/bad.yaml": "a: &x [*x]"}, "bad.yaml:1"},
		"self alias in a resource":   {kustomized("resources: [job.yaml, x.yaml]", "x.yaml", "a: &x [*x]"), "jobs/bad/x.yaml:1"},
		"self alias in a patch":      {kustomized("resources: [job.yaml]\npatches: [{path: x.yaml}]", "x.yaml", "a: &x [*x]"), "jobs/bad/x.yaml:1"},
		"self alias, inline patch":   {kustomized("resources: [job.yaml]\npatches: [{patch: \"a: &x [*x]\"}]"), "kustomization.yaml:2"},
		"self alias in patchesSM":    {kustomized("resources: [job.yaml]\npatchesStrategicMerge: [\"a: &x\\n- *x\"]"), "kustomization.yaml:2"},
		"self alias through a merge": {map[string]string{"jobs/bad.yaml": "a: &x\n  <<: *x"}, "bad.yaml:2"},
		"self alias, kustomization":  {kustomized("resources: &x [*x]"), "kustomization.yaml:1"},
		"self alias in replacements": {kustomized("resources: [job.yaml]\nreplacements: [{path: x.yaml}]", "x.yaml", "a: &x [*x]"), "jobs/bad/x.yaml:1"},
		"alias bomb":                 {map[string]string{"jobs/bad.yaml": bomb}, "aliases stand for too much"},
		"alias bomb in a resource":   {kustomized("resources: [job.yaml, x.yaml]", "x.yaml", bomb), "jobs/bad/x.yaml"},
		"alias bomb, kustomization":  {kustomized(bomb), "jobs/bad/kustomization.yaml"},
		"nested 20,000 deep":         {map[string]string{"jobs/bad.yaml": strings.Repeat("[", 20000)}, "deep"},
		"nested 20,000 deep, json":   {map[string]string{"jobs/bad.json": strings.Repeat(`{"a":`, 20000)}, "deep"},
		"10 MiB":                     {map[string]string{"jobs/bad.yaml": "a: " + strings.Repeat("x", 10<<20)}, "larger than"},
		"10 MiB resource":            {kustomized("resources: [x.yaml]", "x.yaml", "a: "+strings.Repeat("x", 10<<20)), "larger than"},
		"10 MiB of data":             {kustomized("resources: [job.yaml]\nconfigMapGenerator: [{name: x, files: [x]}]", "x", strings.Repeat("x", 10<<20)), "larger than"},
		"too many documents":         {map[string]string{"jobs/bad.yaml": strings.Repeat("---\na: b\n", 5000)}, "documents"},
		"not UTF-8":                  {map[string]string{"jobs/bad.yaml": "a: \xff\xfe"}, "UTF-8"},
		"exponential bases":          {exponential, "the unit is too large"},
		"base that is itself":        {kustomized("resources: [.]"), "cycle"},
		"base above":                 {kustomized("resources: [..]"), "cycle"},
		"cycle of two": {map[string]string{
			"jobs/bad/kustomization.yaml": "resources: [../../lib/a]", "lib/a/kustomization.yaml": "resources: [../b]", "lib/b/kustomization.yaml": "resources: [../a]",
		}, "cycle"},
		"cycle through components": {map[string]string{
			"jobs/bad/kustomization.yaml": "components: [../../lib/a]", "lib/a/kustomization.yaml": "kind: Component\ncomponents: [../b]", "lib/b/kustomization.yaml": "kind: Component\ncomponents: [../a]",
		}, "cycle"},
		"copies that double":        {kustomized("resources: [job.yaml]\npatches: [{target: {kind: TrainingJob}, patch: '" + copies + "]'}]"), "too many operations"},
		"a million operations":      {kustomized("resources: [job.yaml]\npatches: [{target: {kind: TrainingJob}, path: p.json}]", "p.json", "["+strings.Repeat(`{"op":"test","path":"/kind","value":"x"},`, 20000)+"]"), "too many operations"},
		"function in an annotation": {kustomized("resources: [x.yaml]", "x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  annotations:\n    config.kubernetes.io/function: 'container: {image: evil}'\n"), "x.yaml:6"},
		"marks of kustomize":        {kustomized("resources: [x.yaml]", "x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  annotations: {internal.config.kubernetes.io/previousNames: a}\n"), "x.yaml:5"},
		"function, merged in":       {kustomized("resources: [x.yaml]", "x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  annotations:\n    <<: {config.kubernetes.io/function: x}\n"), "refused"},
		"other spelling of a field": {kustomized("Resources: [https://example.com]"), "Resources"},
		"other spelling below":      {kustomized("resources: [job.yaml]\npatches: [{Path: https://example.com}]"), "Path"},
		"inventory":                 {kustomized("resources: [job.yaml]\ninventory: {}"), "inventory"},
		"two kustomizations":        {kustomized("resources: [job.yaml]", "kustomization.yml", "resources: [job.yaml]"), "only one"},
		"empty kustomization":       {kustomized("# nothing"), "kustomization.yaml:1"},
		"kustomization is a list":   {kustomized("[]"), "map"},
		"namespace n":               {kustomized("resources: [job.yaml]\nnamespace: n"), `kustomization.yaml:2:1: namespace: want text: unquoted n`},
		"newTag y":                  {kustomized("resources: [job.yaml]\nimages: [{name: a, newTag: y}]"), `newTag: want text: unquoted y`},
		"newTag 010":                {kustomized("resources: [job.yaml]\nimages: [{name: a, newTag: 010}]"), `newTag: want text`},
		"namePrefix is a number":    {kustomized("resources: [job.yaml]\nnamePrefix: 7"), `namePrefix: want text`},
		"bad regular expression":    {kustomized("resources: [job.yaml]\npatches: [{target: {kind: '('}, patch: '[]'}]"), "regular expression"},
		"bad label selector":        {kustomized("resources: [job.yaml]\npatches: [{target: {labelSelector: '=='}, patch: '[]'}]"), "selector"},
		"secret":                    {map[string]string{"jobs/bad.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: bad}\nstringData: {a: b}\n"}, "secrets are never read"},
		"list":                      {map[string]string{"jobs/bad.yaml": "apiVersion: v1\nkind: List\nitems: []\n"}, "lists are not read"},
		"list with a bad item":      {map[string]string{"jobs/bad.yaml": "apiVersion: v1\nkind: List\nitems: x\n"}, "List needs a list"},
		"binary tag":                {map[string]string{"jobs/bad.yaml": "a: !!binary aGVsbG8="}, "tag"},
		"integer keys":              {map[string]string{"jobs/bad.yaml": "1: a"}, "key must be text"},
		"duplicate keys":            {map[string]string{"jobs/bad.yaml": "a: 1\na: 2"}, "twice"},
		"undefined alias":           {map[string]string{"jobs/bad.yaml": "<<: *x"}, "bad.yaml"},
		"secret made by a patch": {kustomized("resources: [job.yaml, x.yaml]\npatches: [{target: {kind: ConfigMap}, options: {allowKindChange: true}, patch: '[{op: replace, path: /kind, value: Secret}]'}]",
			"x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"), "secrets are never read"},
		"file outside of a kustomization": {kustomized("resources: [../../x.yaml]"), "kustomization.yaml:1"},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			started := time.Now()
			defs := render(t, withGood(tests[name].files))
			requireGood(t, defs)
			lines := all(defs)
			require.NotEmpty(t, lines)
			require.Contains(t, strings.Join(lines, "\n"), tests[name].want)
			require.NotEmpty(t, defs.Invalid)
			require.Less(t, time.Since(started), time.Minute) // what grows without bound takes longer than that
			for _, line := range lines {
				require.Less(t, len(line), 1000)
			}
		})
	}
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	require.NoError(t, os.WriteFile(outside, []byte(job("stolen")), 0o600))
	root := t.TempDir()
	for name, text := range withGood(map[string]string{
		"jobs/a/kustomization.yaml": "resources: [link.yaml]",
		"jobs/b/kustomization.yaml": "resources: [linked]",
		".git/config":               "secret",
	}) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	for link, to := range map[string]string{
		"jobs/link.yaml": outside, "jobs/a/link.yaml": outside, "jobs/b/linked": filepath.Dir(outside), "jobs/up": "../..",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
	}
	s := Dir(os.DirFS(root), "")
	defs, err := New(environmentOf).Render(context.Background(), s)
	require.NoError(t, err)
	requireGood(t, defs)
	require.Len(t, defs.Invalid, 2)
	for _, i := range defs.Invalid {
		require.Contains(t, i.Errors[0].Message, "no such file")
	}
	require.Empty(t, s.Hash(".git/config"))
	require.Equal(t, []string{
		"jobs/link.yaml: warning: is a symbolic link, which is not followed: put what it leads to in its place",
		"jobs/up: warning: is a symbolic link, which is not followed: put what it leads to in its place",
	}, all(repo.Definitions{Problems: defs.Problems}), "somebody may wait for them")
	require.NotEqual(t, s.Hash("jobs/link.yaml"), s.Hash("jobs/good.yaml"))
	require.Empty(t, s.Hash("jobs/up/trainyard.yaml"))
	_, err = s.Open("jobs/link.yaml")
	require.Error(t, err)
	_, err = s.Open("jobs/up/x")
	require.Error(t, err)
}

// Jobs without their overlay, or without the repository's settings, would be
// others: a link in their place keeps all of them from running.
func TestALinkInPlaceOfOverlayOrSettings(t *testing.T) {
	for link, want := range map[string]string{
		"overlays":                "overlays: is no directory; symbolic links are not followed",
		"overlays/prod":           "overlays/prod: is no directory; symbolic links are not followed",
		"trainyard.yaml":          "trainyard.yaml: is no regular file; symbolic links are not followed",
		"trainyard.yaml/dir/file": "trainyard.yaml: is no regular file; symbolic links are not followed",
	} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "jobs"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(link)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "jobs", "good.yaml"), []byte(job("good")), 0o600))
		require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(root, link)))
		defs, err := New(environmentOf).Render(context.Background(), Dir(os.DirFS(root), ""))
		require.NoError(t, err)
		require.Empty(t, defs.Jobs, link)
		require.Contains(t, all(defs), want)
	}
}

// A name that not every system takes for the same is passed over, in a working
// tree as in a commit, and somebody is told.
func TestStrangeNamesArePassedOver(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "jobs"), 0o755))
	for _, name := range []string{"good.yaml", "a\nb.yaml", "a\x1b[31mb.yaml", "a\\b.yaml", "a\xffb.yaml", "BIG.YAML", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(root, "jobs", name), []byte(job("good")), 0o600); err != nil && name != "a\xffb.yaml" {
			require.NoError(t, err)
		}
	}
	defs, err := New(environmentOf).Render(context.Background(), Dir(os.DirFS(root), ""))
	require.NoError(t, err)
	requireGood(t, defs)
	lines := strings.Join(all(defs), "\n")
	for _, name := range []string{`"a\nb.yaml" is not read`, `"a\x1b[31mb.yaml" is not read`, `"a\\b.yaml" is not read`, `jobs/BIG.YAML: warning: is not read`} {
		require.Contains(t, lines, name)
	}
	require.NotContains(t, lines, "\x1b")
	require.NotContains(t, lines, "notes.txt")
}
