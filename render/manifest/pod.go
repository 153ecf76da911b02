package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Limits of a job. Nothing real comes near them, and without them a small file
// could ask for much: each volume is mounted into each container, each role's
// tasks are told of each role.
const (
	MaxRoles      = 100
	MaxContainers = 100
	MaxVolumes    = 200
)

// CheckTemplate reports what no backend could run in a role's pod template,
// and drops metadata that a template has no use for. It looks only at what
// people get wrong; an API server looks at the rest.
func CheckTemplate(o *Object, path string, t *corev1.PodTemplateSpec) {
	t.ObjectMeta = metav1.ObjectMeta{Labels: t.Labels, Annotations: t.Annotations}
	for _, k := range slices.Sorted(maps.Keys(t.Labels)) {
		for _, why := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(t.Labels[k])...) {
			o.Errorf(Join(path+".metadata.labels", k), "%s", brief(why))
		}
	}
	c := podChecker{o: o, spec: &t.Spec, mounted: map[string]bool{}}
	path += ".spec"
	RenameResources(o, path, &t.Spec)
	if n := len(t.Spec.Containers) + len(t.Spec.InitContainers); n > MaxContainers || len(t.Spec.Volumes) > MaxVolumes {
		o.Errorf(path, "a pod of %d containers and %d volumes is too large; %d and %d are the most", n, len(t.Spec.Volumes), MaxContainers, MaxVolumes)
		return
	}
	if len(t.Spec.Containers) == 0 {
		o.Errorf(path+".containers", "at least one container is required")
	}
	c.volumes(path + ".volumes")
	c.claims(path + ".resourceClaims")
	names := map[string]string{}
	for i := range t.Spec.InitContainers {
		c.container(Item(path+".initContainers", i), &t.Spec.InitContainers[i], names)
	}
	for i := range t.Spec.Containers {
		c.container(Item(path+".containers", i), &t.Spec.Containers[i], names)
	}
	for i := range t.Spec.Volumes {
		if v := &t.Spec.Volumes[i]; v.Name != "" && !c.mounted[v.Name] {
			o.Warnf(Item(path+".volumes", i), "volume %q is mounted by no container", v.Name)
		}
	}
	switch p := t.Spec.RestartPolicy; p {
	case "", corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	default:
		o.Errorf(path+".restartPolicy", "%q is not one of Always, OnFailure, Never%s", p, Nearest(string(p), "Always", "OnFailure", "Never"))
	}
	if s := t.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		o.Errorf(path+".terminationGracePeriodSeconds", "must not be negative")
	}
	if s := t.Spec.ActiveDeadlineSeconds; s != nil && *s < 1 {
		o.Errorf(path+".activeDeadlineSeconds", "must be at least 1")
	}
}

type podChecker struct {
	o       *Object
	spec    *corev1.PodSpec
	mounted map[string]bool
}

func (c *podChecker) volumes(path string) {
	seen := map[string]bool{}
	for i := range c.spec.Volumes {
		name := c.spec.Volumes[i].Name
		at := Item(path, i) + ".name"
		switch {
		case name == "":
			c.o.Errorf(at, "required")
		case seen[name]:
			c.o.Errorf(at, "volume %q is declared twice", name)
		default:
			c.o.Label(at, name)
		}
		seen[name] = true
	}
}

