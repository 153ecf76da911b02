// Package rendezvous makes the environment by which the tasks of a distributed
// job find each other, as templates for repo.Env. It never asks where a task
// runs: every address comes from the backend when a pod is stamped, so the same
// templates serve a cluster and 127.0.0.1.
package rendezvous

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Kind is a framework's way of finding the other tasks.
type Kind string

// The kinds of rendezvous.
const (
	None       Kind = "none"
	TensorFlow Kind = "tensorflow" // TF_CONFIG
	PyTorch    Kind = "pytorch"    // MASTER_ADDR, RANK, and PET_* for torchrun
	MXNet      Kind = "mxnet"      // DMLC_*
	JAX        Kind = "jax"        // JAX_COORDINATOR_ADDRESS
	MPI        Kind = "mpi"        // a host file, in a variable
)

// Role is what a rendezvous needs to know of a role.
type Role struct {
	Name   string
	Daemon bool
	// Slots is how many processes a task should start: its GPUs, or 1.
	Slots int64
}

// Port that a task listens on when the job does not say; 0 is none.
func Port(k Kind) int32 {
	switch k {
	case TensorFlow:
		return 2222
	case PyTorch:
		return 29500
	case MXNet:
		return 9091
	case JAX:
		return 1234
	case MPI:
		return 2022
	}
	return 0
}

// Check says what a kind misses among a job's roles, or "".
func Check(k Kind, roles []Role) string {
	has := func(name string) bool {
		return slices.ContainsFunc(roles, func(r Role) bool { return r.Name == name })
	}
	switch k {
	case MXNet:
		for _, want := range []string{"scheduler", "server", "worker"} {
			if !has(want) {
				return fmt.Sprintf("mxnet needs a role named %s (and its roles are scheduler, server and worker)", want)
			}
		}
	case PyTorch, JAX:
		if len(ranked(roles)) == 0 {
			return fmt.Sprintf("%s needs a role that is no daemon", k)
		}
	}
	return ""
}

// Vars are the variables of the tasks of one role.
func Vars(k Kind, roles []Role, role string) []corev1.EnvVar {
	switch k {
	case TensorFlow:
		names := make([]string, 0, len(roles))
		for _, r := range roles {
			names = append(names, r.Name)
		}
		return []corev1.EnvVar{{Name: "TF_CONFIG", Value: TFConfig(names)}}
	case MXNet:
		return DMLC("scheduler", "server", "worker", role)
	case PyTorch:
		return pytorch(roles, role)
	case JAX:
		return jax(roles, role)
	case MPI:
		return mpi(roles)
	}
	return nil
}

// TFConfig is TensorFlow's TF_CONFIG: the addresses of all tasks by role, and
// which of them this one is. Compact JSON with sorted keys, as the operators write it.
func TFConfig(roles []string) string {
	roles = slices.Sorted(slices.Values(roles))
	cluster := make([]string, 0, len(roles))
	for _, r := range roles {
		cluster = append(cluster, fmt.Sprintf(`"%s":{{addresses "%s"}}`, r, r))
	}
	return `{"cluster":{` + strings.Join(cluster, ",") + `},"task":{"type":"{{.Role}}","index":{{.Index}}},"environment":"cloud"}`
}

// DMLC are the five variables of MXNet's parameter server, in its operator's
// order. The names are those of the roles that play each part; role's own part
// is told by DMLC_ROLE.
func DMLC(scheduler, server, worker, role string) []corev1.EnvVar {
	part := map[string]string{scheduler: "scheduler", server: "server", worker: "worker"}[role]
	if part == "" {
		part = role
	}
	return []corev1.EnvVar{
		{Name: "DMLC_PS_ROOT_PORT", Value: fmt.Sprintf(`{{port "%s" 0}}`, scheduler)},
		{Name: "DMLC_PS_ROOT_URI", Value: fmt.Sprintf(`{{host "%s" 0}}`, scheduler)},
		{Name: "DMLC_NUM_SERVER", Value: fmt.Sprintf(`{{replicas "%s"}}`, server)},
		{Name: "DMLC_NUM_WORKER", Value: fmt.Sprintf(`{{replicas "%s"}}`, worker)},
		{Name: "DMLC_ROLE", Value: part},
	}
}

// ranked are the roles whose tasks are numbered through: those that are no daemon.
func ranked(roles []Role) []Role {
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return r.Daemon })
}

