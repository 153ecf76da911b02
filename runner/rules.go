package runner

import (
	"regexp"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// rule is a failure rule that can be asked.
type rule repo.FailureRule

// matches says whether every condition that the rule sets holds. Conditions on
// a container must all hold for the same container.
func (r *rule) matches(p *Pod, main string) bool {
	if len(r.Roles) > 0 && !slices.Contains(r.Roles, p.Attempt.Role) {
		return false
	}
	if r.Pod != nil {
		return matchesPattern(r.Pod, p)
	}
	if r.LogPattern != "" && !found(r.LogPattern, p.Tail) {
		return false
	}
	f := &p.Failure
	if !r.asksContainer() {
		return r.matchesPod(f)
	}
	if len(r.ExitCodes) == 0 && len(r.Signals) == 0 && r.Container == "" && !r.NoMessage && r.matchesPod(f) {
		return true // a reason or message of the pod itself
	}
	return slices.ContainsFunc(f.Ends, func(e End) bool { return r.matchesEnd(&e, main) })
}

// asksContainer says whether the rule has a condition that a container can meet.
func (r *rule) asksContainer() bool {
	return r.Container != "" || len(r.ExitCodes) > 0 || len(r.Signals) > 0 || r.NoMessage ||
		len(r.Reasons) > 0 || r.ReasonPattern != "" || r.MessagePattern != ""
}

func (r *rule) matchesPod(f *Failure) bool {
	if len(r.Reasons) > 0 && !slices.ContainsFunc(f.Reasons, func(s string) bool { return slices.Contains(r.Reasons, s) }) {
		return false
	}
	if r.ReasonPattern != "" && !slices.ContainsFunc(f.Reasons, func(s string) bool { return found(r.ReasonPattern, s) }) {
		return false
	}
	return r.MessagePattern == "" || found(r.MessagePattern, f.Message)
}

func (r *rule) matchesEnd(e *End, main string) bool {
	switch {
	case e.ExitCode == 0:
		return false
	case e.Sidecar && r.Container != e.Container:
		return false
	case r.Container != "" && r.Container != e.Container:
		return false
	case r.Container == "" && main != "" && e.Container != main && len(r.ExitCodes) > 0:
		return false // a role with a main container is judged by it alone
	case len(r.ExitCodes) > 0 && !inRanges(r.ExitCodes, e.ExitCode):
		return false
	case len(r.Signals) > 0 && !inRanges(r.Signals, e.Signal):
		return false
	case len(r.Reasons) > 0 && !slices.Contains(r.Reasons, e.Reason):
		return false
	case r.ReasonPattern != "" && !found(r.ReasonPattern, e.Reason):
		return false
	case r.MessagePattern != "" && !found(r.MessagePattern, e.Message):
		return false
	}
	return !r.NoMessage || e.Message == ""
}

func inRanges(ranges []repo.CodeRange, n int32) bool {
	return slices.ContainsFunc(ranges, func(r repo.CodeRange) bool { return r.Min <= n && n <= r.Max })
}

// found says whether an RE2 pattern is found in text. Patterns were checked
// when the job was rendered; one that is damaged matches nothing.
func found(pattern, text string) bool {
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString(text)
}

// matchesPattern says whether a pattern of FrameworkController's podFailureSpec
// holds: upstream's own rules for it.
func matchesPattern(want *repo.PodPattern, p *Pod) bool {
	f := &p.Failure
	for _, c := range []struct{ pattern, text string }{
		{want.Name, p.Job + "-" + p.Attempt.Task.String()}, {want.Reason, f.Reason}, {want.Message, f.Message},
	} {
		if c.pattern != "" && !found(c.pattern, c.text) {
			return false
		}
	}
	return !slices.ContainsFunc(want.Containers, func(c repo.ContainerPattern) bool { return !matchesContainer(&c, f) })
}

func matchesContainer(want *repo.ContainerPattern, f *Failure) bool {
	if want.Reason == "" && want.Message == "" && want.Signals == nil && want.ExitCodes == nil {
		return slices.ContainsFunc(f.Containers, func(name string) bool { return want.Name == "" || found(want.Name, name) })
	}
	return slices.ContainsFunc(f.Ends, func(e End) bool {
		return (want.Name == "" || found(want.Name, e.Container)) &&
			(want.Reason == "" || found(want.Reason, e.Reason)) &&
			(want.Message == "" || found(want.Message, e.Message)) &&
			(want.Signals == nil || inRanges([]repo.CodeRange{*want.Signals}, e.Signal)) &&
			(want.ExitCodes == nil || inRanges([]repo.CodeRange{*want.ExitCodes}, e.ExitCode))
	})
}
