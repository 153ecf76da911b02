package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: test
contexts:
- {name: test, context: {cluster: one, user: ada}}
- {name: prod, context: {cluster: two, user: ada, namespace: training}}
clusters:
- {name: one, cluster: {server: "https://one.example.com"}}
- {name: two, cluster: {server: "https://two.example.com"}}
users:
- {name: ada, user: {token: s3cret}}
`

func TestClusterFlags(t *testing.T) {
	b := newBench(t)
	b.write(t, "kube.yaml", kubeconfig)
	got, code, errs := asked(t, b, "--repo", ".", "--runner", "kubernetes", "--kubeconfig", "kube.yaml", "--context", "prod",
		"--namespaces", "nlp,vision", "--lease-namespace", "system", "--gang", "volcano")
	require.Zero(t, code, errs)
	assert.Equal(t, clusterOptions{
		Kubeconfig: []string{filepath.Join(b.dir, "kube.yaml")}, Context: "prod", Namespaces: []string{"nlp", "vision"},
		Gang: "volcano", file: filepath.Join(b.dir, "kube.yaml"),
	}, got.Cluster)
	assert.Equal(t, kubernetes.GangVolcano, got.Cluster.options(nil, "prod").Gang)
	assert.Equal(t, "system", got.LeaseNamespace)
	assert.False(t, got.NoLease)
	config, namespace, err := got.Cluster.connect()
	require.NoError(t, err)
	assert.Equal(t, "https://two.example.com", config.Host)
	assert.Equal(t, "training", namespace)

	b.vars = map[string]string{
		"HOME": b.vars["HOME"], "TRAINYARD_RUNNER": "kubernetes", "TRAINYARD_KUBECONFIG": "kube.yaml", "TRAINYARD_NAMESPACES": "a,b", "TRAINYARD_NO_LEASE": "true", "TRAINYARD_GANG": "none",
	}
	got, code, errs = asked(t, b, "--repo", ".")
	require.Zero(t, code, errs)
	assert.Equal(t, []string{"a", "b"}, got.Cluster.Namespaces)
	assert.True(t, got.NoLease)
	assert.Equal(t, "none", got.Cluster.Gang)
	got, _, _ = asked(t, newBench(t), "--repo", ".", "--runner", "kubernetes")
	assert.Empty(t, got.Cluster.options(nil, "prod").Gang, "auto is the runner's own choice")
}

// The kubeconfig is found as kubectl finds it; without one the process is
// taken to run in the cluster.
func TestFindsKubeconfig(t *testing.T) {
	b := newBench(t)
	found := func() []string {
		got, code, errs := asked(t, b, "--repo", ".", "--runner", "kubernetes")
		require.Zero(t, code, errs)
		return got.Cluster.Kubeconfig
	}
	assert.Empty(t, found())
	b.write(t, "home/.kube/config", kubeconfig)
	b.vars["HOME"] = filepath.Join(b.dir, "home")
	assert.Equal(t, []string{filepath.Join(b.dir, "home", ".kube", "config")}, found())
	b.write(t, "one", "")
	b.write(t, "two", "")
	b.vars["KUBECONFIG"] = "one:absent:" + filepath.Join(b.dir, "two")
	assert.Equal(t, []string{filepath.Join(b.dir, "one"), filepath.Join(b.dir, "two")}, found())
}

func TestKubeconfigThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ text, context, want string }{
		{"s3cret", "", "couldn't get version/kind"},
		{"apiVersion: v1\nkind: Config\nusers: s3cret\n", "", "cannot unmarshal"},
		{"apiVersion: v1\nkind: Config\nusers:\n- {name: a, user: {client-key-data: \"s3cret!\"}}\n", "", "illegal base64"},
		{"token: 's3cret", "", "yaml: "},
		{"apiVersion: v1\nkind: Config\n", "", "has no current context\nhint: choose one with --context; its contexts: none\n"},
		{kubeconfig, "staging", "has no context \"staging\"\nhint: its contexts: prod, test\n"},
		{"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\nusers: [{name: c, user: {token: s3cret}}]\n", "", "invalid configuration: "},
	} {
		b := newBench(t)
		b.write(t, "kube.yaml", c.text)
		b.parts = connected()
		code, _, errs := b.run("run", "--repo", ".", "--runner", "kubernetes", "--kubeconfig", "kube.yaml", "--context", c.context)
		assert.Equal(t, exitProblems, code)
		assert.Contains(t, errs, c.want)
		assert.Contains(t, errs, filepath.Join(b.dir, "kube.yaml"), "it names the file")
		assert.NotContains(t, errs, "s3cret")
	}
	b := newBench(t)
	b.parts = connected()
	code, _, errs := b.run("run", "--repo", ".", "--runner", "kubernetes")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, errs, "there is no kubeconfig, and this process does not run in a cluster\nhint: give --kubeconfig FILE")
}

func TestWrongClusterUsage(t *testing.T) {
	cluster := []string{"run", "--repo", ".", "--runner", "kubernetes"}
	for _, c := range []struct {
		args []string
		vars map[string]string
		want string
	}{
		{[]string{"run", "--repo", ".", "--kubeconfig", "kube.yaml"}, nil, "run: --kubeconfig means nothing without --runner kubernetes\nhint: add --runner kubernetes, or leave --kubeconfig (and TRAINYARD_KUBECONFIG) out\n"},
		{[]string{"run", "--repo", ".", "--gang", "none"}, nil, "--gang means nothing without --runner kubernetes"},
		{[]string{"run", "--repo", ".", "--no-lease"}, nil, "--no-lease means nothing without --runner kubernetes"},
		{[]string{"run", "--repo", "."}, map[string]string{"TRAINYARD_NAMESPACES": "a"}, "--namespaces means nothing without --runner kubernetes"},
		{append(cluster, "--kubeconfig", "absent"), nil, "run: --kubeconfig: stat "},
		{cluster, map[string]string{"KUBECONFIG": "absent"}, "run: KUBECONFIG: absent is not there"},
		{append(cluster, "--namespaces", "nlp,*"), nil, `--namespaces: "*" is no name`},
		{append(cluster, "--lease-namespace", "A"), nil, `--lease-namespace: "A" is no name`},
		{append(cluster, "--lease-namespace", "a", "--no-lease"), nil, "contradict"},
		{append(cluster, "--gang", "all"), nil, `"all" is none of auto, none, native, volcano, coscheduling, kueue`},
		{[]string{"validate", "--context", "prod"}, nil, "validate: --context means nothing without --server\nhint: add --server"},
		{[]string{"validate", "--server", "--kubeconfig", "absent"}, nil, "validate: --kubeconfig: stat "},
		{[]string{"logs", "a", "--repo", ".", "--context", "prod"}, nil, "logs: --context means nothing without --runner kubernetes"},
		{[]string{"logs", "a", "--repo", ".", "--runner", "kubernetes", "--state-dir", "."}, nil, "logs: --state-dir means nothing without --runner local"},
	} {
		b := newBench(t)
		b.write(t, "kube.yaml", kubeconfig)
		for k, v := range c.vars {
			b.vars[k] = v
		}
		b.parts.Daemon = func(context.Context, runOptions, streams) error { t.Error("ran"); return nil }
		code, _, errs := b.run(c.args...)
		assert.Equal(t, exitUsage, code, "%v: %s", c.args, errs)
		assert.Contains(t, errs, c.want, "%v", c.args)
	}
}

// clusterPods are pods on a cluster.
type clusterPods struct {
	localPods
	away    error
	refused map[string]error // by role
	asked   []string
	gone    string // a pod whose log is
}

func (p *clusterPods) Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error) {
	if name == p.gone {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "logs of containers"}, "main")
	}
	return p.localPods.Log(ctx, namespace, name, container, tail, follow)
}

func (p *clusterPods) Jobs(ctx context.Context) ([]repo.Key, error) {
	if p.away != nil {
		return nil, p.away
	}
	return p.localPods.Jobs(ctx)
}

func (p *clusterPods) Rehearse(_ context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		p.asked = append(p.asked, pod.Labels[repo.LabelRole]+" "+pod.Labels[repo.LabelIndex])
		if err := p.refused[pod.Labels[repo.LabelRole]]; err != nil {
			return err
		}
	}
	return p.away
}

func (p *clusterPods) Gang(context.Context, *repo.Job) (string, error) {
	return "volcano: the cluster has it", p.away
}

func TestLogsOfACluster(t *testing.T) {
	b := newBench(t)
	there := &clusterPods{localPods: localPods{text: "hello\n", all: []corev1.Pod{pod(t, "new", 2, "worker", 1, 0, 0)}}}
	var opened clusterOptions
	b.parts.Pods = func(string, string) (pods, error) { return nil, fs.ErrNotExist }
	b.parts.Cluster = func(o clusterOptions, environment string) (cluster, error) {
		assert.Equal(t, "prod", environment)
		opened = o
		return there, nil
	}
	b.published([]repo.Record{record("a", repo.PhaseFailed)})
	code, out, errs := b.run("logs", "nlp/a", "-f", "--repo", "x", "--env", "prod", "--runner", "kubernetes")
	require.Zero(t, code, errs)
	assert.Equal(t, "new-worker-1-0-0 \"\" -1 true\nhello\n", out, "as on this machine")
	assert.Equal(t, []string{"nlp"}, opened.Namespaces, "no more rights are needed than for the job's own")
}

// A pod that is going has no log any more; the record may have its end.
func TestLogsOfPodsThatAreGoing(t *testing.T) {
	b := newBench(t)
	going, stays := pod(t, "new", 2, "worker", 0, 0, 0), pod(t, "new", 2, "worker", 1, 0, 0)
	there := &clusterPods{localPods: localPods{text: "hello\n", all: []corev1.Pod{going, stays}}, gone: going.Name}
	b.parts.Cluster = func(clusterOptions, string) (cluster, error) { return there, nil }
	b.published([]repo.Record{record("a", repo.PhaseFailed)})
	code, out, errs := b.run("logs", "a", "worker-0", "--repo", "x", "--runner", "kubernetes")
	require.Zero(t, code, errs)
	assert.Equal(t, "second\n", out)
	assert.Contains(t, errs, "(the end of it, from the record)")
	code, out, errs = b.run("logs", "a", "--repo", "x", "--runner", "kubernetes")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, out, "worker-1 | hello\n")
	assert.Contains(t, errs, "log of "+going.Name)
}

// What the cluster does not tell any more, the record may.
func TestLogsOfAClusterThatIsAway(t *testing.T) {
	b := newBench(t)
	b.parts.Cluster = func(clusterOptions, string) (cluster, error) {
		return &clusterPods{away: errors.New("connection refused")}, nil
	}
	b.parts.Pods = func(string, string) (pods, error) { return nil, fs.ErrNotExist }
	b.published([]repo.Record{record("a", repo.PhaseFailed), {Metadata: repo.RecordMeta{Namespace: "default", Name: "c"}}})
	code, out, errs := b.run("logs", "a", "--repo", "x", "--runner", "kubernetes")
	require.Zero(t, code, errs)
	assert.Equal(t, "second\n", out)
	assert.Contains(t, errs, "the cluster does not tell: list the jobs that have pods: connection refused\n")
	_, _, errs = b.run("logs", "c", "--repo", "x")
	assert.Contains(t, errs, "hint: if the job runs on a cluster, give --runner kubernetes")
}

func TestValidateAsksTheCluster(t *testing.T) {
	b := newBench(t)
	b.write(t, "jobs/a.yaml", "")
	var seen []string
	job := repo.Job{
		Key: repo.Key{Namespace: "nlp", Name: "a"}, Gang: true, Source: repo.Source{File: "jobs/a.yaml", Line: 7},
		Roles: []repo.Role{{Name: "worker", Replicas: 4}, {Name: "ps", Replicas: 2}, {Name: "none"}},
	}
	b.rendered(repo.Definitions{Jobs: []repo.Job{job}}, &seen)
	server := &clusterPods{}
	b.parts.Cluster = func(_ clusterOptions, environment string) (cluster, error) {
		assert.Equal(t, "prod", environment)
		return server, nil
	}
	code, out, errs := b.run("validate", "--server", "--env", "prod")
	assert.Zero(t, code)
	assert.Empty(t, out)
	assert.Equal(t, "jobs/a.yaml:7: gang of nlp/a: volcano: the cluster has it\n1 job, 0 errors, 0 warnings (environment: prod)\n", errs)
	assert.Equal(t, []string{"worker 0", "ps 0"}, server.asked, "one pod of each role")

	pods := schema.GroupResource{Resource: "pods"}
	server.refused = map[string]error{
		"worker": apierrors.NewForbidden(pods, "a-worker-0", errors.New("no PriorityClass with name of-nobody was found")),
		"ps":     apierrors.NewForbidden(pods, "a-ps-0", errors.New("exceeded quota: gpus")),
	}
	code, out, _ = b.run("validate", "--server", "--env", "prod")
	assert.Equal(t, exitProblems, code)
	assert.Equal(t, `jobs/a.yaml:7: role worker: the cluster refuses a pod of nlp/a: pods "a-worker-0" is forbidden: no PriorityClass with name of-nobody was found
jobs/a.yaml:7: warning: role ps: the cluster refuses a pod of nlp/a: pods "a-ps-0" is forbidden: exceeded quota: gpus
`, out)

	server.refused, server.away = nil, errors.New("connection refused")
	code, _, errs = b.run("validate", "--server", "--env", "prod")
	assert.Equal(t, exitProblems, code)
	assert.Contains(t, errs, "trainyard: validate: ask the cluster about nlp/a: connection refused\n")

	b.write(t, "overlays/prod/kustomization.yaml", "")
	code, _, errs = b.run("validate", "--server")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "--server needs --env: there are several environments (default, prod)")
}
