package trainingjob

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

const (
	resourceGPU corev1.ResourceName = "nvidia.com/gpu"
	maxGPUs     int64               = 1024 // of a task

	shmVolume = "trainyard-shm"
	shmPath   = "/dev/shm"
)

// gpus become a limit of the first container, and a label of the pod.
func gpus(o *manifest.Object, at string, g *GPUs, t *corev1.PodTemplateSpec) {
	if g == nil {
		return
	}
	class(o, at+".class", g.Class, t)
	switch {
	case g.Count == nil:
		o.Warnf(at, "without count no GPU is asked for")
		return
	case *g.Count < 0 || *g.Count > maxGPUs:
		o.Errorf(at+".count", "want 0 to %d, not %d", maxGPUs, *g.Count)
		return
	}
	name := cmp.Or(g.Resource, resourceGPU)
	if why := notAsked(name); why != "" {
		o.Errorf(at+".resource", "%q %s", name, why)
		return
	}
	if !repo.IsGPU(name) {
		o.Warnf(at+".resource", "%s is not known as a GPU: it counts neither for a policy nor for GPU hours", name)
	}
	if len(t.Spec.Containers) == 0 || *g.Count == 0 {
		return
	}
	r := &t.Spec.Containers[0].Resources
	want := *resource.NewQuantity(*g.Count, resource.DecimalSI)
	if have, ok := r.Limits[name]; ok && have.Cmp(want) != 0 {
		o.Errorf(at+".count", "the template's first container asks for %s of %s itself: keep one of the two", have.String(), name)
		return
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	r.Limits[name] = want
}

// notAsked says why a resource cannot be one of GPUs, or "".
func notAsked(name corev1.ResourceName) string {
	switch {
	case len(validation.IsQualifiedName(string(name))) > 0:
		return "cannot be the name of a resource"
	case !strings.Contains(string(name), "/"):
		return "names no vendor; want a name like amd.com/gpu"
	}
	return ""
}

// class labels the pod, by which an overlay finds it.
func class(o *manifest.Object, at, class string, t *corev1.PodTemplateSpec) {
	if class == "" {
		return
	}
	if len(validation.IsValidLabelValue(class)) > 0 {
		o.Errorf(at, "%q cannot be a label's value: at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends", class)
		return
	}
	if own, ok := t.Labels[repo.LabelGPUClass]; ok && own != class {
		o.Errorf(at, "the template has the label %s: %s itself: keep one of the two", repo.LabelGPUClass, own)
		return
	}
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Labels[repo.LabelGPUClass] = class
}

// shm gives every container so much shared memory: what runtimes give by
// themselves, 64 MiB, is too little for workers that load data.
func shm(o *manifest.Object, at string, size *resource.Quantity, t *corev1.PodTemplateSpec) {
	if size == nil {
		return
	}
	if size.Sign() <= 0 {
		o.Errorf(at, "want a size like 8Gi, not %s", size)
		return
	}
	for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range list {
			if slices.ContainsFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return strings.TrimRight(m.MountPath, "/") == shmPath }) {
				o.Errorf(at, "container %q mounts a volume at %s itself: keep one of the two", list[i].Name, shmPath)
				return
			}
		}
	}
	if len(t.Spec.Volumes) >= manifest.MaxVolumes {
		o.Errorf(at, "more than %d volumes, with this one, are too many", manifest.MaxVolumes)
		return
	}
	v := Volume{MountPath: shmPath}
	v.Name = shmVolume
	v.EmptyDir = &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: size}
	volumes(o, at, []Volume{v}, t)
}
