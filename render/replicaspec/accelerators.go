package replicaspec

import (
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// config is the operators' own configuration.
type config struct {
	Accelerators map[string]accelerator `json:"accelerators"`
	// GrpcServerFilePath is where the operator's image had the default
	// parameter server, which needs no file here.
	GrpcServerFilePath any `json:"grpcServerFilePath"`
}

type accelerator struct {
	Volumes []acceleratorVolume `json:"volumes"`
	Env     []acceleratorEnv    `json:"envVars"`
}

type acceleratorVolume struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	HostPath  string `json:"hostPath"`
}

type acceleratorEnv struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	maxAccelerators = 100
	maxOfOne        = 50 // volumes or variables of one accelerator
)

// ReadConfig reads the configuration of the operators into the settings.
func ReadConfig(o *manifest.Object, settings *repo.Settings) {
	var c config
	opts := manifest.Options{Lenient: true, Fold: true}
	o.Decode("", &c, opts)
	list := o.Written("", "accelerators", opts)
	if len(c.Accelerators) > maxAccelerators {
		o.Errorf(list, "%d accelerators are too many; %d are the most", len(c.Accelerators), maxAccelerators)
		return
	}
	settings.Accelerators = make(map[string]repo.Accelerator, len(c.Accelerators))
	for _, name := range slices.Sorted(maps.Keys(c.Accelerators)) {
		at := manifest.Join(list, name)
		if len(validation.IsQualifiedName(name)) > 0 {
			o.Errorf(at, "%q cannot be the name of a resource", name)
		}
		settings.Accelerators[name] = c.Accelerators[name].read(o, at)
	}
}

func (a accelerator) read(o *manifest.Object, at string) (out repo.Accelerator) {
	if len(a.Volumes) > maxOfOne || len(a.Env) > maxOfOne {
		o.Errorf(at, "more than %d volumes or variables are too many", maxOfOne)
		return out
	}
	for i, v := range a.Volumes {
		at := manifest.Item(at+".volumes", i)
		o.Label(at+".name", v.Name)
		for _, p := range []struct{ field, path string }{{at + ".mountPath", v.MountPath}, {at + ".hostPath", v.HostPath}} {
			if !path.IsAbs(p.path) || slices.Contains(strings.Split(p.path, "/"), "..") || strings.ContainsAny(p.path, ":\x00") {
				o.Errorf(p.field, "want an absolute path, not %q", p.path)
			}
		}
		out.Volumes = append(out.Volumes, repo.AcceleratorVolume{Name: v.Name, HostPath: v.HostPath, MountPath: v.MountPath})
	}
	for i, e := range a.Env {
		if len(validation.IsRelaxedEnvVarName(e.Name)) > 0 || strings.ContainsRune(e.Value, 0) {
			o.Errorf(manifest.Item(at+".envVars", i)+".name", "%q cannot be the name of a variable", e.Name)
		}
		out.Env = append(out.Env, corev1.EnvVar{Name: e.Name, Value: e.Value})
	}
	return out
}

// accelerate gives the first container of a name the volumes and variables of
// each accelerator that it asks for, under limits or requests. What is there
// already, in a file that was read back from the operator, is not added twice.
func accelerate(o *manifest.Object, at, container string, pod *corev1.PodSpec) {
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return
	}
	c, all := &pod.Containers[i], o.Settings().Accelerators
	for _, name := range slices.Sorted(maps.Keys(all)) {
		_, limited := c.Resources.Limits[corev1.ResourceName(name)]
		_, requested := c.Resources.Requests[corev1.ResourceName(name)]
		if !limited && !requested {
			continue
		}
		for _, v := range all[name].Volumes {
			if !hasVolume(pod, v) && !addVolume(o, at, pod, v) {
				continue
			}
			switch n := slices.IndexFunc(c.VolumeMounts, func(x corev1.VolumeMount) bool { return x.MountPath == v.MountPath }); {
			case n < 0:
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath})
			case c.VolumeMounts[n].Name != v.Name:
				o.Errorf(at+".spec.containers", "%q is also where the operator's configuration mounts a volume for an accelerator", v.MountPath)
			}
		}
		for _, e := range all[name].Env {
			if !slices.Contains(c.Env, e) {
				c.Env = append(c.Env, e)
			}
		}
	}
}

func hasVolume(pod *corev1.PodSpec, v repo.AcceleratorVolume) bool {
	return slices.ContainsFunc(pod.Volumes, func(x corev1.Volume) bool {
		return x.Name == v.Name && x.HostPath != nil && x.HostPath.Path == v.HostPath
	})
}

// addVolume says whether the pod has the volume now.
func addVolume(o *manifest.Object, at string, pod *corev1.PodSpec, v repo.AcceleratorVolume) bool {
	switch {
	case slices.ContainsFunc(pod.Volumes, func(x corev1.Volume) bool { return x.Name == v.Name }):
		o.Errorf(at+".spec.volumes", "volume %q is also the name of one that the operator's configuration adds for an accelerator", v.Name)
		return false
	case len(pod.Volumes) >= manifest.MaxVolumes:
		o.Errorf(at+".spec.volumes", "more than %d volumes, with those of accelerators, are too many", manifest.MaxVolumes)
		return false
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: v.HostPath},
	}})
	return true
}
