package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Gang is what a cluster has to start all pods of a run's attempt or none.
type Gang string

// The kinds of gangs.
const (
	GangNone         Gang = "none"
	GangNative       Gang = "native"       // Kubernetes' own PodGroups
	GangVolcano      Gang = "volcano"      // Volcano's PodGroups
	GangCoscheduling Gang = "coscheduling" // PodGroups of the scheduler plugins
	GangKueue        Gang = "kueue"        // Kueue's pod groups: labels, no object
)

// Known says whether it is one of the kinds, or "", which is what fits best.
func (k Gang) Known() bool {
	return slices.Contains([]Gang{"", GangNone, GangNative, GangVolcano, GangCoscheduling, GangKueue}, k)
}

// The API groups by which they are known.
const (
	nativeGroup       = "scheduling.k8s.io"
	volcanoGroup      = "scheduling.volcano.sh"
	coschedulingGroup = "scheduling.x-k8s.io"
	kueueGroup        = "kueue.x-k8s.io"
)

// offers are the kinds that a cluster has, with the API version of each.
type offers struct {
	versions map[Gang]schema.GroupVersion
	// older is a version of Kubernetes' own API that is not used: in 1.35 pods
	// named their group in a field that is gone.
	older string
}

// discovery is what is asked of an API server.
type discovery interface {
	ServerGroups() (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// gangAPIs say by which resource a kind is known, and which versions of it are,
// best first.
var gangAPIs = []struct {
	kind            Gang
	group, resource string
	versions        []string
}{
	{GangNative, nativeGroup, "podgroups", []string{"v1beta1", "v1alpha3", "v1alpha2"}},
	{GangVolcano, volcanoGroup, "podgroups", []string{"v1beta1"}},
	{GangCoscheduling, coschedulingGroup, "podgroups", []string{"v1alpha1"}},
	{GangKueue, kueueGroup, "localqueues", []string{"v1beta2", "v1beta1"}},
}

// answers are those of an API server to who waits for them, which client-go's
// own discovery does for as long as it takes.
type answers struct {
	ctx    context.Context
	server rest.Interface
}

func (a answers) ServerGroups() (*metav1.APIGroupList, error) {
	list := &metav1.APIGroupList{}
	return list, a.server.Get().AbsPath("/apis").Do(a.ctx).Into(list)
}

func (a answers) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	return list, a.server.Get().AbsPath("/apis", groupVersion).Do(a.ctx).Into(list)
}

// detectGang asks the server which kinds it offers: that says nothing of
// whether their schedulers run.
func detectGang(d discovery) (offers, error) {
	groups, err := d.ServerGroups()
	if err != nil {
		return offers{}, fmt.Errorf("ask for API groups: %w", err)
	}
	served := map[string]bool{}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			served[v.GroupVersion] = true
		}
	}
	o := offers{versions: map[Gang]schema.GroupVersion{}}
	for _, api := range gangAPIs {
		for _, v := range api.versions {
			gv := schema.GroupVersion{Group: api.group, Version: v}
			if !served[gv.String()] {
				continue
			}
			has, err := hasResource(d, gv, api.resource)
			if err != nil {
				return offers{}, err
			}
			if has {
				o.versions[api.kind] = gv
				break
			}
		}
	}
	if old := nativeGroup + "/v1alpha1"; o.versions[GangNative].Empty() && served[old] {
		o.older = old
	}
	return o, nil
}

