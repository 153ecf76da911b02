package runner

import (
	"cmp"
	"fmt"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Reasons of outcomes that Decide finds itself, without a rule.
const (
	ReasonCompleted      = "Completed"
	ReasonExited         = "Exited"
	ReasonPodFailed      = "PodFailed"
	ReasonPodLost        = "PodLost"
	ReasonPodDeleted     = "PodDeleted"
	ReasonPodRefused     = "PodRefused"
	ReasonNotStarted     = "NotStarted"
	ReasonStartDeadline  = "StartDeadlineExceeded"
	ReasonCutOff         = "StartInterrupted"
	ReasonDeadline       = "DeadlineExceeded"
	ReasonNoProgress     = "NoProgress"
	ReasonStopRequested  = "StopRequested"
	ReasonSuspended      = "Suspended"
	ReasonRemoved        = "Removed"
	ReasonReplaced       = "Replaced"
	ReasonScaledDown     = "ScaledDown"
	ReasonRunEnded       = "RunEnded"
	ReasonDefinitionLost = "DefinitionLost"
	ReasonRecordLost     = "RecordLost"
	ReasonFailureBudget  = "BackoffLimitExceeded"
)

// classify gives a failed pod its outcome: by the first rule that matches, or
// Unknown. avoid says that the rule blames the node.
func classify(rules []repo.FailureRule, main string, p *Pod) (o repo.Outcome, avoid bool) {
	o = repo.Outcome{Result: repo.Failed, Class: repo.Unknown, Reason: ReasonPodFailed, Message: cmp.Or(p.Failure.Message, p.Failure.Disruption)}
	if len(p.Failure.Reasons) > 0 {
		o.Reason = p.Failure.Reasons[0]
	}
	end := decisive(main, p.Failure.Ends)
	if end != nil {
		code := end.ExitCode
		o.ExitCode, o.Signal = &code, end.Signal
		if len(p.Failure.Reasons) == 0 {
			o.Reason, o.Message = ReasonExited, end.describe()
			if end.Reason != "" && end.Reason != "Error" {
				o.Reason = end.Reason
			}
		}
	}
	for i := range rules {
		r := (*rule)(&rules[i])
		if !r.matches(p, main) {
			continue
		}
		o.Class, o.Free, o.FailRun = r.Class, r.Free, r.FailRun
		if r.Name != "" {
			o.Reason = r.Name
		}
		return o, r.AvoidNode
	}
	return o, false
}

// blamesCluster says whether the rule that a failed pod meets asks why the pod
// went, not how its containers ended.
func blamesCluster(rules []repo.FailureRule, main string, p *Pod) bool {
	for i := range rules {
		if r := (*rule)(&rules[i]); r.matches(p, main) {
			return (len(r.Reasons) > 0 || r.ReasonPattern != "" || r.Pod != nil && r.Pod.Reason != "") && r.matchesPod(&p.Failure)
		}
	}
	return false
}

// decisive is the end that speaks for the pod: of the failed containers the
// main one, or the one that finished last. A sidecar is ended when the others
// have, and speaks for nobody.
func decisive(main string, ends []End) *End {
	var last *End
	for i := range ends {
		e := &ends[i]
		switch {
		case e.ExitCode == 0 || e.Sidecar:
		case e.Container == main:
			return e
		case last == nil || !e.At.Before(last.At):
			last = e
		}
	}
	return last
}

func (e *End) describe() string {
	what := "container"
	if e.Init {
		what = "init container"
	}
	text := fmt.Sprintf("%s %q exited with code %d", what, e.Container, e.ExitCode)
	if e.Signal != 0 {
		text = fmt.Sprintf("%s %q was ended by signal %d", what, e.Container, e.Signal)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}
