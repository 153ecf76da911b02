package framework

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// The barrier of upstream is an init container that waits until every pod has
// an address and writes them into a volume. Here addresses are names that are
// known before any pod is, so the container is taken out, and what it would have
// written comes from a ConfigMap of the run.
const (
	barrierPath   = "/mnt/frameworkbarrier"
	injectorFile  = "injector.sh"
	frameworkFile = "framework.json"
	// maxBarrier keeps the ConfigMap below the mebibyte that one may have.
	maxBarrier = 900 << 10
	// perTask is about what a task takes of it: its address in both files.
	perTask = 400
)

var barrierImage = regexp.MustCompile(`(^|/)frameworkcontroller/frameworkbarrier(:[^/]*)?(@[^/]*)?$`)

func barrierName(job string) string { return job + "-barrier" }

// barrier takes the barrier out of a role's pod.
func (r *reader) barrier(at string, pod *corev1.PodSpec) {
	i := slices.IndexFunc(pod.InitContainers, func(c corev1.Container) bool { return barrierImage.MatchString(c.Image) })
	if i < 0 {
		return
	}
	c := pod.InitContainers[i]
	r.barrierVariables(manifest.Item(at+".spec.initContainers", i), c.Env)
	if !r.barred { // once is enough
		r.o.Warnf(manifest.Item(at+".spec.initContainers", i), "the barrier is built in and waits for nothing: the addresses that it gives are names known in advance, and may not answer at once")
	}
	pod.InitContainers = slices.Delete(pod.InitContainers, i, i+1)
	r.barred = true
	m := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == barrierPath })
	if m < 0 {
		return // nobody could have read what it wrote
	}
	mount := c.VolumeMounts[m]
	for v := range pod.Volumes {
		volume := &pod.Volumes[v]
		if volume.Name != mount.Name {
			continue
		}
		if volume.EmptyDir == nil && volume.VolumeSource != (corev1.VolumeSource{}) {
			r.o.Errorf(manifest.Item(at+".spec.volumes", v), "the volume that the barrier writes to has to be an emptyDir, as %s and %s take its place", injectorFile, frameworkFile)
			return
		}
		volume.VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: barrierName(r.name)},
			DefaultMode:          new(int32(0o755)), // the script may be run, too
			Items: []corev1.KeyToPath{
				{Key: injectorFile, Path: path.Join(mount.SubPath, injectorFile)},
				{Key: frameworkFile, Path: path.Join(mount.SubPath, frameworkFile)},
			},
		}}
	}
}

// barrierVariables are checked as the barrier did, which ended for good by a bad one.
func (r *reader) barrierVariables(at string, env []corev1.EnvVar) {
	bounds := map[string][2]int64{"BARRIER_CHECK_INTERVAL_SEC": {5, 1 << 40}, "BARRIER_CHECK_TIMEOUT_SEC": {60, 1200}}
	for i, e := range env {
		b, ok := bounds[e.Name]
		if !ok || e.Value == "" || strings.ContainsAny(e.Value, "${") {
			continue // a value that is known at run time only
		}
		if n, err := strconv.ParseInt(e.Value, 10, 64); err != nil || n < b[0] || n > b[1] {
			want := fmt.Sprintf("%d to %d", b[0], b[1])
			if b[1] == 1<<40 {
				want = fmt.Sprintf("%d or more", b[0])
			}
			r.o.Errorf(manifest.Item(at+".env", i)+".value", "want a number of seconds, %s, not %q", want, e.Value)
		}
	}
}

// barrierFiles are the ConfigMap with what the barrier writes.
func (r *reader) barrierFiles(job *repo.Job) {
	if !r.barred || r.o.Failed() {
		return
	}
	state, err := r.frameworkObject(job)
	if err != nil {
		r.o.Errorf("spec", "%v", err)
		return
	}
	if n := len(state) + job.Tasks()*perTask; n > maxBarrier {
		r.o.Errorf("spec.taskRoles", "%d tasks are too many for a barrier: their addresses do not fit into a ConfigMap", job.Tasks())
		return
	}
	m := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: barrierName(job.Name)},
		Data:       map[string]string{injectorFile: injector(job), frameworkFile: state},
	}
	raw, err := json.Marshal(m)
	if err != nil {
		r.o.Errorf("spec", "%v", err)
		return
	}
	job.Objects = append(job.Objects, repo.Object{APIVersion: m.APIVersion, Kind: m.Kind, Name: m.Name, Raw: raw, Expand: true})
}

// injector is a script that a task's own script reads. It says what it sets,
// as upstream's does.
func injector(job *repo.Job) string {
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	set := func(name, value string) { fmt.Fprintf(&b, "export %s=%s\necho %s=${%s}\n", name, value, name, name) }
	for i := range job.Roles {
		role := job.Roles[i].Name
		set(variable(role, "IPS"), fmt.Sprintf(`{{hosts "," %q}}`, role))
	}
	for i := range job.Roles {
		role := job.Roles[i].Name
		port := ":${" + variable(role, "PORT") + "}" // which the caller has set
		set(variable(role, "ADDRESSES"), fmt.Sprintf(`{{hosts %q %q}}{{if replicas %q}}%s{{end}}`, port+",", role, role, port))
	}
	return b.String()
}

// variable of a role. Upstream has no role with a dash, nor a shell a variable.
func variable(role, what string) string {
	return "FB_" + strings.ToUpper(strings.ReplaceAll(role, "-", "_")) + "_" + what
}

// frameworkObject is the Framework as the barrier wrote it: as it is defined,
// and in its status where the tasks are.
func (r *reader) frameworkObject(job *repo.Job) (string, error) {
	text, err := json.Marshal(map[string]any{
		"apiVersion": job.APIVersion, "kind": job.Kind,
		"metadata": map[string]any{"name": job.Name, "namespace": job.Namespace},
		"spec":     r.o.Content()["spec"],
	})
	if err != nil {
		return "", err
	}
	defined, ok := strings.CutSuffix(string(text), "}")
	if !ok {
		return "", fmt.Errorf("%s is no object", job.Key)
	}
	var roles []string
	for i := range job.Roles {
		role := job.Roles[i].Name
		roles = append(roles, fmt.Sprintf(`{"name":%q,"taskStatuses":[{{range $i := replicas %q}}{{if $i}},{{end}}`+
			`{"index":{{$i}},"attemptStatus":{"podIP":"{{host %q $i}}"}}{{end}}]}`, role, role, role))
	}
	status := fmt.Sprintf(`,"status":{"attemptStatus":{"id":{{.RunAttempt}},"instanceUID":"{{.RunAttempt}}_`+attemptUID+`","configMapName":%q,"taskRoleStatuses":[%s]}}}`,
		job.Name+"-attempt", strings.Join(roles, ","))
	return literal(defined) + status, nil
}

// literal is a template for text of a file, which may look like one.
func literal(text string) string {
	if !strings.Contains(text, "{{") {
		return text
	}
	return "{{" + strconv.Quote(text) + "}}"
}
