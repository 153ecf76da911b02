package status

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	openTasks   = 20 // a role with more is folded
	pageTails   = 10
	maxDiagram  = 5000 // what every forge draws
	maxTimeline = 60
)

// Page is a job's own page. tail gives the text of a log tail by its path, ""
// if it is not there.
func Page(r *repo.Record, tail func(path string) string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n**%s**", escape(r.Key().String()), escape(string(r.Phase)))
	if r.Reason != "" {
		fmt.Fprintf(&b, " (%s)", escape(r.Reason))
	}
	if r.Message != "" {
		fmt.Fprintf(&b, ": %s", escape(r.Message))
	}
	b.WriteString("\n\n")
	if r.Schedule != nil && r.Schedule.Next != nil && r.Phase != repo.PhaseRemoved {
		fmt.Fprintf(&b, "Next by its schedule: %s UTC\n\n", clock(*r.Schedule.Next))
	}
	notes(&b, r)
	list(&b, "Errors of the definition", r.Errors)
	list(&b, "Warnings", r.Warnings)
	if r.Run != nil {
		facts(&b, r)
		for i := range r.Roles {
			role(&b, &r.Roles[i])
		}
		timeline(&b, r)
		attempts(&b, r)
		failures(&b, r, tail)
	}
	history(&b, r)
	todo(&b, r)
	b.WriteString("Everything that is known: [status.yaml](status.yaml)")
	if len(r.History) > 0 {
		b.WriteString(", [history.jsonl](history.jsonl)")
	}
	b.WriteString("\n")
	return b.Bytes()
}

// notes are conditions that do not hold, and that the phase does not tell of: a
// definition that waits, a removal that is withheld.
func notes(b *bytes.Buffer, r *repo.Record) {
	if r.Phase == repo.PhaseRemoved {
		return
	}
	for _, c := range r.Conditions {
		if c.Status != metav1.ConditionTrue && c.Message != "" && c.Message != r.Message {
			fmt.Fprintf(b, "> %s: %s\n\n", escape(c.Reason), escape(c.Message))
		}
	}
}

// todo says what people can do with the job.
func todo(b *bytes.Buffer, r *repo.Record) {
	b.WriteString("## What can be done\n\n")
	switch r.Phase {
	case repo.PhaseRemoved:
		b.WriteString("The job comes back when its definition does.\n\n")
	case repo.PhaseInvalid:
		b.WriteString("Nothing of the definition runs before it is mended: `trainyard validate` in a checkout of the repository says the same as this page.\n\n")
	default:
		fmt.Fprintf(b, "In a checkout of the repository: `trainyard rerun %[1]s` runs it again, `trainyard suspend %[1]s` and `trainyard resume %[1]s`"+
			" hold it for a while, `trainyard stop %[1]s` ends it. Then `git push`.\n\n", plainName(r.Metadata.Name))
	}
}

func list(b *bytes.Buffer, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n", title)
	for _, s := range items {
		fmt.Fprintf(b, "- %s\n", escape(s))
	}
	b.WriteString("\n")
}

func facts(b *bytes.Buffer, r *repo.Record) {
	run := r.Run
	fmt.Fprintf(b, "## Run %s\n\nTimes are in UTC.\n\n| | |\n|---|---|\n", escape(run.ID))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "| %s | %s |\n", name, value)
		}
	}
	row("started by", escape(strings.TrimSpace(string(run.Trigger.Kind)+" "+run.Trigger.Value)))
	row("revision", "`"+plainName(run.Revision)+"`")
	row("defined in", escape(r.Definition.File))
	row("started", clock(run.StartedAt))
	row("finished", optional(run.FinishedAt))
	row("took", took(run.StartedAt, run.FinishedAt))
	row("attempt", fmt.Sprint(run.Attempt+1))
	row("retries of the run", fmt.Sprintf("%d, of which %d used up the budget", run.Retries.Total, run.Retries.Accountable))
	if run.GPUSeconds > 0 {
		row("GPU hours", hours(run.GPUSeconds))
	}
	row("next attempt", optional(run.RetryAt))
	b.WriteString("\n")
}

func role(b *bytes.Buffer, r *repo.RoleRecord) {
	fmt.Fprintf(b, "### %s\n\n%s: %d pending, %d running, %d succeeded, %d failed", escape(r.Name), count(r.Replicas, "task"), r.Pending, r.Running, r.Succeeded, r.Failed)
	switch {
	case r.Outlives:
		b.WriteString(" (it goes on after the run, until the next one or the job's removal)")
	case r.Daemon:
		b.WriteString(" (a daemon: it serves the others)")
	}
	b.WriteString("\n\n")
	folded := len(r.Tasks) > openTasks
	if folded {
		b.WriteString("<details><summary>tasks</summary>\n\n")
	}
	b.WriteString("| task | state | attempts | retries | started | finished | ended with | why |\n|---|---|---|---|---|---|---|---|\n")
	for i := range r.Tasks {
		taskRow(b, &r.Tasks[i])
	}
	if folded {
		b.WriteString("\n</details>\n")
	}
	b.WriteString("\n")
}

