package repo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestGangNamesAreLabels(t *testing.T) {
	seen := map[string]bool{}
	for _, job := range []string{"a", "mnist", strings.Repeat("x", 80), strings.Repeat("y-", 40), strings.Repeat("0", 52)} {
		for _, n := range []int32{0, 7, 2147483647} {
			run := &Run{ID: RunID("prod", Key{"ns", job}, "d", Trigger{})}
			name := run.GangName(n, n)
			assert.Empty(t, validation.IsDNS1123Label(name), name)
			assert.False(t, seen[name], name)
			seen[name] = true
		}
	}
	assert.Equal(t, "mnist-abcdefghij-2-5", (&Run{ID: "mnist-abcdefghij"}).GangName(2, 5))
}

func TestGangIsReadBack(t *testing.T) {
	for _, g := range []Gang{{Name: "a", Size: 1}, {Name: "b", Size: 4, Late: true}} {
		pod := &corev1.Pod{}
		g.Mark(pod)
		assert.Equal(t, &g, GangOf(pod))
	}
	pod := &corev1.Pod{}
	assert.Nil(t, GangOf(pod))
	pod.Annotations = map[string]string{AnnotationGang: "a", AnnotationGangSize: "-1"}
	assert.Nil(t, GangOf(pod), "of somebody else")
}
