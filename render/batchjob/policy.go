package batchjob

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// The API server's own bounds.
const (
	maxRules         = 20
	maxConditions    = 20
	maxCodes         = 255
	disruptionTarget = string(corev1.DisruptionTarget)
)

// FailureRules reads the pod failure policy of a job's spec at a path.
func FailureRules(o *manifest.Object, at string, s *Spec) []repo.FailureRule {
	if s.PodFailurePolicy == nil {
		return nil
	}
	at += ".podFailurePolicy.rules"
	list := s.PodFailurePolicy.Rules
	if len(list) > maxRules {
		o.Errorf(at, "%d rules are too many; %d are the most", len(list), maxRules)
		return nil
	}
	var out []repo.FailureRule
	for i := range list {
		here, rule := manifest.Item(at, i), &list[i]
		r := action(o, here, s, rule)
		switch {
		case rule.OnExitCodes != nil && len(rule.OnPodConditions) > 0:
			o.Errorf(here, "has onExitCodes and onPodConditions: a rule has one of them")
		case rule.OnExitCodes != nil:
			r.Container = rule.OnExitCodes.ContainerName
			r.ExitCodes = exitCodes(o, here+".onExitCodes", s, rule.OnExitCodes)
		case len(rule.OnPodConditions) > 0:
			r.Reasons = conditions(o, here+".onPodConditions", rule.OnPodConditions)
		default:
			o.Errorf(here, "has neither onExitCodes nor onPodConditions: a rule has one of them")
		}
		out = append(out, r)
	}
	return out
}

func action(o *manifest.Object, at string, s *Spec, rule *PodFailureRule) repo.FailureRule {
	at += ".action"
	if rule.Action == "" {
		o.Errorf(at, "required: FailJob, FailIndex, Ignore or Count")
	}
	switch manifest.OneOf(o, at, rule.Action, Count, FailJob, FailIndex, Ignore, Count) {
	case FailJob:
		return repo.FailureRule{Name: "PodFailurePolicy", Class: repo.Permanent, FailRun: true}
	case FailIndex:
		if s.BackoffLimitPerIndex == nil {
			o.Errorf(at, "FailIndex goes with backoffLimitPerIndex, which is not given")
		}
		return repo.FailureRule{Name: "FailIndex", Class: repo.Permanent}
	case Ignore:
		return repo.FailureRule{Class: repo.Transient, Free: true}
	}
	return repo.FailureRule{Class: repo.Unknown}
}

// exitCodes are ranges of codes; 0 is never among them.
func exitCodes(o *manifest.Object, at string, s *Spec, c *OnExitCodes) []repo.CodeRange {
	named := func(k corev1.Container) bool { return k.Name == c.ContainerName }
	if spec := &s.Template.Spec; c.ContainerName != "" && !slices.ContainsFunc(spec.Containers, named) && !slices.ContainsFunc(spec.InitContainers, named) {
		o.Errorf(at+".containerName", "the template has no container %q", c.ContainerName)
	}
	if c.Operator == "" {
		o.Errorf(at+".operator", "required: In or NotIn")
	}
	operator := manifest.OneOf(o, at+".operator", c.Operator, In, In, NotIn)
	at += ".values"
	if n := len(c.Values); n == 0 || n > maxCodes {
		o.Errorf(at, "want 1 to %d exit codes, not %d", maxCodes, n)
		return nil
	}
	out := make([]repo.CodeRange, 0, len(c.Values)+1)
	next := int32(1) // lowest code that NotIn has not come to
	for i, n := range c.Values {
		here := manifest.Item(at, i)
		switch {
		case i > 0 && n == c.Values[i-1]:
			o.Errorf(here, "%d is there twice", n)
		case i > 0 && n < c.Values[i-1]:
			o.Errorf(here, "%d is behind %d: the codes have to be in their order", n, c.Values[i-1])
		case n == 0 && operator == In:
			o.Errorf(here, "0 is no failure")
		case n == math.MaxInt32:
			o.Errorf(here, "%d is no exit code", n)
		case operator == In:
			out = append(out, repo.CodeRange{Min: n, Max: n})
		case n >= next:
			if n > next {
				out = append(out, repo.CodeRange{Min: next, Max: n - 1})
			}
			next = n + 1
		}
	}
	if operator == NotIn {
		out = append(out, repo.CodeRange{Min: next, Max: math.MaxInt32})
	}
	return out
}

