package policy

import (
	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	standards "k8s.io/pod-security-admission/policy"
)

// security holds a pod against the pod security standards, by Kubernetes' own
// code. What the policy speaks of by itself is left out.
func (c *checker) security(field string, template *corev1.PodTemplateSpec) {
	p := c.policy
	spec := template.Spec.DeepCopy()
	if p.HostPaths != nil {
		for i := range spec.Volumes {
			if spec.Volumes[i].HostPath != nil {
				spec.Volumes[i].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			}
		}
	}
	if p.HostNetwork != nil {
		spec.HostNetwork = false
		if *p.HostNetwork { // then every port is one of the host
			withoutHostPorts(spec.Containers)
			withoutHostPorts(spec.InitContainers)
		}
	}
	level := psa.LevelVersion{Level: p.PodSecurity, Version: psa.LatestVersion()}
	if r := standards.AggregateCheckResults(p.evaluator.EvaluatePod(level, &template.ObjectMeta, spec)); !r.Allowed {
		c.errorf(field, "pod security level %s forbids: %s", p.PodSecurity, r.ForbiddenDetail())
	}
}

func withoutHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			containers[i].Ports[j].HostPort = 0
		}
	}
}
