package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

var podKind = resid.NewGvk("", "v1", "Pod")

// podsFile holds the pods of a unit's roles in the file system of a build.
const podsFile = ".trainyard-pods.json"

// applyToPods runs one pod for each role of the jobs through the environment's
// overlay and puts the result back into the role. It returns, for each job and
// role, what the overlay changed, as a JSON merge patch.
func applyToPods(jobs []*repo.Job, o *overlay, settings repo.Settings) (changes []map[string]json.RawMessage, problems [][]*repo.Error, err error) {
	changes, problems = make([]map[string]json.RawMessage, len(jobs)), make([][]*repo.Error, len(jobs))
	if !o.exists() || !o.pods || len(jobs) == 0 {
		return changes, problems, nil
	}
	if err := o.tooMuchFor(jobs); err != nil {
		return nil, nil, err
	}
	before := map[string][]byte{}
	var keys, texts []string
	for _, job := range jobs {
		for i := range job.Roles {
			key := podName(job, &job.Roles[i])
			if before[key], err = encode(podOf(job, &job.Roles[i])); err != nil {
				return nil, nil, err
			}
			var object map[string]any
			if err := json.Unmarshal(before[key], &object); err != nil {
				return nil, nil, err
			}
			mark(object, key)
			text, err := encode(object)
			if err != nil {
				return nil, nil, err
			}
			keys, texts = append(keys, key), append(texts, string(text))
		}
	}
	all, err := build(plan{resources: []string{podsFile}, overlay: o, served: map[string][]byte{podsFile: []byte(strings.Join(texts, "---\n"))}})
	if err != nil {
		return nil, nil, err
	}
	after := podsByKey(all, keys)
	for n, job := range jobs {
		changes[n] = map[string]json.RawMessage{}
		for i := range job.Roles {
			role := &job.Roles[i]
			key := podName(job, role)
			change, wrong, err := takePod(role, before[key], after[key], settings)
			if err != nil {
				return nil, nil, fmt.Errorf("role %s: %w", role.Name, err)
			}
			for _, w := range wrong {
				problems[n] = append(problems[n], &repo.Error{File: o.file, Message: fmt.Sprintf("on the pods of role %s of job %s: %s", role.Name, job.Key, w)})
			}
			if change != nil {
				changes[n][role.Name] = change
			}
		}
	}
	return changes, problems, nil
}

// tooMuchFor bounds the work of a build of pods.
func (o *overlay) tooMuchFor(jobs []*repo.Job) error {
	roles := 0
	for _, job := range jobs {
		roles += len(job.Roles)
	}
	if roles > maxObjects || roles*(1+o.changes()) > maxWork {
		return fmt.Errorf("%d roles are too many for one unit that an overlay is applied to", roles)
	}
	return nil
}

// podsByKey finds the pods again: by their mark, or by their place when a patch
// has replaced all annotations of one.
func podsByKey(all []built, keys []string) map[string]map[string]any {
	var pods []built
	for _, b := range all {
		if b.object["kind"] == podKind.Kind {
			pods = append(pods, b)
		}
	}
	after := make(map[string]map[string]any, len(keys))
	for i, b := range pods {
		if b.key == "" && len(pods) == len(keys) {
			b.key = keys[i]
		}
		after[b.key] = b.object
	}
	return after
}

// podName has a dot, which neither job nor role may have: no two are the same.
func podName(job *repo.Job, role *repo.Role) string { return job.Name + "." + role.Name }

// podOf is the pod that stands for all tasks of a role. Overlays find it by
// its labels: those of the role, and those of the job.
func podOf(job *repo.Job, role *repo.Role) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: *role.Template.ObjectMeta.DeepCopy(),
		Spec:       role.Template.Spec,
	}
	pod.Name, pod.Namespace = podName(job, role), job.Namespace
	labels := maps.Clone(job.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, pod.Labels)
	labels[repo.LabelJob], labels[repo.LabelRole] = job.Name, role.Name
	pod.Labels = labels
	return pod
}

// takePod puts a patched pod back into its role. Labels that the pod had for
// the overlay to find it are left out again.
func takePod(role *repo.Role, before []byte, after map[string]any, settings repo.Settings) (change json.RawMessage, wrong []string, err error) {
	if after == nil {
		return nil, []string{"the overlay deletes them"}, nil
	}
	var was, is corev1.Pod
	var old map[string]any
	if err := errors.Join(json.Unmarshal(before, &was), json.Unmarshal(before, &old)); err != nil {
		return nil, nil, err
	}
	sorter{"name"}.reorder(after, old, []string{"spec", "containers"}, "name")
	o := manifest.NewObject(after, nil, settings)
	o.Decode("", &is, manifest.Options{})
	manifest.RenameResources(o, "spec", &is.Spec)
	manifest.CheckResources(o, "spec", &is.Spec)
	errs, _ := repo.Split(o.Problems())
	for _, e := range errs {
		wrong = append(wrong, fmt.Sprintf("%s: %s", e.Field, e.Message))
	}
	if len(wrong) > 0 {
		return nil, wrong, nil
	}
	is.Name, is.Namespace = was.Name, was.Namespace
	for k, v := range was.Labels {
		if _, own := role.Template.Labels[k]; !own && is.Labels[k] == v {
			delete(is.Labels, k)
		}
	}
	was.Labels = role.Template.Labels
	template := corev1.PodTemplateSpec{ObjectMeta: is.ObjectMeta, Spec: is.Spec}
	template.Name, template.Namespace = role.Template.Name, role.Template.Namespace
	if len(template.Labels) == 0 {
		template.Labels = nil
	}
	if change, err = mergePatch(role.Template, template); err != nil {
		return nil, nil, err
	}
	role.Template = template
	return change, nil, nil
}