// sum is the template for a number plus the replicas of roles.
func sum(start string, roles []Role) string {
	for _, r := range roles {
		start = fmt.Sprintf(`(add %s (replicas "%s"))`, start, r.Name)
	}
	return "{{" + start + "}}"
}

// rank is the template for a task's number among all that are numbered; ok is
// false for a daemon.
func rank(ranked []Role, role string) (text string, ok bool) {
	i := slices.IndexFunc(ranked, func(r Role) bool { return r.Name == role })
	if i < 0 {
		return "", false
	}
	return sum(".Index", ranked[:i]), true
}

// pytorch is what torch.distributed's env:// and torchrun (PET_) read. A task
// is one node; WORLD_SIZE and RANK count nodes, and torchrun sets them anew for
// each process that it starts.
func pytorch(roles []Role, role string) []corev1.EnvVar {
	r := ranked(roles)
	first := r[0].Name
	host, port, world := fmt.Sprintf(`{{host "%s" 0}}`, first), fmt.Sprintf(`{{port "%s" 0}}`, first), sum("0", r)
	vars := []corev1.EnvVar{
		{Name: "PYTHONUNBUFFERED", Value: "1"},
		{Name: "MASTER_ADDR", Value: host}, {Name: "PET_MASTER_ADDR", Value: host},
		{Name: "MASTER_PORT", Value: port}, {Name: "PET_MASTER_PORT", Value: port},
		{Name: "WORLD_SIZE", Value: world}, {Name: "PET_NNODES", Value: world},
	}
	if n, ok := rank(r, role); ok {
		vars = append(vars, corev1.EnvVar{Name: "RANK", Value: n}, corev1.EnvVar{Name: "PET_NODE_RANK", Value: n},
			corev1.EnvVar{Name: "LOCAL_RANK", Value: "0"}, corev1.EnvVar{Name: "PET_NPROC_PER_NODE", Value: slots(roles, role)})
	}
	return vars
}

// jax is what jax.distributed.initialize reads, and the same under the names
// that Kubeflow's JAXJob gives it.
func jax(roles []Role, role string) []corev1.EnvVar {
	r := ranked(roles)
	first, world := r[0].Name, sum("0", r)
	port := fmt.Sprintf(`{{port "%s" 0}}`, first)
	vars := []corev1.EnvVar{
		{Name: "PYTHONUNBUFFERED", Value: "1"},
		{Name: "JAX_COORDINATOR_ADDRESS", Value: fmt.Sprintf(`{{address "%s" 0}}`, first)},
		{Name: "JAX_COORDINATOR_PORT", Value: port}, {Name: "JAX_NUM_PROCESSES", Value: world},
		{Name: "COORDINATOR_ADDRESS", Value: fmt.Sprintf(`{{host "%s" 0}}`, first)},
		{Name: "COORDINATOR_PORT", Value: port}, {Name: "NUM_PROCESSES", Value: world},
	}
	if n, ok := rank(r, role); ok {
		vars = append(vars, corev1.EnvVar{Name: "JAX_PROCESS_ID", Value: n}, corev1.EnvVar{Name: "PROCESS_ID", Value: n})
	}
	return vars
}

// mpi gives every task the hosts of all, twice: as the text of a host file (a
// line "host slots=n" each; write it to a file for mpirun --hostfile), and as
// the list "host:n,host:n" for mpirun --host. A role named launcher starts
// mpirun and is no host itself, unless it is the only role.
func mpi(roles []Role) []corev1.EnvVar {
	var file, list []string
	for _, r := range roles {
		if r.Daemon || r.Name == "launcher" && len(roles) > 1 {
			continue
		}
		n := slots(roles, r.Name)
		file = append(file, fmt.Sprintf(`{{hosts " slots=%s\n" "%s"}} slots=%s`, n, r.Name, n))
		list = append(list, fmt.Sprintf(`{{hosts ":%s," "%s"}}:%s`, n, r.Name, n))
	}
	return []corev1.EnvVar{
		{Name: "TRAINYARD_HOSTFILE", Value: strings.Join(file, "\n") + "\n"},
		{Name: "TRAINYARD_HOSTS", Value: strings.Join(list, ",")},
	}
}

func slots(roles []Role, role string) string {
	for _, r := range roles {
		if r.Name == role && r.Slots > 1 {
			return strconv.FormatInt(r.Slots, 10)
		}
	}
	return "1"
}

// Env puts variables before those of every container of a role, so that the
// job's own values win.
func Env(k Kind, roles []Role, role string) repo.Env {
	return repo.Env{Vars: Vars(k, roles, role)}
}
