package pytorch

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/render/kubeflow"
)

// variables of a role: those of torch.distributed's env:// and, with PET_,
// those of torchrun, in upstream's order.
func (r *reader) variables(role string) []corev1.EnvVar {
	vars := []corev1.EnvVar{{Name: "PYTHONUNBUFFERED", Value: "1"}}
	set := func(name, value string) { vars = append(vars, corev1.EnvVar{Name: name, Value: value}) }
	processes := string(*r.spec.NprocPerNode)
	if r.Type(master) != nil {
		rank := "{{.Index}}"
		if role == kubeflow.RoleName(worker) {
			rank = "{{add .Index 1}}"
		}
		set("MASTER_PORT", `{{port "master" 0}}`)
		set("PET_MASTER_PORT", `{{port "master" 0}}`)
		set("MASTER_ADDR", `{{host "master" 0}}`)
		set("PET_MASTER_ADDR", `{{host "master" 0}}`)
		set("WORLD_SIZE", r.worldSize(processes))
		set("RANK", rank)
		set("PET_NPROC_PER_NODE", kubeflow.Literal(processes))
		set("PET_NODE_RANK", rank)
	} else {
		set("PET_NPROC_PER_NODE", kubeflow.Literal(processes))
	}
	e := r.spec.ElasticPolicy
	if e == nil {
		set("PET_NNODES", "{{total}}")
		return vars
	}
	set("PET_RDZV_ENDPOINT", e.endpoint())
	set("PET_RDZV_BACKEND", e.RdzvBackend)
	if e.MinReplicas != nil && e.MaxReplicas != nil {
		set("PET_NNODES", fmt.Sprintf("%d:%d", *e.MinReplicas, *e.MaxReplicas))
	}
	if e.MaxRestarts != nil {
		set("PET_MAX_RESTARTS", strconv.Itoa(int(*e.MaxRestarts)))
	}
	if e.RdzvID != nil {
		set("PET_RDZV_ID", kubeflow.Literal(*e.RdzvID))
	}
	if len(e.RdzvConf) > 0 {
		set("PET_RDZV_CONF", kubeflow.Literal(e.conf()))
	}
	if e.Standalone {
		set("PET_STANDALONE", "")
	}
	return vars
}

// worldSize counts processes where their number is known, and replicas else.
func (r *reader) worldSize(processes string) string {
	n, err := strconv.ParseInt(processes, 10, 32)
	if err != nil || n == 1 {
		return "{{total}}"
	}
	return strconv.FormatInt(n*int64(r.Total()), 10)
}

// endpoint is where workers meet.
func (e *elasticPolicy) endpoint() string {
	host, port := `{{host "worker" 0}}`, `{{port "worker" 0}}`
	if e.RdzvHost != nil {
		host = kubeflow.Literal(*e.RdzvHost)
	}
	if e.RdzvPort != nil {
		port = strconv.Itoa(int(*e.RdzvPort))
	}
	return host + ":" + port
}

func (e *elasticPolicy) conf() string {
	pairs := make([]string, 0, len(e.RdzvConf))
	for _, c := range e.RdzvConf {
		pairs = append(pairs, c.Key+"="+c.Value)
	}
	return strings.Join(pairs, ",")
}
