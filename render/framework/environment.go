package framework

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// The objects that upstream made, a ConfigMap for each attempt and a status for
// each role and task, have no counterpart here. Their UIDs are derived from the
// run, so that they are unique in the same way and the same after a restart.
const (
	attemptUID = "{{.Run}}-{{.RunAttempt}}"
	roleUID    = attemptUID + "-{{.Role}}"
	taskUID    = roleUID + "-{{.Index}}"
)

// placeholders are the six names that may stand as {{NAME}} anywhere in a pod.
func placeholders() []string {
	return []string{"FC_FRAMEWORK_NAMESPACE", "FC_FRAMEWORK_NAME", "FC_TASKROLE_NAME", "FC_TASK_INDEX", "FC_CONFIGMAP_NAME", "FC_POD_NAME"}
}

// environment is what every container and init container of a task is given.
func (r *reader) environment() repo.Env {
	if r.launcher {
		return launcherEnvironment()
	}
	vars := []corev1.EnvVar{
		{Name: "FC_FRAMEWORK_NAMESPACE", Value: "{{.Namespace}}"},
		{Name: "FC_FRAMEWORK_NAME", Value: "{{.Job}}"},
		{Name: "FC_TASKROLE_NAME", Value: "{{.Role}}"},
		{Name: "FC_TASK_INDEX", Value: "{{.Index}}"},
		{Name: "FC_CONFIGMAP_NAME", Value: "{{.Job}}-attempt"},
		{Name: "FC_POD_NAME", Value: "{{.Pod}}"},
		{Name: "FC_FRAMEWORK_UID", Value: "{{.Run}}"},
		{Name: "FC_FRAMEWORK_ATTEMPT_ID", Value: "{{.RunAttempt}}"},
		{Name: "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID", Value: "{{.RunAttempt}}_" + attemptUID},
		{Name: "FC_CONFIGMAP_UID", Value: attemptUID},
		{Name: "FC_TASKROLE_UID", Value: roleUID},
		{Name: "FC_TASK_UID", Value: taskUID},
		{Name: "FC_TASK_ATTEMPT_ID", Value: "{{.Attempt}}"},
		podUID("FC_POD_UID"),
		{Name: "FC_TASK_ATTEMPT_INSTANCE_UID", Value: "{{.Attempt}}_$(FC_POD_UID)"},
	}
	return repo.Env{Vars: vars, Init: true, Placeholders: placeholders(), Annotations: values(vars[:13]), Labels: values(vars[1:4])}
}

// launcherEnvironment has no prefix, and comes behind the user's variables.
func launcherEnvironment() repo.Env {
	vars := []corev1.EnvVar{
		{Name: "FRAMEWORK_NAME", Value: "{{.Job}}"},
		{Name: "TASKROLE_NAME", Value: "{{.Role}}"},
		{Name: "TASK_INDEX", Value: "{{.Index}}"},
		{Name: "CONFIGMAP_NAME", Value: "{{.Job}}-attempt"},
		{Name: "POD_NAME", Value: "{{.Pod}}"},
		{Name: "POD_NAMESPACE", Value: "{{.Namespace}}"},
		{Name: "FRAMEWORK_ATTEMPT_ID", Value: "{{.RunAttempt}}"},
		{Name: "FRAMEWORK_ATTEMPT_INSTANCE_UID", Value: "{{.RunAttempt}}_" + attemptUID},
		{Name: "CONFIGMAP_UID", Value: attemptUID},
		{Name: "TASK_ATTEMPT_ID", Value: "{{.Attempt}}"},
		podUID("POD_UID"),
		{Name: "TASK_ATTEMPT_INSTANCE_UID", Value: "{{.Attempt}}_$(POD_UID)"},
	}
	return repo.Env{Vars: vars, Init: true, Last: true, Annotations: values(vars[:10]), Labels: values(vars[:2])}
}

func podUID(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}
}

func values(vars []corev1.EnvVar) map[string]string {
	m := make(map[string]string, len(vars))
	for _, v := range vars {
		m[v.Name] = v.Value
	}
	return m
}

// withoutPlaceholders is the template as a pod could have it, for checking.
func withoutPlaceholders(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	text, err := json.Marshal(t)
	if err != nil || !strings.Contains(string(text), "{{FC_") {
		return t.DeepCopy()
	}
	pairs := make([]string, 0, 12)
	for _, p := range placeholders() {
		value := "x"
		if p == "FC_TASK_INDEX" {
			value = "0"
		}
		pairs = append(pairs, "{{"+p+"}}", value)
	}
	var out corev1.PodTemplateSpec
	if json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(text))), &out) != nil {
		return t.DeepCopy()
	}
	return &out
}
