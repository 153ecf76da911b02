package tfjob

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/replicaspec"
)

// tensorBoardRole is the role that TensorBoard runs as, and its label "app".
const (
	tensorBoardRole = "tensorboard"
	tensorBoardPort = 6006
	atTensorBoard   = "spec.tensorboard"
)

// tensorBoard adds TensorBoard to the job: a server that starts with the run,
// counts for nothing and goes on when the run has ended, so that people can
// look at what became of it; and the Service by which they reach it.
func (r *reader) tensorBoard(job *repo.Job) {
	tb := r.spec.TensorBoard
	switch {
	case tb == nil:
		return
	case r.group == groupKubeflow:
		r.o.Warnf(atTensorBoard, "ignored: TFJob of kubeflow.org has no TensorBoard since February 2018")
		return
	case tb.LogDir == "":
		r.o.Errorf(atTensorBoard+".logDir", "required: tbReplicaSpec.LogDir must be specified")
	}
	name := r.tensorBoardName(job.Name)
	role := repo.Role{
		Name: tensorBoardRole, Replicas: 1, Daemon: true, Outlives: true, MinFailed: repo.Never, MinSucceeded: repo.Never,
		// As the Deployment that it was: its container is started again whatever
		// its end, also when the run is over; and a pod that is lost while the run
		// goes on gets another.
		Retry: repo.Retry{Limit: repo.Always, Mode: repo.ByCount, Backoff: replicaspec.Retry().Backoff},
		Port:  tensorBoardPort, MainContainer: name, Template: r.tensorBoardTemplate(name),
	}
	role.Env.Labels = r.labels("")
	delete(role.Env.Labels, "job_type")
	delete(role.Env.Labels, "task_index")
	role.Env.Labels["app"] = tensorBoardRole
	job.Roles = append(job.Roles, role)
	r.tensorBoardService(job, name)
}

// tensorBoardName is upstream's when the job gives its runtime ID. Without one,
// which was random there, it is made from the job's name, so that it is known
// before a run is and stays the same from run to run.
func (r *reader) tensorBoardName(job string) string {
	id := strings.ToLower(r.spec.RuntimeID)
	if id == "" {
		id = job
	}
	name := tensorBoardRole + "-" + id
	if len(name) > validation.DNS1035LabelMaxLength {
		h := fnv.New32a()
		h.Write([]byte(id))
		name = fmt.Sprintf("%s-%08x", strings.TrimRight(name[:validation.DNS1035LabelMaxLength-9], "-"), h.Sum32())
	}
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	if r.spec.RuntimeID != "" { // or the job's name is none, which has been told
		r.o.Errorf("spec.RuntimeId", "%q cannot be part of the name of TensorBoard's Service", id)
	}
	return tensorBoardRole
}

func (r *reader) tensorBoardTemplate(name string) corev1.PodTemplateSpec {
	tb := r.spec.TensorBoard
	t := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, Volumes: tb.Volumes,
		Containers: []corev1.Container{{
			Name: name, Image: r.spec.TfImage, VolumeMounts: tb.VolumeMounts,
			// On a cluster the variable is 6006, TensorBoard's own port and that of
			// upstream's command, which does not name it. On one machine every task
			// is given a port that is free.
			Command: []string{"tensorboard", "--logdir", tb.LogDir, "--host", "0.0.0.0", "--port", "$(TRAINYARD_PORT)"},
			Ports:   []corev1.ContainerPort{{ContainerPort: tensorBoardPort}},
		}},
	}}
	t = *t.DeepCopy()
	// Checked as a template, told of as it is written.
	check := manifest.NewObject(map[string]any{}, nil, repo.Settings{})
	manifest.CheckTemplate(check, "", &t)
	for _, p := range check.Problems() {
		field := strings.Replace(p.Field, ".spec.containers[0]", "", 1)
		if field == ".image" {
			field = "spec.tfImage"
		} else {
			field = atTensorBoard + strings.TrimPrefix(field, ".spec")
		}
		if p.Warning {
			r.o.Warnf(field, "%s", p.Message)
		} else {
			r.o.Errorf(field, "%s", p.Message)
		}
	}
	manifest.SetRole(&t, tensorBoardRole)
	return t
}

// tensorBoardService finds the pod by labels that are the same in every run.
func (r *reader) tensorBoardService(job *repo.Job, name string) {
	kind := manifest.OneOf(r.o, atTensorBoard+".serviceType", r.spec.TensorBoard.ServiceType, corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	labels := map[string]string{"app": tensorBoardRole, "tf_job_name": job.Name, r.group: ""}
	if r.spec.RuntimeID != "" {
		labels["runtime_id"] = r.spec.RuntimeID
	}
	service := corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: labels,
			Ports: []corev1.ServicePort{{Name: "tb-port", Port: 80, TargetPort: intstr.FromInt32(tensorBoardPort)}},
		},
	}
	raw, err := json.Marshal(service)
	if err != nil {
		r.o.Errorf(atTensorBoard, "%v", err)
	}
	job.Objects = append(job.Objects, repo.Object{APIVersion: "v1", Kind: "Service", Name: name, Raw: raw})
}
