package trainingjob

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rendezvous"
)

func readRole(o *manifest.Object, at string, r *Role, kind rendezvous.Kind) repo.Role {
	role := repo.Role{Name: r.Name, Replicas: 1, Daemon: r.Daemon, Port: r.Port, Retry: retry(o, at+".retry", r.Retry)}
	manifest.CheckRoleName(o, at+".name", r.Name)
	if r.Replicas != nil {
		role.Replicas = *r.Replicas
		if role.Replicas < 1 || role.Replicas > maxReplicas {
			o.Errorf(at+".replicas", "want 1 to %d, not %d", maxReplicas, role.Replicas)
		}
	}
	switch {
	case r.Port < 0 || r.Port > 65535:
		o.Errorf(at+".port", "%d is no port: want 1 to 65535", r.Port)
	case r.Port == 0:
		role.Port = rendezvous.Port(kind)
	}
	if d := deadline(o, at+".forceDeleteAfter", r.ForceDeleteAfter, 0); d > 0 {
		role.ForceDeleteAfter = &d
	}
	counts(o, at, r, &role)

	t := r.Template.DeepCopy()
	gpus(o, at+".gpus", r.GPUs, t)
	volumes(o, at+".volumes", r.Volumes, t)
	shm(o, at+".shm", r.Shm, t)
	manifest.CheckTemplate(o, at+".template", t)
	switch {
	case t.Spec.RestartPolicy == "":
		t.Spec.RestartPolicy = corev1.RestartPolicyNever
	case t.Spec.RestartPolicy == corev1.RestartPolicyAlways && !r.Daemon:
		o.Errorf(at+".template.spec.restartPolicy", "Always restarts a container that has succeeded, so the role never could; use Never or OnFailure")
	}
	if len(t.Spec.Containers) > 0 {
		role.MainContainer = t.Spec.Containers[0].Name
	}
	manifest.SetRole(t, r.Name)
	role.Template = *t
	return role
}

// counts reads the role's part in the end of the run.
func counts(o *manifest.Object, at string, r *Role, role *repo.Role) {
	role.MinSucceeded, role.MinFailed = role.Replicas, 1
	if r.Daemon {
		role.MinSucceeded = repo.Never
	}
	if c := r.MinSucceeded; c != nil {
		switch {
		case r.Daemon:
			o.Errorf(at+".minSucceeded", "a daemon counts for nothing; remove this, or daemon")
		case c.Word == "never":
			o.Errorf(at+".minSucceeded", "want a number or all; a role that need not succeed is a daemon")
		case c.Word == "" && (c.Number < 1 || c.Number > role.Replicas):
			o.Errorf(at+".minSucceeded", "want 1 to %d, the role's replicas, not %d", role.Replicas, c.Number)
		case c.Word == "":
			role.MinSucceeded = c.Number
		}
	}
	if c := r.MinFailed; c != nil {
		switch {
		case c.Word == "never":
			role.MinFailed = repo.Never
		case c.Word == "all":
			role.MinFailed = role.Replicas
		case c.Number < 1 || c.Number > role.Replicas:
			o.Errorf(at+".minFailed", "want 1 to %d, the role's replicas, or never, not %d", role.Replicas, c.Number)
		default:
			role.MinFailed = c.Number
		}
	}
}

// volumes are mounted into every container of the pod.
func volumes(o *manifest.Object, at string, volumes []Volume, t *corev1.PodTemplateSpec) {
	if len(volumes) > manifest.MaxVolumes || len(t.Spec.Containers)+len(t.Spec.InitContainers) > manifest.MaxContainers {
		o.Errorf(at, "%d volumes for %d containers are too many", len(volumes), len(t.Spec.Containers)+len(t.Spec.InitContainers))
		return
	}
	for i := range volumes {
		v, here := &volumes[i], manifest.Item(at, i)
		if v.MountPath == "" {
			o.Errorf(here+".mountPath", "required")
		}
		if v.VolumeSource == (corev1.VolumeSource{}) {
			o.Errorf(here, "a volume needs a source: emptyDir, hostPath, nfs, persistentVolumeClaim, configMap or another of Kubernetes")
		}
		if slices.ContainsFunc(t.Spec.Volumes, func(w corev1.Volume) bool { return w.Name == v.Name }) {
			o.Errorf(here+".name", "volume %q is declared twice", v.Name)
			continue
		}
		t.Spec.Volumes = append(t.Spec.Volumes, v.Volume)
		mount := corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, SubPath: v.SubPath, ReadOnly: v.ReadOnly}
		for _, containers := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
			for k := range containers {
				containers[k].VolumeMounts = append(containers[k].VolumeMounts, mount)
			}
		}
	}
}
