package kubernetes

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// server is an API server's word on what it has: resources by group and version.
type server map[string][]string

func (s server) ServerGroups() (*metav1.APIGroupList, error) {
	if s == nil {
		return nil, errors.New("connection refused")
	}
	list := &metav1.APIGroupList{}
	for gv := range s {
		group, _, _ := strings.Cut(gv, "/")
		list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: gv}}})
	}
	return list, nil
}

func (s server) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	switch {
	case s[gv] == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	case s[gv][0] == "away":
		return nil, errors.New("the server is currently unable to handle the request")
	}
	list := &metav1.APIResourceList{GroupVersion: gv}
	for _, name := range s[gv] {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func TestDetectGang(t *testing.T) {
	for name, c := range map[string]struct {
		server server
		want   map[Gang]string
		older  string
	}{
		"nothing":        {server{"scheduling.k8s.io/v1": {"priorityclasses"}}, map[Gang]string{}, ""},
		"1.35":           {server{"scheduling.k8s.io/v1": {"priorityclasses"}, "scheduling.k8s.io/v1alpha1": {"workloads"}}, map[Gang]string{}, "scheduling.k8s.io/v1alpha1"},
		"1.36":           {server{"scheduling.k8s.io/v1alpha2": {"workloads", "podgroups"}}, map[Gang]string{GangNative: "scheduling.k8s.io/v1alpha2"}, ""},
		"1.37":           {server{"scheduling.k8s.io/v1alpha3": {"podgroups"}, "scheduling.k8s.io/v1beta1": {"podgroups"}}, map[Gang]string{GangNative: "scheduling.k8s.io/v1beta1"}, ""},
		"old priorities": {server{"scheduling.k8s.io/v1beta1": {"priorityclasses"}, "scheduling.k8s.io/v1alpha2": {"podgroups"}}, map[Gang]string{GangNative: "scheduling.k8s.io/v1alpha2"}, ""},
		"later":          {server{"scheduling.k8s.io/v7": {"podgroups"}}, map[Gang]string{}, ""},
		"all": {
			server{"scheduling.volcano.sh/v1beta1": {"podgroups", "queues"}, "scheduling.x-k8s.io/v1alpha1": {"podgroups"}, "kueue.x-k8s.io/v1beta1": {"localqueues"}},
			map[Gang]string{GangVolcano: "scheduling.volcano.sh/v1beta1", GangCoscheduling: "scheduling.x-k8s.io/v1alpha1", GangKueue: "kueue.x-k8s.io/v1beta1"}, "",
		},
		"elastic quotas alone": {server{"scheduling.x-k8s.io/v1alpha1": {"elasticquotas"}}, map[Gang]string{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := detectGang(c.server)
			require.NoError(t, err)
			got := map[Gang]string{}
			for kind, gv := range o.versions {
				got[kind] = gv.String()
			}
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.older, o.older)
		})
	}
	_, err := detectGang(server(nil))
	assert.ErrorContains(t, err, "connection refused")
	_, err = detectGang(server{"scheduling.k8s.io/v1alpha2": {"away"}})
	assert.ErrorContains(t, err, "ask for scheduling.k8s.io/v1alpha2")
}

func offer(kinds ...Gang) offers {
	o := offers{versions: map[Gang]schema.GroupVersion{}}
	for _, k := range kinds {
		for _, api := range gangAPIs {
			if api.kind == k {
				o.versions[k] = schema.GroupVersion{Group: api.group, Version: api.versions[len(api.versions)-1]}
			}
		}
	}
	return o
}

// gangJob is a job of two workers and a parameter server, with a TensorBoard.
func gangJob(edits ...func(*repo.Job)) *repo.Job {
	job := &repo.Job{Key: repo.Key{Namespace: "nlp", Name: "bert"}, Gang: true, Roles: []repo.Role{
		{Name: "worker", Replicas: 2}, {Name: "ps", Replicas: 1, Daemon: true}, {Name: "board", Replicas: 1, Daemon: true, Outlives: true},
	}}
	for i := range job.Roles {
		job.Roles[i].Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/train:1"}}}
	}
	for _, f := range edits {
		f(job)
	}
	return job
}

