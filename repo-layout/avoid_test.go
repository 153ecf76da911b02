package repo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func requirement(op corev1.NodeSelectorOperator, key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func TestAvoid(t *testing.T) {
	type term = corev1.NodeSelectorTerm
	not := func(node string) corev1.NodeSelectorRequirement {
		return requirement(corev1.NodeSelectorOpNotIn, "metadata.name", node)
	}
	a100 := requirement(corev1.NodeSelectorOpIn, "gpu", "a100")
	h100 := requirement(corev1.NodeSelectorOpIn, "gpu", "h100")
	only := requirement(corev1.NodeSelectorOpIn, "metadata.name", "n9")
	required := func(terms ...term) *corev1.NodeAffinity {
		return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	preferred := func(terms ...corev1.PreferredSchedulingTerm) *corev1.NodeAffinity {
		return &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}
	}
	fields := func(r ...corev1.NodeSelectorRequirement) term { return term{MatchFields: r} }
	own := corev1.PreferredSchedulingTerm{Weight: 3, Preference: term{MatchExpressions: []corev1.NodeSelectorRequirement{a100}}}
	rather := func(r ...corev1.NodeSelectorRequirement) corev1.PreferredSchedulingTerm {
		return corev1.PreferredSchedulingTerm{Weight: 100, Preference: fields(r...)}
	}
	for name, row := range map[string]struct {
		avoid      Avoid
		have, want *corev1.NodeAffinity
	}{
		"nothing to avoid":      {Avoid{}, nil, nil},
		"nothing, and an own":   {Avoid{}, preferred(own), preferred(own)},
		"never, without an own": {Avoid{Never: []string{"n1", "n2"}}, nil, required(fields(not("n1"), not("n2")))},
		"never, in every term": {
			Avoid{Never: []string{"n1"}},
			required(term{MatchExpressions: []corev1.NodeSelectorRequirement{a100}}, term{MatchExpressions: []corev1.NodeSelectorRequirement{h100}, MatchFields: []corev1.NodeSelectorRequirement{only}}),
			required(
				term{MatchExpressions: []corev1.NodeSelectorRequirement{a100}, MatchFields: []corev1.NodeSelectorRequirement{not("n1")}},
				term{MatchExpressions: []corev1.NodeSelectorRequirement{h100}, MatchFields: []corev1.NodeSelectorRequirement{only, not("n1")}},
			),
		},
		"a term that holds for no node":  {Avoid{Never: []string{"n1"}}, required(term{}), required(term{})},
		"an own that the server refuses": {Avoid{Never: []string{"n1"}}, required(), required()},
		"rather":                         {Avoid{Rather: []string{"n1", "n2"}}, nil, preferred(rather(not("n1"), not("n2")))},
		"rather, behind an own":          {Avoid{Rather: []string{"n1"}}, preferred(own), preferred(own, rather(not("n1")))},
		"both": {Avoid{Never: []string{"n1"}, Rather: []string{"n2"}}, nil, &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  required(fields(not("n1"))).RequiredDuringSchedulingIgnoredDuringExecution,
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{rather(not("n2"))},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := corev1.PodSpec{}
			if row.have != nil {
				spec.Affinity = &corev1.Affinity{NodeAffinity: row.have, PodAffinity: &corev1.PodAffinity{}}
			}
			row.avoid.Apply(&spec)
			if row.want == nil {
				assert.Nil(t, spec.Affinity)
				return
			}
			assert.EqualValues(t, row.want.RequiredDuringSchedulingIgnoredDuringExecution, spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			assert.Equal(t, row.want.PreferredDuringSchedulingIgnoredDuringExecution, spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
			assert.Equal(t, row.have != nil, spec.Affinity.PodAffinity != nil, "what it asks for beside nodes stays")
		})
	}
	pinned := corev1.PodSpec{NodeName: "n1"}
	Avoid{Never: []string{"n1"}, Rather: []string{"n1"}}.Apply(&pinned)
	assert.Nil(t, pinned.Affinity, "the kubelet would refuse it")
}
