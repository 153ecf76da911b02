package rules

import (
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Kubeflow is the table of Kubeflow's training operator: what the cluster did
// is nobody's fault, and anything else is for the replica's restart policy.
// byCode are the rules of replicas whose policy goes by the exit code.
func Kubeflow(byCode ...repo.FailureRule) []repo.FailureRule {
	own := infrastructure()
	own[0].Class = repo.Unknown // its own fault, but no exit code: the restart policy says
	return slices.Concat(own, byCode)
}

// ExitCode is the restart policy of that name: codes from 128 on are retried,
// running out of memory among them, lower ones are not. roles are those whose
// policy it is; none are all.
func ExitCode(container string, roles []string) []repo.FailureRule {
	return of(roles,
		span("PermanentExit", container, repo.Permanent, 1, 127),
		span("RetryableExit", container, repo.Transient, 128, highest),
	)
}

// EarlyExitCode is the same policy before the training operator (tf-operator
// v0.2 to v1.1): only interrupt, kill, terminate and the user's own 138 are retried.
func EarlyExitCode(container string, roles []string) []repo.FailureRule {
	retryable := code("RetryableExit", repo.Transient, 130, 137, 138, 143)
	retryable.Container = container
	return of(roles, retryable, span("PermanentExit", container, repo.Permanent, 1, highest))
}

func of(roles []string, list ...repo.FailureRule) []repo.FailureRule {
	for i := range list {
		list[i].Roles = roles
	}
	return list
}
