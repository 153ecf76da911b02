package tfjob

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// serverScript is what the operator's ConfigMap held: it starts a TensorFlow
// server at the task's own place in the cluster, and waits for ever. Carried in
// the command, it needs no ConfigMap, which upstream left behind.
const serverScript = `import json, os
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
tf.train.Server(config["cluster"], job_name=config["task"]["type"], task_index=config["task"]["index"]).join()
`

// serverVolume is what objects read back from the operator mount and do not declare.
const serverVolume = "ps-config-volume"

// template is a replica's pod template; nil when there is none to go on with. A
// parameter server without one gets the default one, until kubeflow.org.
func (r *reader) template(at, kind string, s *replica) *corev1.PodTemplateSpec {
	standard := kind == ps && r.group != groupKubeflow
	switch {
	case s.Template == nil && standard:
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: container, Image: r.spec.TfImage, Command: serverCommand(),
		}}}}
	case s.Template == nil:
		r.o.Errorf(at+".template", "required: Replica is missing Template")
		return nil
	case !s.IsDefaultPS || !standard:
		return s.Template
	}
	t := s.Template.DeepCopy()
	for i := range t.Spec.Containers {
		c := &t.Spec.Containers[i]
		if c.Name != container {
			continue
		}
		c.Command, c.Args = serverCommand(), nil
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == serverVolume })
	}
	t.Spec.Volumes = slices.DeleteFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == serverVolume })
	return t
}

func serverCommand() []string { return []string{"python", "-c", serverScript} }