func scheduler(names ...string) func(*repo.Job) {
	return func(j *repo.Job) {
		for i, n := range names {
			j.Roles[i].Template.Spec.SchedulerName = n
		}
	}
}

func queueOfJob(j *repo.Job)      { j.Labels = map[string]string{labelQueue: "team"} }
func queueOfTemplate(j *repo.Job) { j.Roles[1].Template.Labels = map[string]string{labelQueue: "team"} }

func TestChooseGang(t *testing.T) {
	all := []Gang{GangNative, GangVolcano, GangCoscheduling, GangKueue}
	for name, c := range map[string]struct {
		offers    []Gang
		edit      func(*repo.Job)
		wanted    Gang
		plugin    string // the scheduler with the coscheduling plugin
		want      Gang
		scheduler string
		why       string
	}{
		"nothing there":               {want: GangNone, why: "nothing for gangs"},
		"the cluster's own first":     {offers: all, want: GangNative, why: "scheduling.k8s.io/v1alpha2"},
		"Volcano":                     {offers: []Gang{GangVolcano}, want: GangVolcano, scheduler: "volcano", why: "has Volcano"},
		"Volcano asked for":           {offers: all, edit: scheduler("volcano", "volcano"), want: GangVolcano, why: "the job asks"},
		"Volcano not there":           {offers: []Gang{GangNative}, edit: scheduler("volcano", "volcano"), want: GangNone, why: "the scheduler volcano"},
		"a board may differ":          {offers: all, edit: scheduler("volcano", "volcano", "other"), want: GangVolcano},
		"plugin of unknown scheduler": {offers: []Gang{GangCoscheduling}, want: GangNone, why: "nobody said which scheduler"},
		"plugin":                      {offers: []Gang{GangCoscheduling}, plugin: "plugins", want: GangCoscheduling, scheduler: "plugins"},
		"plugin before Volcano":       {offers: []Gang{GangCoscheduling, GangVolcano}, plugin: "plugins", want: GangCoscheduling, scheduler: "plugins"},
		"plugin asked for":            {offers: all, edit: scheduler("mine", "mine"), plugin: "plugins", want: GangCoscheduling, why: "the scheduler mine"},
		"a profile of the cluster's":  {offers: []Gang{GangNative, GangVolcano}, edit: scheduler("mine", "mine"), want: GangNative},
		"an unknown scheduler":        {offers: []Gang{GangVolcano, GangKueue}, edit: scheduler("mine", "mine"), want: GangNone, why: "the scheduler mine"},
		"two schedulers":              {offers: all, edit: scheduler("mine"), want: GangNone, why: "different schedulers: default-scheduler, mine"},
		"the default by its name":     {offers: all, edit: scheduler("default-scheduler"), want: GangNative},
		"queue of the job":            {offers: all, edit: queueOfJob, want: GangKueue, why: "the queue team"},
		"queue of a template":         {offers: all, edit: queueOfTemplate, want: GangKueue, why: "the queue team"},
		"queue without Kueue":         {offers: []Gang{GangNative}, edit: queueOfJob, want: GangNative},
		"Kueue without a queue":       {offers: []Gang{GangKueue}, want: GangNone, why: "names no queue by the label kueue.x-k8s.io/queue-name"},
		"told none":                   {offers: all, wanted: GangNone, want: GangNone, why: "was told to use nothing"},
		"told Volcano":                {offers: all, wanted: GangVolcano, want: GangVolcano, scheduler: "volcano"},
		"told what is not there":      {offers: []Gang{GangNative}, wanted: GangVolcano, want: GangNone, why: "does not have"},
		"told Kueue without a queue":  {offers: all, wanted: GangKueue, want: GangNone, why: "names no queue"},
		"told, two schedulers":        {offers: all, edit: scheduler("mine"), wanted: GangNative, want: GangNone, why: "different schedulers"},
		"one pod": {offers: all, want: GangNone, why: "one pod", edit: func(j *repo.Job) {
			j.Roles[0].Replicas, j.Roles[0].Parallelism, j.Roles[1].Replicas = 5, 1, 0
		}},
		"a group of its own": {offers: all, want: GangNone, why: "the label scheduling.x-k8s.io/pod-group", edit: func(j *repo.Job) {
			j.Roles[0].Template.Labels = map[string]string{labelCoschedulingGroup: "mine"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit == nil {
				c.edit = func(*repo.Job) {}
			}
			got := offer(c.offers...).choose(gangJob(c.edit), c.wanted, c.plugin)
			assert.Equal(t, c.want, got.kind, got.why)
			assert.Contains(t, got.why, c.why)
			assert.Equal(t, c.scheduler, got.scheduler)
		})
	}
	older := offers{older: "scheduling.k8s.io/v1alpha1"}
	assert.Contains(t, older.choose(gangJob(), "", "").why, "a version that is not used (scheduling.k8s.io/v1alpha1)")
}

func TestGangKindsAreKnown(t *testing.T) {
	for _, k := range []Gang{"", GangNone, GangNative, GangVolcano, GangCoscheduling, GangKueue} {
		assert.True(t, k.Known(), k)
	}
	assert.False(t, Gang("Volcano").Known())
}

// TestGangObjects holds what becomes of a run's pods, for each kind: a first
// pod, a retry that starts late, and a pod outside the gang.
func TestGangObjects(t *testing.T) {
	for _, kind := range []Gang{GangNone, GangNative, GangVolcano, GangCoscheduling, GangKueue} {
		t.Run(string(kind), func(t *testing.T) {
			job := gangJob(queueOfJob, func(j *repo.Job) {
				j.Labels["kueue.x-k8s.io/priority-class"], j.Labels["team"] = "high", "nlp"
				j.Roles[1].Template.Annotations = map[string]string{annotationVolcanoQueue: "research"}
				j.Roles[0].Template.Spec.PriorityClassName = "urgent"
			})
			run := &repo.Run{ID: "bert-abcdefghij", Environment: "prod", Job: *job}
			c := offer(kind).choose(job, kind, "plugins")
			require.Equal(t, kind, c.kind)
			g := repo.Gang{Name: run.GangName(1, 3), Size: 3}
			var b strings.Builder
			write := func(title string, o any) {
				text, err := yaml.Marshal(o)
				require.NoError(t, err)
				b.WriteString("# " + title + "\n" + string(text))
			}
			if o := c.group(run, "", g); o != nil {
				write("group", o.Object)
			}
			late := g
			late.Late = true
			for _, p := range []struct {
				title string
				gang  *repo.Gang
			}{{"member", &g}, {"late", &late}, {"alone", nil}} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{repo.LabelRole: "worker"}}}
				c.member(run, pod, p.gang)
				write(p.title, map[string]any{
					"labels": pod.Labels, "annotations": pod.Annotations, "schedulerName": pod.Spec.SchedulerName, "schedulingGroup": pod.Spec.SchedulingGroup,
				})
			}
			golden(t, string(kind)+".yaml", b.String())
		})
	}
}

const goldenGangs = "testdata/gangs.txtar"

// golden holds a text against the file of that name in an archive.
func golden(t *testing.T, name, got string) {
	t.Helper()
	archive := &txtar.Archive{}
	if _, err := os.Stat(goldenGangs); err == nil {
		archive, err = txtar.ParseFile(goldenGangs)
		require.NoError(t, err)
	}
	at := -1
	for i := range archive.Files {
		if archive.Files[i].Name == name {
			at = i
		}
	}
	if !*update {
		require.GreaterOrEqual(t, at, 0, "no %s in %s: run with -update", name, goldenGangs)
		assert.Equal(t, string(archive.Files[at].Data), got)
		return
	}
	if at < 0 {
		archive.Files, at = append(archive.Files, txtar.File{Name: name}), len(archive.Files)
	}
	archive.Files[at].Data = []byte(got)
	require.NoError(t, os.MkdirAll(filepath.Dir(goldenGangs), 0o755))
	require.NoError(t, os.WriteFile(goldenGangs, txtar.Format(archive), 0o644))
}
