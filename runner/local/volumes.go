package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// memoryRoot is where systems keep files in memory that everybody may use.
const memoryRoot = "/dev/shm"

// materialize makes a pod's volumes and returns where each really lies.
func (s *source) materialize() (map[string]string, error) {
	paths := map[string]string{}
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		path, err := s.volume(v)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		paths[v.Name] = path
	}
	return paths, nil
}

func (s *source) volume(v *corev1.Volume) (string, error) {
	dir := filepath.Join(s.dir, volumesDir, v.Name)
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, hostPath(v.HostPath)
	case v.EmptyDir != nil:
		if v.EmptyDir.Medium == corev1.StorageMediumMemory && inMemory(memoryRoot) {
			dir = filepath.Join(memoryDir(s.pod.UID), v.Name)
			if err := makeDir(memoryDir(s.pod.UID), 0o700); err != nil {
				return "", err
			}
		}
		return dir, makeDir(dir, 0o777)
	case v.ConfigMap != nil:
		return dir, s.configMap(dir, v.ConfigMap.LocalObjectReference, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		return dir, s.downward(dir, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		return dir, s.projected(dir, v.Projected)
	}
	return "", fmt.Errorf("is %s volume: the local runner cannot mount it", article(sourceKind(v)))
}

// sourceKind is the name of the field that says what a volume is: nfs.
func sourceKind(v *corev1.Volume) string {
	var fields map[string]json.RawMessage
	text, err := json.Marshal(v.VolumeSource)
	if err == nil && json.Unmarshal(text, &fields) == nil {
		for _, name := range sortedKeys(fields) {
			return name
		}
	}
	return "unknown"
}

func article(word string) string {
	// "an nfs": the letters are said one by one.
	if strings.ContainsRune("aeiou", rune(word[0])) || word == "nfs" || word == "rbd" {
		return "an " + word
	}
	return "a " + word
}

func hostPath(h *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	if !filepath.IsAbs(h.Path) {
		return fmt.Errorf("hostPath %q is not an absolute path", h.Path)
	}
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case corev1.HostPathDirectoryOrCreate:
			return os.MkdirAll(h.Path, 0o755)
		case corev1.HostPathFileOrCreate:
			return os.WriteFile(h.Path, nil, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("hostPath %s: %w", h.Path, plain(err))
	}
	mode := info.Mode()
	fits := map[corev1.HostPathType]bool{
		corev1.HostPathUnset: true, corev1.HostPathDirectory: mode.IsDir(), corev1.HostPathDirectoryOrCreate: mode.IsDir(),
		corev1.HostPathFile: mode.IsRegular(), corev1.HostPathFileOrCreate: mode.IsRegular(), corev1.HostPathSocket: mode&fs.ModeSocket != 0,
		corev1.HostPathCharDev: mode&fs.ModeCharDevice != 0, corev1.HostPathBlockDev: mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0,
	}
	if !fits[kind] {
		return fmt.Errorf("hostPath %s is no %s", h.Path, kind)
	}
	return nil
}

// makeDir makes a directory of exactly that mode, whatever the umask.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// memoryDir holds a pod's volumes in memory. Everybody may write where it
// lies, so it is the owner's alone.
func memoryDir(uid types.UID) string { return filepath.Join(memoryRoot, "trainyard-"+string(uid)) }

// discardMemory removes what a pod left in memory.
func discardMemory(uid types.UID) error {
	if uid == "" || !exists(memoryDir(uid)) {
		return nil
	}
	return scrub(memoryDir(uid))
}

func (s *source) configMap(dir string, ref corev1.LocalObjectReference, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	if err := makeDir(dir, 0o777); err != nil {
		return err
	}
	m, found := s.maps[ref.Name]
	if !found {
		if yes(optional) {
			return nil
		}
		return fmt.Errorf("configmap %q not found", ref.Name)
	}
	content := map[string][]byte{}
	for k, v := range m.Data {
		content[k] = []byte(v)
	}
	for k, v := range m.BinaryData {
		content[k] = v
	}
	if len(items) == 0 {
		for _, k := range sortedKeys(content) {
			items = append(items, corev1.KeyToPath{Key: k, Path: k})
		}
	}
	for _, item := range items {
		text, ok := content[item.Key]
		if !ok {
			if yes(optional) {
				continue
			}
			return fmt.Errorf("configmap %q has no key %q", ref.Name, item.Key)
		}
		if err := place(dir, item.Path, text, item.Mode, mode); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) downward(dir string, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	if err := makeDir(dir, 0o777); err != nil {
		return err
	}
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = s.field(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = s.resource(nil, item.ResourceFieldRef)
		}
		if err == nil {
			err = place(dir, item.Path, []byte(text), item.Mode, mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *source) projected(dir string, p *corev1.ProjectedVolumeSource) error {
	if err := makeDir(dir, 0o777); err != nil {
		return err
	}
	for _, part := range p.Sources {
		var err error
		switch {
		case part.ConfigMap != nil:
			err = s.configMap(dir, part.ConfigMap.LocalObjectReference, part.ConfigMap.Items, p.DefaultMode, part.ConfigMap.Optional)
		case part.DownwardAPI != nil:
			err = s.downward(dir, part.DownwardAPI.Items, p.DefaultMode)
		case part.Secret != nil && yes(part.Secret.Optional):
		default:
			err = errors.New("the local runner can project config maps and fields of the pod, nothing else")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// place writes one file of a volume; its path stays within the volume.
func place(dir, path string, text []byte, mode, fallback *int32) error {
	if !filepath.IsLocal(path) {
		return fmt.Errorf("path %q leads out of the volume", path)
	}
	perm := os.FileMode(0o644)
	for _, m := range []*int32{fallback, mode} {
		if m != nil {
			perm = os.FileMode(*m) & 0o777
		}
	}
	file := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	_ = os.Remove(file)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	return os.Chmod(file, perm)
}

// mount is one thing that a container sees at another place than it lies.
type mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// mounts are a container's, with the environment for subPathExpr.
func (s *source) mounts(c *corev1.Container, environ []string) ([]mount, error) {
	var out []mount
	for _, m := range c.VolumeMounts {
		real, ok := s.volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("volume %q is not known", m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, func(n string) (string, bool) { return lookup(environ, n) })
		}
		if sub != "" {
			var err error
			if real, err = within(real, sub); err != nil {
				return nil, fmt.Errorf("volume %q: subPath %q: %w", m.Name, sub, err)
			}
		}
		out = append(out, mount{Source: real, Target: filepath.Clean(m.MountPath), ReadOnly: m.ReadOnly})
	}
	if p := c.TerminationMessagePath; p != "" && p != corev1.TerminationMessagePathDefault && filepath.IsAbs(p) {
		file := filepath.Join(s.dir, messagesDir, c.Name)
		out = append(out, mount{Source: file, Target: filepath.Clean(p)})
	}
	return out, nil
}

// within is a path below a volume that no symbolic link leads out of; a
// directory is made when nothing is there.
func within(volume, sub string) (string, error) {
	if !filepath.IsLocal(sub) {
		return "", errors.New("leads out of the volume")
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.Stat(sub); errors.Is(err, fs.ErrNotExist) {
		if err := root.MkdirAll(sub, 0o750); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(filepath.Join(volume, sub))
}

// inMemory says whether a directory is there to keep files in memory.
func inMemory(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// referred are those config maps that a pod can come to need.
func referred(pod *corev1.Pod, maps map[string]corev1.ConfigMap) map[string]corev1.ConfigMap {
	text, err := json.Marshal(pod.Spec)
	out := map[string]corev1.ConfigMap{}
	for name, m := range maps {
		quoted, _ := json.Marshal(name)
		if err == nil && strings.Contains(string(text), string(quoted)) {
			out[name] = m
		}
	}
	return out
}