// conditions are reasons here: what the condition of a disrupted pod becomes.
func conditions(o *manifest.Object, at string, list []OnPodCondition) (reasons []string) {
	if len(list) > maxConditions {
		o.Errorf(at, "%d conditions are too many; %d are the most", len(list), maxConditions)
		return nil
	}
	for i, c := range list {
		here := manifest.Item(at, i)
		switch {
		case c.Type == "":
			o.Errorf(here+".type", "required")
		case c.Type != disruptionTarget:
			o.Warnf(here+".type", "%s is the only condition that is looked at, so this matches no pod%s", disruptionTarget, manifest.Nearest(c.Type, disruptionTarget))
		}
		if manifest.OneOf(o, here+".status", c.Status, "True", "True", "False", "Unknown") != "True" {
			o.Errorf(here+".status", "only conditions that are True can be asked for")
		}
		reasons = append(reasons, c.Type)
	}
	return reasons
}

// success reads the success policy.
func success(o *manifest.Object, at string, s *Spec, completions int32) []repo.SuccessRule {
	p := s.SuccessPolicy
	if p == nil {
		return nil
	}
	if s.CompletionMode != Indexed {
		o.Errorf(at, "goes with completionMode: Indexed")
	}
	at += ".rules"
	if n := len(p.Rules); n == 0 || n > maxRules {
		o.Errorf(at, "want 1 to %d rules, not %d", maxRules, n)
		return nil
	}
	var out []repo.SuccessRule
	for i, rule := range p.Rules {
		here := manifest.Item(at, i)
		var r repo.SuccessRule
		most := completions
		if rule.SucceededIndexes != "" {
			r.Indexes, most = indexes(o, here+".succeededIndexes", rule.SucceededIndexes, completions)
		}
		switch n := rule.SucceededCount; {
		case n != nil && (*n < 1 || *n > most):
			o.Errorf(here+".succeededCount", "want 1 to %d, the number of indexes, not %d", most, *n)
		case n != nil:
			r.Count = *n
		case rule.SucceededIndexes == "":
			o.Errorf(here, "has neither succeededIndexes nor succeededCount: a rule has one of them, or both")
		}
		out = append(out, r)
	}
	return out
}

// maxIndexes bounds the text of a list of indexes, as the API server does.
const maxIndexes = 64 << 10

// indexes reads "0,2-4", and counts them.
func indexes(o *manifest.Object, at, text string, completions int32) (out []repo.CodeRange, n int32) {
	if len(text) > maxIndexes {
		o.Errorf(at, "a text of %d bytes is too long; %d are the most", len(text), maxIndexes)
		return nil, completions
	}
	next := int32(0)
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.ParseInt(low, 10, 32)
		last, err2 := strconv.ParseInt(high, 10, 32)
		switch {
		case err1 != nil || err2 != nil || isRange && first >= last || first < 0:
			o.Errorf(at, `want indexes and ranges of them like "0,2-4", not %q`, part)
			return nil, completions
		case last >= int64(completions):
			o.Errorf(at, "%q is beyond the last index, %d", part, completions-1)
			return nil, completions
		case int32(first) < next:
			o.Errorf(at, "%q is not behind what comes before it: indexes have to be in their order, each once", part)
			return nil, completions
		}
		out = append(out, repo.CodeRange{Min: int32(first), Max: int32(last)})
		next, n = int32(last)+1, n+int32(last-first)+1
	}
	return out, n
}
