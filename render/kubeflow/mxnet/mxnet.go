// Package mxnet reads MXJob of kubeflow.org/v1, and of v1alpha2 to v1beta2,
// into a repo.Job. MxJob and the list form of v1alpha1 are other formats.
package mxnet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
)

// The types of replicas: the first three train, the others tune.
const (
	scheduler    = "Scheduler"
	server       = "Server"
	worker       = "Worker"
	tunerTracker = "TunerTracker"
	tunerServer  = "TunerServer"
	tuner        = "Tuner"
)

// annotationTuner names what a tuner server tunes for.
const annotationTuner = "tuner-server-key"

func kind() *kubeflow.Kind {
	return &kubeflow.Kind{
		Name: "MXJob", Replicas: "mxReplicaSpecs", Types: []string{scheduler, server, worker, tunerTracker, tunerServer, tuner}, Open: true,
		Container: "mxnet", PortName: "mxjob-port", Port: 9091, Restart: kubeflow.Never, Operator: "mxjob-controller", Prefix: "mxnet",
		Early: map[string]repo.CleanupPods{"v1alpha2": repo.CleanupRunning, "v1beta1": repo.CleanupAll, "v1beta2": repo.CleanupAll},
	}
}

// Format reads MXJob.
func Format() manifest.Format { return kind().Format(spec{}, read) }

func read(o *manifest.Object) *repo.Job {
	j := kind().Begin(o)
	var s spec
	j.Decode(&s)
	j.Take(&s.Spec, s.plain())
	mode(j, s.JobMode)
	success(j)
	config := config(j, s.Replicas)
	for i := range j.Roles {
		r := &j.Roles[i]
		r.Env.Vars = variables(j, r.Name, config)
	}
	return j.Done()
}

// mode is required, and upstream never looks at it.
func mode(j *kubeflow.Job, m string) {
	switch m {
	case "":
		j.O.Errorf("spec.jobMode", "required, one of %s, %s", train, tune)
	case train, tune:
	default:
		j.O.Warnf("spec.jobMode", "%q is not one of %s, %s%s", m, train, tune, manifest.Nearest(m, train, tune))
	}
}

// success is that of the scheduler, or of a worker that is alone. Upstream a job
// of other replicas has no end.
func success(j *kubeflow.Job) {
	j.Master(server, false) // so it is upstream: every server
	if j.Type(scheduler) != nil {
		if j.Type(scheduler).Replicas > 1 {
			j.O.Errorf(j.Path(scheduler)+".replicas", "MXJobSpec is not valid: more than 1 scheduler found")
		}
		j.Decides(scheduler)
		return
	}
	for _, t := range []string{worker, tuner} {
		if role := j.Type(t); role != nil {
			if t == tuner || j.Total() > 1 {
				j.O.Warnf(j.Path(t), "there is no Scheduler, and upstream such a job never ends: here it has succeeded when every %s has", t)
			}
			j.Decides(t)
			return
		}
	}
	if len(j.Roles) > 0 {
		j.O.Errorf(j.Path(scheduler), "MXJobSpec is not valid: there is no Scheduler, Worker or Tuner whose success could end the job")
	}
}

// variables are DMLC's, behind MX_CONFIG, which says the same of all replicas.
func variables(j *kubeflow.Job, role, config string) []corev1.EnvVar {
	dmlc := rendezvous.DMLC(kubeflow.RoleName(scheduler), kubeflow.RoleName(server), kubeflow.RoleName(worker), role)
	if s := j.Type(scheduler); s == nil || s.Replicas == 0 { // then there is no root
		dmlc[0].Value, dmlc[1].Value = "0", ""
	}
	vars := append([]corev1.EnvVar{{Name: "MX_CONFIG", Value: config}}, dmlc...)
	vars = append(vars, corev1.EnvVar{Name: "DMLC_USE_KUBERNETES", Value: "1"})
	if role == kubeflow.RoleName(worker) {
		vars = append(vars, corev1.EnvVar{Name: "DMLC_WORKER_ID", Value: "{{.Index}}"})
	}
	return vars
}

// config is MX_CONFIG: compact JSON with sorted keys, as the operator writes it.
func config(j *kubeflow.Job, specs map[string]*replica) string {
	keys := map[string]string{} // of tuner servers, by role
	for written, s := range specs {
		key, ok := s.Template.Annotations[annotationTuner]
		if !ok {
			key = s.Label
		}
		keys[kubeflow.RoleName(written)] = key
	}
	names := make([]string, 0, len(j.Roles))
	for i := range j.Roles {
		names = append(names, j.Roles[i].Name)
	}
	slices.Sort(names)
	var cluster, labels []string
	for _, n := range names {
		key, err := json.Marshal(keys[n])
		if err != nil {
			key = []byte(`""`)
		}
		cluster = append(cluster, fmt.Sprintf(`"%s":[{{range $i := replicas "%s"}}{{if $i}},{{end}}{"url":"{{host "%s" $i}}","port":{{port "%s" $i}}}{{end}}]`, n, n, n, n))
		labels = append(labels, fmt.Sprintf(`"%s":%s`, n, kubeflow.Literal(string(key))))
	}
	return `{"cluster":{` + strings.Join(cluster, ",") + `},"labels":{` + strings.Join(labels, ",") + `},"task":{"type":"{{.Role}}","index":{{.Index}}}}`
}
