package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/repo-layout/crash"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	runResource = schema.GroupResource{Resource: "runs"}
)

// Create puts a pod up for starting, once: the directory of its name is made
// by a rename that fails when there is one, whatever state that pod is in. When
// Create returns, the pod will be started whatever becomes of this daemon.
func (b *Backend) Create(ctx context.Context, pod *corev1.Pod) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if problems := check(pod); len(problems) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, problems)
	}
	dir := b.podDir(pod.Namespace, pod.Name)
	if exists(dir) {
		return apierrors.NewAlreadyExists(podResource, pod.Name)
	}
	maps, err := b.configMaps(pod)
	if b.unprepared(pod, err) {
		return fmt.Errorf("create pod %s/%s: the run's definition: %w", pod.Namespace, pod.Name, apierrors.NewNotFound(runResource, pod.Labels[repo.LabelRun]))
	}
	if err != nil {
		return fmt.Errorf("create pod %s/%s: config maps: %w", pod.Namespace, pod.Name, err)
	}
	crash.At(crash.PodCreate, crash.Before)
	created := pod.DeepCopy()
	created.UID, created.CreationTimestamp = newUID(), metav1.Now()
	created.DeletionTimestamp, created.DeletionGracePeriodSeconds, created.Status = nil, nil, corev1.PodStatus{}
	if created.Spec.RestartPolicy == "" {
		created.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	err = b.publish(dir, created, referred(created, maps))
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return apierrors.NewAlreadyExists(podResource, pod.Name)
	}
	if err != nil {
		return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	crash.At(crash.PodCreate, crash.After)
	b.wake()
	return nil
}

// unprepared says that what Prepare wrote for a pod's run was deleted since, or
// cannot be read any more: it has to be prepared again.
func (b *Backend) unprepared(pod *corev1.Pod, err error) bool {
	if errors.Is(err, errDamaged) {
		return true
	}
	run := pod.Labels[repo.LabelRun]
	b.preparing.Lock()
	defer b.preparing.Unlock()
	return b.prepared[run] && !exists(filepath.Join(b.runDir(run), runFile))
}

// publish makes a pod's directory: nothing, or all of it.
func (b *Backend) publish(dir string, pod *corev1.Pod, maps map[string]corev1.ConfigMap) error {
	parent := filepath.Dir(dir)
	if !exists(parent) {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(parent)); err != nil {
			return err
		}
	}
	made, err := os.MkdirTemp(parent, ".new-*")
	if err != nil {
		return err
	}
	for _, d := range []string{logsDir, workDir, volumesDir, messagesDir, execDir} {
		if err == nil {
			err = os.Mkdir(filepath.Join(made, d), 0o700)
		}
	}
	if err == nil && len(maps) > 0 {
		err = write(filepath.Join(made, objectsFile), maps, true)
	}
	if err == nil {
		err = write(filepath.Join(made, podCopy), pod, true)
	}
	if err == nil {
		err = writeDurable(filepath.Join(made, podFile), pod)
	}
	crash.At(crash.PodCreate, crash.Half)
	if err == nil {
		err = os.Rename(made, dir)
	}
	if err != nil {
		_ = os.RemoveAll(made)
		return err
	}
	return syncDir(parent)
}

// newUID is a random UUID: what tells a pod from all others of its name.
func newUID() types.UID {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
}

// checkName keeps names from being paths.
func checkName(name, what string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("namespace %q of a %s: %s", name, what, problems[0])
	}
	return nil
}

// check says why a pod could never run here.
func check(pod *corev1.Pod) field.ErrorList {
	var problems field.ErrorList
	add := func(path *field.Path, value any, texts []string) {
		for _, text := range texts {
			problems = append(problems, field.Invalid(path, value, text))
		}
	}
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	add(meta.Child("name"), pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	add(meta.Child("namespace"), pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
	volumes := map[string]bool{}
	for i, v := range pod.Spec.Volumes {
		path := spec.Child("volumes").Index(i)
		add(path.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))
		if volumes[v.Name] {
			problems = append(problems, field.Duplicate(path.Child("name"), v.Name))
		}
		volumes[v.Name] = true
		if v.Secret != nil {
			problems = append(problems, field.Forbidden(path, "the local runner has no secrets"))
		}
	}
	if len(pod.Spec.Containers) == 0 {
		problems = append(problems, field.Required(spec.Child("containers"), "a pod has at least one container"))
	}
	names := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		problems = append(problems, checkContainer(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i], names, volumes)...)
	}
	for i := range pod.Spec.Containers {
		problems = append(problems, checkContainer(spec.Child("containers").Index(i), &pod.Spec.Containers[i], names, volumes)...)
	}
	return problems
}

func checkContainer(path *field.Path, c *corev1.Container, names, volumes map[string]bool) field.ErrorList {
	var problems field.ErrorList
	for _, text := range validation.IsDNS1123Label(c.Name) {
		problems = append(problems, field.Invalid(path.Child("name"), c.Name, text))
	}
	if names[c.Name] {
		problems = append(problems, field.Duplicate(path.Child("name"), c.Name))
	}
	names[c.Name] = true
	if len(c.Command) == 0 {
		problems = append(problems, field.Required(path.Child("command"), fmt.Sprintf("the local runner does not run images: container %q needs a command", c.Name)))
	}
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		if !volumes[m.Name] {
			problems = append(problems, field.NotFound(at.Child("name"), m.Name))
		}
		if clean := filepath.Clean(m.MountPath); !filepath.IsAbs(m.MountPath) || clean == "/" || strings.ContainsRune(m.MountPath, 0) {
			problems = append(problems, field.Invalid(at.Child("mountPath"), m.MountPath, "must be an absolute path below /"))
		}
		if m.SubPath != "" && !filepath.IsLocal(m.SubPath) {
			problems = append(problems, field.Invalid(at.Child("subPath"), m.SubPath, "must be a path within the volume"))
		}
	}
	const noSecrets = "the local runner has no secrets"
	for i, e := range c.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") {
			problems = append(problems, field.Invalid(path.Child("env").Index(i).Child("name"), e.Name, "must be the name of a variable"))
		}
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !yes(e.ValueFrom.SecretKeyRef.Optional) {
			problems = append(problems, field.Forbidden(path.Child("env").Index(i).Child("valueFrom", "secretKeyRef"), noSecrets))
		}
	}
	for i, e := range c.EnvFrom {
		if e.SecretRef != nil && !yes(e.SecretRef.Optional) {
			problems = append(problems, field.Forbidden(path.Child("envFrom").Index(i).Child("secretRef"), noSecrets))
		}
	}
	return problems
}

func yes(b *bool) bool { return b != nil && *b }
