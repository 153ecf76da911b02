package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Variables by which a pod's processes are found again whatever they do.
const (
	markPod       = "TRAINYARD_POD_UID"
	markContainer = "TRAINYARD_CONTAINER"
	// volumeVariable with the volume's name says where a volume really lies.
	volumeVariable  = "TRAINYARD_VOLUME_"
	messageVariable = "TRAINYARD_TERMINATION_LOG"
)

// baseEnvironment is all that passes from the daemon's environment to a pod.
func baseEnvironment(environ []string) []string {
	base := []string{}
	for _, name := range []string{"PATH", "LANG", "LC_ALL", "USER", "TMPDIR"} {
		if v, ok := lookup(environ, name); ok {
			base = append(base, name+"="+v)
		}
	}
	if _, ok := lookup(base, "PATH"); !ok {
		base = append(base, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return base
}

// lookup finds a variable; the last one of a name counts.
func lookup(environ []string, name string) (string, bool) {
	for _, kv := range slices.Backward(environ) {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}

// expand replaces $(NAME) as Kubernetes does: $$ is a dollar, and what names no
// variable stays as it is.
func expand(text string, value func(string) (string, bool)) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		switch text[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(text[i+2:], ')')
			if end < 0 {
				b.WriteString("$(")
				i++
				continue
			}
			name := text[i+2 : i+2+end]
			if v, ok := value(name); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$(" + name + ")")
			}
			i += 2 + end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

// source is what values of a container's environment may come from.
type source struct {
	pod     *corev1.Pod
	order   *order
	maps    map[string]corev1.ConfigMap
	base    []string
	dir     string            // of the pod, absolute
	volumes map[string]string // real paths
}

// environment makes a container's environment. Variables come in order; each
// may refer to those before it. What keeps the pod findable and its GPUs its
// own comes last and cannot be replaced.
func (s *source) environment(c *corev1.Container) ([]string, error) {
	env := newVariables(s.base)
	env.set("HOME", filepath.Join(s.dir, workDir))
	for name, path := range s.volumes {
		env.set(volumeVariable+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), path)
	}
	env.set(messageVariable, filepath.Join(s.dir, messagesDir, c.Name))
	for _, from := range c.EnvFrom {
		if err := s.all(env, from); err != nil {
			return nil, err
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			env.set(e.Name, expand(e.Value, env.get))
			continue
		}
		v, ok, err := s.value(c, e.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		if ok {
			env.set(e.Name, v)
		}
	}
	s.devices(env, c.Name)
	env.set(markPod, string(s.pod.UID))
	env.set(markContainer, string(s.pod.UID)+"/"+c.Name)
	return env.list(), nil
}

// devices shows a container its own GPUs and no others.
func (s *source) devices(env *variables, container string) {
	gpus := s.order.GPUs[container]
	if len(gpus) == 0 {
		env.set("CUDA_VISIBLE_DEVICES", "")
		env.set("NVIDIA_VISIBLE_DEVICES", "void")
		return
	}
	var indices, ids []string
	for _, i := range gpus {
		indices = append(indices, strconv.Itoa(i))
		id := s.order.UUIDs[i]
		if id == "" {
			id = strconv.Itoa(i)
		}
		ids = append(ids, id)
	}
	// CUDA counts by speed unless it is told to count as nvidia-smi does.
	env.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	env.set("CUDA_VISIBLE_DEVICES", strings.Join(indices, ","))
	env.set("NVIDIA_VISIBLE_DEVICES", strings.Join(ids, ","))
}

func (s *source) all(env *variables, from corev1.EnvFromSource) error {
	if from.ConfigMapRef == nil {
		return nil
	}
	m, ok := s.maps[from.ConfigMapRef.Name]
	if !ok {
		if yes(from.ConfigMapRef.Optional) {
			return nil
		}
		return fmt.Errorf("configmap %q not found", from.ConfigMapRef.Name)
	}
	for _, k := range sortedKeys(m.Data) {
		if !strings.ContainsAny(k, "=\x00") {
			env.set(from.Prefix+k, m.Data[k])
		}
	}
	return nil
}

func (s *source) value(c *corev1.Container, from *corev1.EnvVarSource) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		v, err := s.field(from.FieldRef.FieldPath)
		return v, true, err
	case from.ResourceFieldRef != nil:
		v, err := s.resource(c, from.ResourceFieldRef)
		return v, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, found := s.maps[ref.Name]
		v, ok := m.Data[ref.Key]
		if !ok && !yes(ref.Optional) {
			if !found {
				return "", false, fmt.Errorf("configmap %q not found", ref.Name)
			}
			return "", false, fmt.Errorf("configmap %q has no key %q", ref.Name, ref.Key)
		}
		return v, ok, nil
	case from.SecretKeyRef != nil && yes(from.SecretKeyRef.Optional):
		return "", false, nil
	}
	return "", false, errors.New("the local runner cannot tell this kind of value")
}

// field is the value of a field of the pod.
func (s *source) field(path string) (string, error) {
	if name, ok := subscript(path, "metadata.labels"); ok {
		return s.pod.Labels[name], nil
	}
	if name, ok := subscript(path, "metadata.annotations"); ok {
		return s.pod.Annotations[name], nil
	}
	switch path {
	case "metadata.name":
		return s.pod.Name, nil
	case "metadata.namespace":
		return s.pod.Namespace, nil
	case "metadata.uid":
		return string(s.pod.UID), nil
	case "metadata.labels":
		return listing(s.pod.Labels), nil
	case "metadata.annotations":
		return listing(s.pod.Annotations), nil
	case "spec.nodeName":
		return s.order.Node, nil
	case "spec.serviceAccountName":
		if s.pod.Spec.ServiceAccountName == "" {
			return "default", nil
		}
		return s.pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs":
		return loopback, nil
	}
	return "", fmt.Errorf("field %q is not known", path)
}

func subscript(path, field string) (string, bool) {
	name, ok := strings.CutPrefix(path, field+"['")
	if !ok || !strings.HasSuffix(name, "']") {
		return "", false
	}
	return strings.TrimSuffix(name, "']"), true
}

// listing is how the downward API writes labels: one a line, sorted.
func listing(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range sortedKeys(m) {
		lines = append(lines, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(lines, "\n")
}

// resource is a request or limit of a container, divided and rounded up. A
// limit that is not set is all that the machine has.
func (s *source) resource(c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && (c == nil || ref.ContainerName != c.Name) {
		c = s.container(ref.ContainerName)
	}
	if c == nil {
		return "", fmt.Errorf("resource %q: no container %q", ref.Resource, ref.ContainerName)
	}
	kind, rest, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(rest)
	var q resource.Quantity
	switch kind {
	case "limits":
		set := false
		if q, set = c.Resources.Limits[name]; !set {
			q = s.order.Capacity[name]
		}
	case "requests":
		set := false
		if q, set = c.Resources.Requests[name]; !set {
			q = c.Resources.Limits[name]
		}
	default:
		return "", fmt.Errorf("resource %q is not known", ref.Resource)
	}
	divisor := int64(1000) // CPUs are counted in thousandths
	if name != corev1.ResourceCPU {
		divisor = 1
	}
	if !ref.Divisor.IsZero() {
		divisor = max(1, amount(name, ref.Divisor))
	}
	return strconv.FormatInt((amount(name, q)+divisor-1)/divisor, 10), nil
}

func (s *source) container(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{s.pod.Spec.InitContainers, s.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// variables are an environment in order, each name once.
type variables struct {
	names  []string
	values map[string]string
}

func newVariables(base []string) *variables {
	v := &variables{values: map[string]string{}}
	for _, kv := range base {
		name, value, _ := strings.Cut(kv, "=")
		v.set(name, value)
	}
	return v
}

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *variables) get(name string) (string, bool) {
	value, ok := v.values[name]
	return value, ok
}

func (v *variables) list() []string {
	out := make([]string, 0, len(v.names))
	for _, name := range v.names {
		if !strings.ContainsRune(v.values[name], 0) {
			out = append(out, name+"="+v.values[name])
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// decodeConfigMaps picks the config maps out of a run's objects.
func decodeConfigMaps(objects []repo.Object) (map[string]corev1.ConfigMap, error) {
	found := map[string]corev1.ConfigMap{}
	for _, o := range objects {
		if o.Kind != "ConfigMap" || o.APIVersion != "v1" {
			continue
		}
		var m corev1.ConfigMap
		if err := json.Unmarshal(o.Raw, &m); err != nil {
			return nil, fmt.Errorf("configmap %q: %w", o.Name, err)
		}
		found[o.Name] = m
	}
	return found, nil
}

// lookPath finds a command as execvp does: by the container's PATH, and names
// with a slash from its working directory.
func lookPath(command, dir string, environ []string) (string, error) {
	usable := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fs.ErrPermission
		}
		return nil
	}
	if strings.Contains(command, "/") {
		path := command
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := usable(path); err != nil {
			return "", &os.PathError{Op: "exec", Path: command, Err: plain(err)}
		}
		return path, nil
	}
	path, _ := lookup(environ, "PATH")
	denied := false
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			continue
		}
		err := usable(filepath.Join(d, command))
		if err == nil {
			return filepath.Join(d, command), nil
		}
		// A directory that may not be searched says nothing about the command.
		denied = denied || errors.Is(err, fs.ErrPermission) && exists(filepath.Join(d, command))
	}
	if denied {
		return "", &os.PathError{Op: "exec", Path: command, Err: fs.ErrPermission}
	}
	return "", &os.PathError{Op: "exec", Path: command, Err: errors.New("no such file in PATH")}
}

func plain(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
