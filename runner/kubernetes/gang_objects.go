package kubernetes

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Names that schedulers of gangs look for.
const (
	volcanoScheduler       = "volcano"
	annotationGroup        = "scheduling.k8s.io/group-name" // Volcano's, whatever it looks like
	annotationVolcanoGroup = volcanoGroup + "/group-name"
	annotationVolcanoQueue = volcanoGroup + "/queue-name"
	labelCoschedulingGroup = coschedulingGroup + "/pod-group"

	labelQueue              = kueueGroup + "/queue-name"
	labelKueueGroup         = kueueGroup + "/pod-group-name"
	annotationKueueCount    = kueueGroup + "/pod-group-total-count"
	annotationKueueRole     = kueueGroup + "/role-hash"
	annotationKueueRetrying = kueueGroup + "/retriable-in-group"
)

// group is the object that has to be there before the pods of a gang, nil if
// there is none. Its owner is added by the caller.
func (c choice) group(run *repo.Run, repository string, g repo.Gang) *unstructured.Unstructured {
	var spec map[string]any
	size := int64(g.Size)
	switch c.kind {
	case GangNative:
		spec = map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": size}}}
	case GangCoscheduling:
		spec = map[string]any{"minMember": size}
	case GangVolcano:
		spec = map[string]any{"minMember": size}
		queue, priority := volcanoWords(&run.Job)
		if queue != "" {
			spec["queue"] = queue
		}
		if priority != "" {
			spec["priorityClassName"] = priority
		}
	default:
		return nil
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(c.version.String())
	o.SetKind("PodGroup")
	o.SetName(g.Name)
	o.SetNamespace(run.Job.Namespace)
	o.SetLabels(runLabels(run.ID, run.Environment, run.Job.Key, repository))
	return o
}

// volcanoWords are what Volcano's groups say of queue and priority: as the
// job's first role that says it does of its pods.
func volcanoWords(job *repo.Job) (queue, priority string) {
	for i := range job.Roles {
		t := &job.Roles[i].Template
		if !job.Roles[i].InGang() {
			continue
		}
		if queue == "" {
			queue = t.Annotations[annotationVolcanoQueue]
		}
		if priority == "" {
			priority = t.Spec.PriorityClassName
		}
	}
	return queue, priority
}

// member makes a pod one of its gang; nil is none, of a pod that starts by
// itself. A retry, whose gang has started without it, is not waited for by
// anybody: it starts by itself too, but with Kueue, which counts it in the
// place of the one that failed.
func (c choice) member(run *repo.Run, pod *corev1.Pod, g *repo.Gang) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Annotations[repo.AnnotationGangBy] = c.String()
	if c.scheduler != "" {
		pod.Spec.SchedulerName = c.scheduler
	}
	switch c.kind {
	case GangKueue:
		c.queued(run, pod, g)
	case GangVolcano: // makes a group of its own for a pod that has none
		if queue, _ := volcanoWords(&run.Job); queue != "" && pod.Annotations[annotationVolcanoQueue] == "" {
			pod.Annotations[annotationVolcanoQueue] = queue
		}
	}
	if g == nil || g.Late {
		return
	}
	switch c.kind {
	case GangNative:
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &g.Name}
	case GangCoscheduling:
		pod.Labels[labelCoschedulingGroup] = g.Name
	case GangVolcano:
		pod.Annotations[annotationGroup], pod.Annotations[annotationVolcanoGroup] = g.Name, g.Name
	}
}

// queued makes a pod one of a pod group of Kueue, which holds it by a gate and
// a finalizer of its own. The group counts its pods by role, whatever a retry
// says of nodes to avoid, and is over when none of its pods goes on: else its
// quota would be kept for retries that do not come.
func (c choice) queued(run *repo.Run, pod *corev1.Pod, g *repo.Gang) {
	for key, value := range run.Job.Labels {
		if _, own := pod.Labels[key]; !own && strings.HasPrefix(key, kueueGroup+"/") {
			pod.Labels[key] = value
		}
	}
	pod.Labels[labelQueue] = c.queue
	if g == nil {
		return
	}
	pod.Labels[labelKueueGroup] = g.Name
	pod.Annotations[annotationKueueCount] = strconv.Itoa(int(g.Size))
	pod.Annotations[annotationKueueRole] = pod.Labels[repo.LabelRole]
	pod.Annotations[annotationKueueRetrying] = "false"
}
