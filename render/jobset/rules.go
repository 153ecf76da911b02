package jobset

import (
	"regexp"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

const maxRules = 20

// Reasons for which a Job fails.
const (
	backoffLimitExceeded = "BackoffLimitExceeded"
	podFailurePolicy     = "PodFailurePolicy"
)

// failureReasons are those that JobSet knows.
func failureReasons() []string {
	return []string{backoffLimitExceeded, "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", podFailurePolicy}
}

var ruleName = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// rule checks a rule of the failure policy.
func (r *reader) rule(at string, rule *FailureRule) {
	if rule.Name != "" && (len(rule.Name) > 128 || !ruleName.MatchString(rule.Name)) {
		r.o.Errorf(at+".name", "want at most 128 letters, digits and _ , : that begin with a letter")
	}
	if rule.Action == "" {
		r.o.Errorf(at+".action", "required: FailJobSet, RestartJobSet or RestartJobSetAndIgnoreMaxRestarts")
	}
	switch manifest.OneOf(r.o, at+".action", rule.Action, RestartJobSet, FailJobSet, RestartJobSet, RestartJobSetAndIgnoreMaxRestarts,
		RestartJob, RestartJobAndIgnoreMaxRestarts) {
	case RestartJob, RestartJobAndIgnoreMaxRestarts:
		r.o.Errorf(at+".action", "%s is not taken: a run starts afresh as a whole; the job's backoffLimit lets single pods be tried again", rule.Action)
	}
	for i, reason := range rule.OnJobFailureReasons {
		manifest.OneOf(r.o, manifest.Item(at+".onJobFailureReasons", i), reason, "", failureReasons()...)
	}
	if len(rule.OnJobFailureMessagePatterns) > 0 {
		r.o.Errorf(at+".onJobFailureMessagePatterns", "not taken: there are no Jobs here, and no messages of theirs")
	}
	r.targets(at+".targetReplicatedJobs", rule.TargetReplicatedJobs)
}

// decides is the first rule for a role that failed for a reason.
func (p *FailurePolicy) decides(role, reason string) (i int, action Action) {
	for i, rule := range p.Rules {
		if (len(rule.TargetReplicatedJobs) == 0 || slices.Contains(rule.TargetReplicatedJobs, role)) &&
			(len(rule.OnJobFailureReasons) == 0 || slices.Contains(rule.OnJobFailureReasons, reason)) {
			return i, rule.Action
		}
	}
	return -1, RestartJobSet
}

// obey makes failure rules of the policy's for one role. A run is retried
// unless its failure is Permanent, and without using up its limit when it is free.
func (r *reader) obey(p *FailurePolicy, role *repo.Role) {
	for i := range r.rules {
		if rule := &r.rules[i]; rule.FailRun && slices.Contains(rule.Roles, role.Name) {
			_, action := p.decides(role.Name, podFailurePolicy)
			r.ends(rule, action)
		}
	}
	i, action := p.decides(role.Name, backoffLimitExceeded)
	if i < 0 || action == RestartJobSet {
		return
	}
	if role.Retry.Limit != 0 {
		r.o.Errorf(manifest.Item("spec.failurePolicy.rules", i), "%s is taken of jobs whose backoffLimit is 0, which that of %q is not: a pod's class is decided when it fails, "+
			"and not when it has failed too often", action, role.Name)
		return
	}
	rule := repo.FailureRule{Name: p.Rules[i].Name, Roles: []string{role.Name}, FailRun: true}
	r.ends(&rule, action)
	r.last = append(r.last, rule)
}

// ends gives a rule that ends an attempt the class that makes the run do as the action says.
func (r *reader) ends(rule *repo.FailureRule, action Action) {
	switch action {
	case FailJobSet:
		rule.Class, rule.Free, r.job.Retry.Mode = repo.Permanent, false, repo.ByFault
	case RestartJobSetAndIgnoreMaxRestarts:
		rule.Class, rule.Free, r.job.Retry.Mode = repo.Transient, true, repo.ByFault
	default:
		rule.Class, rule.Free = repo.Unknown, false
	}
}