func (c *podChecker) declared(volume string) bool {
	return slices.ContainsFunc(c.spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
}

func (c *podChecker) volumeNames() (names []string) {
	for i := range c.spec.Volumes {
		names = append(names, c.spec.Volumes[i].Name)
	}
	return names
}

func (c *podChecker) container(path string, k *corev1.Container, names map[string]string) {
	at := path + ".name"
	switch first, twice := names[k.Name]; {
	case k.Name == "":
		c.o.Errorf(at, "required")
	case twice:
		c.o.Errorf(at, "container %q is defined twice, first as %s", k.Name, first)
	default:
		names[k.Name] = path
		c.o.Label(at, k.Name)
	}
	if k.Image != "" {
		c.image(path+".image", k.Image)
	}
	for i := range k.Env {
		if name := k.Env[i].Name; name == "" {
			c.o.Errorf(Item(path+".env", i)+".name", "required")
		} else if len(validation.IsRelaxedEnvVarName(name)) > 0 {
			c.o.Errorf(Item(path+".env", i)+".name", "%q cannot be the name of a variable", short(name))
		}
	}
	c.noNUL(path, k)
	for i := range k.Ports {
		if p := k.Ports[i].ContainerPort; p < 1 || p > 65535 {
			c.o.Errorf(Item(path+".ports", i)+".containerPort", "%d is no port: want 1 to 65535", p)
		}
	}
	c.mounts(path+".volumeMounts", k)
	c.resources(path+".resources", &k.Resources)
}

// noNUL refuses what no process can be started with.
func (c *podChecker) noNUL(path string, k *corev1.Container) {
	check := func(at, text string) {
		if strings.ContainsRune(text, 0) {
			c.o.Errorf(at, "has a NUL character, which no argument or variable of a process can have")
		}
	}
	for i, text := range k.Command {
		check(Item(path+".command", i), text)
	}
	for i, text := range k.Args {
		check(Item(path+".args", i), text)
	}
	for i := range k.Env {
		check(Item(path+".env", i)+".value", k.Env[i].Value)
	}
	check(path+".workingDir", k.WorkingDir)
}

func (c *podChecker) mounts(path string, k *corev1.Container) {
	seen := map[string]bool{}
	for i := range k.VolumeMounts {
		m, at := &k.VolumeMounts[i], Item(path, i)
		switch {
		case m.Name == "":
			c.o.Errorf(at+".name", "required")
		case !c.declared(m.Name):
			if !c.o.full() {
				c.o.Errorf(at+".name", "the pod declares no volume %q%s", m.Name, Nearest(m.Name, c.volumeNames()...))
			}
		}
		c.mounted[m.Name] = true
		switch {
		case m.MountPath == "":
			c.o.Errorf(at+".mountPath", "required")
		case seen[m.MountPath]:
			c.o.Errorf(at+".mountPath", "%q is mounted twice", m.MountPath)
		}
		seen[m.MountPath] = true
		if slices.Contains(strings.Split(m.SubPath, "/"), "..") {
			c.o.Errorf(at+".subPath", `must not contain ".."`)
		}
	}
	for i := range k.VolumeDevices {
		c.mounted[k.VolumeDevices[i].Name] = true
	}
}

// imageReference is Docker's grammar: a registry, a repository, a tag and a digest.
var imageReference = regexp.MustCompile(`^(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?` +
	`[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*` +
	`(?::[\w][\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

func (c *podChecker) image(path, image string) {
	if len(image) < 1024 && imageReference.MatchString(image) {
		return
	}
	hint := ""
	switch {
	case strings.ContainsAny(image, "<>{}$"):
		hint = " (placeholder left in?)"
	case imageReference.MatchString(strings.ToLower(image)):
		hint = " (a repository's name has no upper-case letters)"
	case strings.TrimSpace(image) != image:
		hint = " (blanks around it)"
	}
	c.o.Errorf(path, "%q is not a valid image reference%s", short(image), hint)
}

// maxRoleName leaves room for an index in a host name: worker-9999.
const maxRoleName = 58

// CheckRoleName reports a role's name that could not be part of a host name.
func CheckRoleName(o *Object, field, name string) {
	switch {
	case name == "":
		o.Errorf(field, "required")
	case len(name) > maxRoleName:
		o.Errorf(field, "%q has %d characters; %d are the most that leave room for an index in a host name", short(name), len(name), maxRoleName)
	default:
		o.Label(field, name)
	}
}

// SetRole labels a finished template with its role, by which overlays find it.
func SetRole(t *corev1.PodTemplateSpec, role string) {
	labels := maps.Clone(t.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[repo.LabelRole] = role
	t.Labels = labels
}
