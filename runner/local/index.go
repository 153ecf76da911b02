package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// entry is what the backend remembers of a pod's directory. The files are the
// truth; an entry saves reading again those that never change.
type entry struct {
	dir     string
	file    os.FileInfo // of pod.json, when it was read
	pod     *corev1.Pod
	outcome *corev1.PodStatus // once there is one
	// deletion is what delete.json says; read anew each time.
	deletion *request
	seen     string // signature of the files when a watch was last told
}

// order is admitted.json: the pod's place on the machine, and all that its shim has to know.
type order struct {
	At         time.Time           `json:"at"`
	Node       string              `json:"node"`
	GPUs       map[string][]int    `json:"gpus,omitempty"`  // by container
	UUIDs      map[int]string      `json:"uuids,omitempty"` // of those GPUs
	Capacity   corev1.ResourceList `json:"capacity"`
	ShimArgs   []string            `json:"shimArgs"`
	LogLimit   int64               `json:"logLimit"`
	Backoff    time.Duration       `json:"backoff"`
	BackoffMax time.Duration       `json:"backoffMax"`
	NoMounts   bool                `json:"noMounts,omitempty"`
}

// request is delete.json.
type request struct {
	At    time.Time `json:"at"`
	Grace int64     `json:"grace"` // seconds, from At
}

func (r request) deadline() time.Time { return r.At.Add(seconds(r.Grace)) }

// seconds is a time that somebody wrote as a number: below zero is zero, and
// more than a century is a century, where a multiplication would turn round.
func seconds(n int64) time.Duration {
	const century = 100 * 365 * 24 * 3600
	return time.Duration(min(max(0, n), century)) * time.Second
}

// list reads the pods of a namespace, or of all (""), of every environment
// that shares the directory. It is all of them or an error: a pod that is
// missing from a list would be taken for lost.
func (b *Backend) list(namespace string) ([]*entry, error) {
	return b.listOnly(namespace, func(*corev1.Pod) bool { return true })
}

// listOnly is list without the pods that are known not to be wanted: whose pod
// a directory is never changes, so its files need not be looked at for that.
func (b *Backend) listOnly(namespace string, want func(*corev1.Pod) bool) ([]*entry, error) {
	dirs, err := b.podDirs(namespace)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		e := b.pods[dir]
		return e != nil && !want(e.pod)
	})
	b.mu.Unlock()
	out := make([]*entry, 0, len(dirs))
	for _, dir := range dirs {
		e, err := b.entry(dir)
		if err != nil {
			return nil, err
		}
		if e != nil && want(e.pod) {
			out = append(out, e)
		}
	}
	return out, nil
}

// podDirs are the directories of pods, sorted.
func (b *Backend) podDirs(namespace string) ([]string, error) {
	root := filepath.Join(b.dir, "pods")
	namespaces := []string{namespace}
	if namespace == "" {
		var err error
		if namespaces, err = visible(root); err != nil {
			return nil, err
		}
	}
	var dirs []string
	for _, n := range namespaces {
		names, err := visible(filepath.Join(root, n))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			dirs = append(dirs, filepath.Join(root, n, name))
		}
	}
	return dirs, nil
}

// visible are the sorted names in a directory that do not begin with a dot.
func visible(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, f := range found {
		if !strings.HasPrefix(f.Name(), ".") {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

// ours says whether a pod is of this backend's environment: two of them may share a directory.
func (b *Backend) ours(pod *corev1.Pod) bool {
	env, labelled := pod.Labels[repo.LabelEnvironment]
	return !labelled || env == b.environment
}

// entry reads one pod's directory; nil when there is no pod. The caller must
// not change what it is given.
func (b *Backend) entry(dir string) (*entry, error) {
	path := filepath.Join(dir, podFile)
	info, err := os.Lstat(path)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.pods[dir]
	if err != nil {
		b.drop(dir)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return nil, fmt.Errorf("read pod %s: %w", filepath.Base(dir), err)
		}
		if exists(dir) {
			return nil, fmt.Errorf("read pod %s: %w: %w", filepath.Base(dir), errDamaged, err)
		}
		return nil, nil
	}
	if e == nil || !os.SameFile(e.file, info) || !e.file.ModTime().Equal(info.ModTime()) {
		pod := &corev1.Pod{}
		err := readPod(path, pod)
		if errors.Is(err, errDamaged) {
			err = b.heal(dir, pod, err)
		}
		if err != nil {
			b.drop(dir)
			return nil, err
		}
		e = &entry{dir: dir, file: info, pod: pod}
		b.pods[dir] = e
	}
	if e.outcome == nil {
		var outcome corev1.PodStatus
		err := readOptional(filepath.Join(dir, outcomeFile), &outcome)
		if err != nil && !errors.Is(err, errDamaged) { // a damaged outcome is none: the pod is lost
			return nil, err
		}
		if err == nil && outcome.Phase != "" {
			e.outcome = &outcome
		}
	}
	copied := *e
	copied.deletion, err = readDeletion(&copied)
	return &copied, err
}

// readPod reads a pod, and refuses one that does not belong where it lies.
func readPod(path string, pod *corev1.Pod) error {
	err := read(path, pod)
	if name := filepath.Base(filepath.Dir(path)); err == nil && (pod.UID == "" || pod.Name != name) {
		err = fmt.Errorf("read pod %s: %w", name, errDamaged)
	}
	return err
}

// heal reads a pod from the copy of its file, and puts that in the file's place;
// why is what is wrong with the file.
func (b *Backend) heal(dir string, pod *corev1.Pod, why error) error {
	*pod = corev1.Pod{}
	if readPod(filepath.Join(dir, podCopy), pod) != nil {
		return why
	}
	b.options.Logger.Warn().Err(why).Msg("the file of a pod is written again from its copy")
	_ = writeDurable(filepath.Join(dir, podFile), pod) // if not now, then with the next look
	return nil
}

// drop forgets a pod that cannot be read; b.mu is held. Whether it has vanished
// is seen by the next pass.
func (b *Backend) drop(dir string) {
	if e := b.pods[dir]; e != nil {
		b.dropped[dir] = e
		delete(b.pods, dir)
	}
}

// readDeletion reads whether a pod was asked to end. A request that is damaged is one.
func readDeletion(e *entry) (*request, error) {
	path := filepath.Join(e.dir, deleteFile)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil
	}
	var r request
	err = read(path, &r)
	if errors.Is(err, errDamaged) {
		return &request{At: info.ModTime(), Grace: grace(e.pod, nil)}, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// held says whether the finalizer still keeps the pod.
func (e *entry) held() bool {
	return slices.Contains(e.pod.Finalizers, repo.Finalizer) && !exists(filepath.Join(e.dir, releasedFile))
}

// shim reads which process holds the pod: fs.ErrNotExist when it was never started.
func (e *entry) shim() (shimState, error) {
	var s shimState
	err := read(filepath.Join(e.dir, shimFile), &s)
	return s, err
}

// signature changes whenever something that a watcher may see has changed.
func (e *entry) signature() string {
	var b strings.Builder
	for _, name := range []string{statusFile, deleteFile, releasedFile, outcomeFile, admittedFile} {
		if info, err := os.Lstat(filepath.Join(e.dir, name)); err == nil {
			b.WriteString(info.ModTime().Format(time.RFC3339Nano))
		}
		b.WriteByte('|')
	}
	return b.String()
}

// grace is how long a pod has to end by itself, in seconds.
func grace(pod *corev1.Pod, override *int64) int64 {
	switch {
	case override != nil:
		return max(0, *override)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return max(0, *pod.Spec.TerminationGracePeriodSeconds)
	}
	return 30
}
