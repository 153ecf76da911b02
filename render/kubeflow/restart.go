package kubeflow

import (
	"strconv"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/replicaspec"
	"github.com/trainyard/trainyard/render/rules"
)

// restarts gives each role its retries, and the job the rules that go with them.
func (j *Job) restarts() {
	var byCode []string
	for i := range j.Roles {
		role := &j.Roles[i]
		// The wait is that of Kubernetes, whose restarts in place it stands for.
		role.Retry = repo.Retry{Limit: repo.Unlimited, Mode: repo.ByFault, Backoff: replicaspec.Retry().Backoff}
		switch j.policies[role.Name] {
		case Never:
			role.Retry.Limit = 0
		case ExitCode:
			byCode = append(byCode, role.Name)
		case Always:
			if role.Daemon {
				role.Retry.Limit = repo.Always
			} else {
				j.O.Warnf(j.paths[role.Name]+".restartPolicy", "Always is read as OnFailure: a replica that succeeds is not started again, or the job would never end")
			}
		}
	}
	j.Rules = rules.All(nil, j.O.Settings(), rules.Kubeflow(j.codes(byCode)...))
}

// codes are the rules of the roles that go by the exit code.
func (j *Job) codes(roles []string) []repo.FailureRule {
	switch {
	case len(roles) == 0:
		return nil
	case len(roles) == len(j.Roles): // no other role could be meant
		roles = nil
	}
	if j.Early {
		return rules.EarlyExitCode(j.Kind.Container, roles)
	}
	return rules.ExitCode(j.Kind.Container, roles)
}

// Literal is a user's text for repo.Env, whose values are templates.
func Literal(text string) string {
	if !strings.Contains(text, "{{") {
		return text
	}
	return "{{" + strconv.Quote(text) + "}}"
}
