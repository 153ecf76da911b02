package repo

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Avoid are nodes that a task attempt keeps away from.
type Avoid struct {
	Never  []string // a failure rule blames the node
	Rather []string // the task failed there twice: elsewhere, if there is an elsewhere
}

// Apply adds the nodes to a pod's node affinity. What the pod asks for itself
// still has to hold. A pod that names its node goes there.
func (a Avoid) Apply(spec *corev1.PodSpec) {
	if spec.NodeName != "" || len(a.Never)+len(a.Rather) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := spec.Affinity.NodeAffinity
	if len(a.Never) > 0 {
		node.RequiredDuringSchedulingIgnoredDuringExecution = never(node.RequiredDuringSchedulingIgnoredDuringExecution, a.Never)
	}
	if len(a.Rather) > 0 {
		node.PreferredDuringSchedulingIgnoredDuringExecution = append(slices.Clone(node.PreferredDuringSchedulingIgnoredDuringExecution),
			corev1.PreferredSchedulingTerm{Weight: 100, Preference: corev1.NodeSelectorTerm{MatchFields: notOn(a.Rather)}})
	}
}

// never adds nodes to every term, of which one has to hold. An empty term holds
// for no node, and would hold for many with something in it: it is left alone.
func never(old *corev1.NodeSelector, nodes []string) *corev1.NodeSelector {
	if old == nil {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: notOn(nodes)}}}
	}
	terms := slices.Clone(old.NodeSelectorTerms)
	for i := range terms {
		if t := &terms[i]; len(t.MatchExpressions)+len(t.MatchFields) > 0 {
			t.MatchFields = append(slices.Clone(t.MatchFields), notOn(nodes)...)
		}
	}
	return &corev1.NodeSelector{NodeSelectorTerms: terms}
}

// notOn holds for all other nodes. The API server takes one name in each.
func notOn(nodes []string) []corev1.NodeSelectorRequirement {
	out := make([]corev1.NodeSelectorRequirement, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{n}})
	}
	return out
}
