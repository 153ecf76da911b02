package runner

import (
	"testing"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A.11 of FrameworkController: what an operator's podFailureSpec matches.
func TestPodPatterns(t *testing.T) {
	p := &Pod{Job: "mnist", State: PodFailed, Failure: Failure{
		Reason: "Evicted", Reasons: []string{"Evicted", "DisruptionTarget"}, Message: "disk pressure", Containers: []string{"init", "train", "side"},
		Ends: []End{{Container: "init", Reason: "Completed"}, {Container: "train", ExitCode: 137, Signal: 9, Reason: "OOMKilled", Message: "bye"}},
	}}
	p.Attempt.Task = repo.Task{Role: "ps", Index: 3}
	of := func(c ...repo.ContainerPattern) repo.PodPattern { return repo.PodPattern{Containers: c} }
	span := func(low, high int32) *repo.CodeRange { return &repo.CodeRange{Min: low, Max: high} }
	for _, row := range []struct {
		rule    string
		pattern repo.PodPattern
		want    bool
	}{
		{"nothing matches everything", repo.PodPattern{}, true},
		{"name", repo.PodPattern{Name: "^mnist-ps-3$"}, true},
		{"another name", repo.PodPattern{Name: "worker"}, false},
		{"reason", repo.PodPattern{Reason: "(?i)^evicted$"}, true},
		{"reason of a condition is none", repo.PodPattern{Reason: "DisruptionTarget"}, false},
		{"all that is given", repo.PodPattern{Reason: "Evicted", Message: "memory"}, false},
		{"message", repo.PodPattern{Name: "mnist", Reason: "Evicted", Message: "pressure$"}, true},
		{"a container's name", of(repo.ContainerPattern{Name: "^side$"}), true},
		{"no such container", of(repo.ContainerPattern{Name: "^none$"}), false},
		{"what runs has no code", of(repo.ContainerPattern{Name: "^side$", ExitCodes: span(0, 255)}), false},
		{"code and reason of one container", of(repo.ContainerPattern{Reason: "OOMKilled", ExitCodes: span(1, 255)}), true},
		{"not of two", of(repo.ContainerPattern{Reason: "OOMKilled", ExitCodes: span(0, 0)}), false},
		{"0 counts", of(repo.ContainerPattern{Name: "init", ExitCodes: span(0, 0)}), true},
		{"signal", of(repo.ContainerPattern{Signals: span(9, 9), Message: "bye"}), true},
		{"every one of several", of(repo.ContainerPattern{Name: "init"}, repo.ContainerPattern{ExitCodes: span(137, 137)}), true},
		{"not some of several", of(repo.ContainerPattern{Name: "init"}, repo.ContainerPattern{ExitCodes: span(1, 1)}), false},
	} {
		r := rule(repo.FailureRule{Pod: &row.pattern, ExitCodes: codes(1, 1)})
		assert.Equal(t, row.want, r.matches(p, "main"), row.rule)
	}
	elsewhere := rule(repo.FailureRule{Pod: &repo.PodPattern{}, Roles: []string{"worker"}})
	assert.False(t, elsewhere.matches(p, "main"), "of another role")
}