func hasResource(d discovery, gv schema.GroupVersion, resource string) (bool, error) {
	list, err := d.ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return false, nil // gone since the groups were asked for
	}
	if err != nil {
		return false, fmt.Errorf("ask for %s: %w", gv, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

func (o offers) has(kind Gang) bool {
	_, ok := o.versions[kind]
	return ok
}

// choice is how the pods of a job start together, and why, in words for its record.
type choice struct {
	kind      Gang
	why       string
	version   schema.GroupVersion // of the group's object
	scheduler string              // that the pods are given; "" leaves it as it is
	queue     string              // of Kueue
}

// String is the kind and the reason.
func (c choice) String() string { return string(c.kind) + ": " + c.why }

// choose decides for a job. wanted is what the operator asks for, "" is what
// fits best; scheduler is the name under which the coscheduling plugin runs, ""
// if the operator did not say.
func (o offers) choose(job *repo.Job, wanted Gang, scheduler string) choice {
	t := asked(job)
	pick := func(kind Gang, why string, args ...any) choice {
		return o.pick(t, scheduler, kind, fmt.Sprintf(why, args...))
	}
	switch {
	case t.pods < 2 && t.queue == "":
		return pick(GangNone, "there is one pod, which needs no other to start")
	case t.group != "":
		return pick(GangNone, "the job's pods name a group of their own by %s", t.group)
	case wanted == GangNone:
		return pick(GangNone, "the daemon was told to use nothing for gangs")
	case wanted != "" && !o.has(wanted):
		return pick(GangNone, "the daemon was told to use %s, which this cluster does not have", wanted)
	case wanted == GangKueue && t.queue == "":
		return pick(GangNone, "the daemon was told to use kueue, and the job names no queue by the label %s", labelQueue)
	case wanted != "" && len(t.schedulers) > 1:
		return pick(GangNone, "its roles ask for different schedulers: %s", strings.Join(t.schedulers, ", "))
	case wanted != "":
		return pick(wanted, "as the daemon was told")
	case t.queue != "" && o.has(GangKueue):
		return pick(GangKueue, "the job names the queue %s; Kueue admits all pods or none", t.queue)
	case len(t.schedulers) > 1:
		return pick(GangNone, "its roles ask for different schedulers: %s", strings.Join(t.schedulers, ", "))
	}
	return o.automatic(t, scheduler, pick)
}

// pick is a kind with what its pods need to be told.
func (o offers) pick(t ask, scheduler string, kind Gang, why string) choice {
	c := choice{kind: kind, why: why, version: o.versions[kind]}
	switch {
	case kind == GangKueue:
		c.queue = t.queue
	case kind == GangVolcano && t.scheduler == "":
		c.scheduler = volcanoScheduler
	case kind == GangCoscheduling && t.scheduler == "":
		c.scheduler = scheduler
	}
	return c
}

// automatic takes what the job's scheduler understands, and else what the
// cluster's own has.
func (o offers) automatic(t ask, scheduler string, pick func(Gang, string, ...any) choice) choice {
	switch {
	case t.scheduler == volcanoScheduler && o.has(GangVolcano):
		return pick(GangVolcano, "the job asks for the scheduler volcano")
	case t.scheduler != "" && t.scheduler != volcanoScheduler && o.has(GangCoscheduling):
		return pick(GangCoscheduling, "the job asks for the scheduler %s, and the cluster has the coscheduling plugin's PodGroups", t.scheduler)
	case t.scheduler != "" && t.scheduler != volcanoScheduler && o.has(GangNative):
		return pick(GangNative, "the job asks for the scheduler %s, and the cluster has PodGroups of its own (%s)", t.scheduler, o.versions[GangNative])
	case t.scheduler != "":
		return pick(GangNone, "the job asks for the scheduler %s, of which no gangs are known here", t.scheduler)
	case o.has(GangNative):
		return pick(GangNative, "the cluster has PodGroups of its own (%s)", o.versions[GangNative])
	case o.has(GangCoscheduling) && scheduler != "":
		return pick(GangCoscheduling, "the daemon was told that the scheduler %s has the coscheduling plugin", scheduler)
	case o.has(GangVolcano):
		return pick(GangVolcano, "the cluster has Volcano")
	}
	why := "the cluster has nothing for gangs"
	switch {
	case o.has(GangCoscheduling):
		why = "the cluster has the coscheduling plugin's PodGroups, and nobody said which scheduler has the plugin"
	case o.has(GangKueue):
		why = "the cluster has Kueue, and the job names no queue by the label " + labelQueue
	case o.older != "":
		why = "the cluster's own API for gangs is of a version that is not used (" + o.older + ")"
	}
	return pick(GangNone, "%s; a run of which only some pods find a place is released and tried again", why)
}

// ask is what a job says itself of how its pods are to be scheduled.
type ask struct {
	pods       int
	schedulers []string // all that its roles name, sorted
	scheduler  string   // the only one; "" is the cluster's default
	queue      string   // of Kueue
	group      string   // by what a template names a group, "" if none does
}

func asked(job *repo.Job) (t ask) {
	t.queue = job.Labels[labelQueue]
	for i := range job.Roles {
		r := &job.Roles[i]
		if !r.InGang() || r.Replicas == 0 {
			continue
		}
		n := r.Replicas
		if r.Parallelism > 0 {
			n = min(n, r.Parallelism)
		}
		t.pods += int(n)
		name := r.Template.Spec.SchedulerName
		if name == "" {
			name = corev1.DefaultSchedulerName
		}
		t.schedulers = append(t.schedulers, name)
		if q := r.Template.Labels[labelQueue]; q != "" && t.queue == "" {
			t.queue = q
		}
		if by := ownGroup(&r.Template); by != "" {
			t.group = by
		}
	}
	slices.Sort(t.schedulers)
	t.schedulers = slices.Compact(t.schedulers)
	if len(t.schedulers) == 1 && t.schedulers[0] != corev1.DefaultSchedulerName {
		t.scheduler = t.schedulers[0]
	}
	return t
}

// ownGroup says by what a pod template names a group that is the user's own.
func ownGroup(t *corev1.PodTemplateSpec) string {
	if t.Spec.SchedulingGroup != nil {
		return "spec.schedulingGroup"
	}
	for _, key := range []string{labelCoschedulingGroup, labelKueueGroup} {
		if t.Labels[key] != "" {
			return "the label " + key
		}
	}
	for _, key := range []string{annotationGroup, annotationVolcanoGroup, labelKueueGroup} {
		if t.Annotations[key] != "" {
			return "the annotation " + key
		}
	}
	return ""
}
