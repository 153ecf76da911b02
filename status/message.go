package status

import (
	"fmt"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	subjectLength = 72
	listedJobs    = 50 // in a message
)

// Message is the commit message of a publish: what happened, in a line and if
// need be in a list, and trailers by which the daemon knows its own commits.
// Names of jobs are DNS labels, and nothing else that a user wrote is in it.
func Message(in Input) string {
	var all []string
	for i := range in.Changes {
		all = append(all, happened(&in.Changes[i].Record))
	}
	subject, body := "dashboard of "+in.Environment, ""
	switch {
	case len(all) == 1:
		subject = all[0]
	case len(all) > 1:
		subject = fmt.Sprintf("%d jobs: %s", len(all), strings.Join(all, ", "))
		more := ""
		if len(all) > listedJobs {
			more = fmt.Sprintf("\n- and %d more", len(all)-listedJobs)
			all = all[:listedJobs]
		}
		body = "- " + strings.Join(all, "\n- ") + more + "\n\n"
	}
	return compose(subject, body, in.Environment, in.Revision)
}

// BindingMessage is the message of a commit of an environment's binding alone.
func BindingMessage(environment string) string {
	return compose(environment+": has its place", "", environment, "")
}

func compose(subject, body, environment, revision string) string {
	if len(subject) > subjectLength {
		subject = subject[:subjectLength-len("...")] + "..."
	}
	trailers := "Trainyard-Environment: " + environment + "\n"
	if revision != "" {
		trailers = repo.RevisionTrailer + ": " + revision + "\n" + trailers
	}
	return subject + "\n\n" + body + "[skip ci]\n\n" + trailers
}

// happened says in a few words where a job stands: mnist: Succeeded after 12m.
func happened(r *repo.Record) string {
	text := r.Metadata.Name + ": " + string(r.Phase)
	switch run := r.Run; {
	case run == nil:
	case run.FinishedAt != nil && run.Outcome != nil && r.Phase == repo.Phase(run.Outcome.Result):
		text += " after " + took(run.StartedAt, run.FinishedAt)
	case run.FinishedAt == nil && run.Attempt > 0:
		text += fmt.Sprintf(", attempt %d", run.Attempt+1)
	}
	return text
}