func taskRow(b *bytes.Buffer, t *repo.TaskRecord) {
	started, finished, end, why := "", "", "", ""
	n := int32(0)
	if k := len(t.Attempts); k > 0 {
		a := &t.Attempts[k-1]
		n, started, finished, why = a.Attempt+1, optional(a.StartedAt), optional(a.FinishedAt), a.Waiting
		if a.Address != "" && a.StartedAt != nil && a.Outcome == nil {
			why = strings.TrimSpace("at " + a.Address + " " + why)
		}
		if a.Outcome != nil {
			end, why = ending(a.Outcome), a.Outcome.Message
		}
	}
	fmt.Fprintf(b, "| %s | %s | %d | %d | %s | %s | %s | %s |\n", escape(t.Name), escape(string(t.Phase)), n, t.Retries.Total, started, finished, end, escape(why))
}

// ending is an outcome in a table's cell.
func ending(o *repo.Outcome) string {
	parts := []string{}
	if o.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("code %d", *o.ExitCode))
	}
	if o.Class != "" {
		parts = append(parts, escape(string(o.Class)))
	}
	if o.Reason != "" {
		parts = append(parts, escape(o.Reason))
	}
	return strings.Join(parts, ", ")
}

func attempts(b *bytes.Buffer, r *repo.Record) {
	if len(r.Attempts) == 0 {
		return
	}
	b.WriteString("### Earlier attempts of the run\n\n| attempt | started | finished | ended with | task | why |\n|---|---|---|---|---|---|\n")
	for i := range r.Attempts {
		a := &r.Attempts[i]
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s | %s |\n", a.Attempt+1, clock(a.StartedAt), clock(a.FinishedAt), ending(&a.Outcome), escape(a.Task), escape(a.Message))
	}
	b.WriteString("\n")
}

// failures shows the ends of the logs of failed task attempts, latest first.
func failures(b *bytes.Buffer, r *repo.Record, tail func(string) string) {
	type failure struct {
		title, log string
		at         time.Time
	}
	var all []failure
	collect := func(tasks []repo.TaskRecord, runAttempt int32) {
		for _, t := range tasks {
			for _, a := range t.Attempts {
				if a.Log == "" || a.Outcome == nil || a.Result != repo.Failed {
					continue
				}
				f := failure{title: fmt.Sprintf("%s, attempt %d.%d", escape(t.Name), runAttempt+1, a.Attempt+1), log: a.Log}
				if a.FinishedAt != nil {
					f.at = a.FinishedAt.Time
				}
				all = append(all, f)
			}
		}
	}
	for _, a := range r.Attempts {
		collect(a.Tasks, a.Attempt)
	}
	for _, role := range r.Roles {
		collect(role.Tasks, r.Run.Attempt)
	}
	slices.SortStableFunc(all, func(a, b failure) int { return b.at.Compare(a.at) })
	shown := 0
	for _, f := range all {
		text := tail(f.log)
		if text == "" {
			continue
		}
		if shown++; shown > pageTails {
			b.WriteString("The ends of earlier logs are beside this page, in [logs](logs).\n\n")
			return
		}
		fmt.Fprintf(b, "### End of the log: %s\n\n%s\n\n%s\n", f.title, link(f.log, f.log), fenced(text))
	}
}

func history(b *bytes.Buffer, r *repo.Record) {
	if len(r.History) == 0 {
		return
	}
	b.WriteString("## Finished runs\n\n| run | started by | started | took | result | attempts | retries | GPU hours |\n|---|---|---|---|---|---|---|---|\n")
	for i := len(r.History) - 1; i >= max(0, len(r.History)-repo.KeptRuns); i-- {
		s := &r.History[i]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s %s | %d | %d | %s |\n", escape(s.ID), escape(string(s.Trigger.Kind)), clock(s.StartedAt), took(s.StartedAt, &s.FinishedAt),
			escape(string(s.Result)), ending(&repo.Outcome{Class: s.Class, Reason: s.Reason}), s.Attempts, s.Retries.Total, hours(s.GPUSeconds))
	}
	if n := r.Runs() - repo.KeptRuns; n > 0 {
		fmt.Fprintf(b, "\nand %d before them, in [history.jsonl](history.jsonl)\n", n)
	}
	b.WriteString("\n")
}

// timeline draws the task attempts as a Gantt chart, if they are few enough.
func timeline(b *bytes.Buffer, r *repo.Record) {
	var g strings.Builder
	g.WriteString("```mermaid\ngantt\n  dateFormat X\n  axisFormat %H:%M:%S\n")
	bars := 0
	for _, role := range r.Roles {
		for _, t := range role.Tasks {
			for _, a := range t.Attempts {
				if a.StartedAt == nil || a.FinishedAt == nil {
					continue
				}
				if bars++; bars > maxTimeline {
					return
				}
				mark := "done"
				if a.Outcome != nil && a.Result == repo.Failed {
					mark = "crit"
				}
				fmt.Fprintf(&g, "  %s.%d :%s, %d, %d\n", plainName(t.Name), a.Attempt+1, mark, a.StartedAt.Unix(), max(a.FinishedAt.Unix(), a.StartedAt.Unix()+1))
			}
		}
	}
	if bars < 2 || g.Len() > maxDiagram {
		return
	}
	fmt.Fprintf(b, "%s```\n\n", g.String())
}
