package status

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	dashboardRows = 200
	title         = "# Training jobs\n"
)

// Dashboard is the README.md at the root of the status branch. Each
// environment has a section of its own in it, between two marks, and only the
// given one is replaced: other daemons and people keep what they wrote.
func Dashboard(existing []byte, layout repo.Layout, environment string, records []repo.Record, notices []string) []byte {
	begin, end := marks(environment)
	section := begin + "\n" + environmentSection(layout, environment, records, notices) + end + "\n"
	text := string(existing)
	if strings.TrimSpace(text) == "" {
		text = title + "\n"
	}
	if i := strings.Index(text, begin); i >= 0 {
		if j := strings.Index(text[i:], end); j >= 0 {
			rest := strings.TrimPrefix(text[i+j+len(end):], "\n")
			return []byte(text[:i] + section + rest)
		}
	}
	// In the order of names: before the first section that comes behind ours.
	for at := 0; ; {
		i := strings.Index(text[at:], "<!-- trainyard:begin ")
		if i < 0 {
			break
		}
		at += i
		name, _, _ := strings.Cut(text[at+len("<!-- trainyard:begin "):], " ")
		if name > environment {
			return []byte(text[:at] + section + "\n" + text[at:])
		}
		at++
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text + section)
}

func marks(environment string) (begin, end string) {
	return "<!-- trainyard:begin " + environment + " -->", "<!-- trainyard:end " + environment + " -->"
}

// group is a part of the dashboard: the jobs in some phases.
type group struct {
	title  string
	phases []repo.Phase
	folded bool
}

var groups = []group{
	{"Running", []repo.Phase{repo.PhaseRunning, repo.PhaseRetrying}, false},
	{"Waiting", []repo.Phase{repo.PhasePending, repo.PhaseWaiting, repo.PhaseSuspended, repo.PhaseScheduled}, false},
	{"Failed", []repo.Phase{repo.PhaseFailed}, false},
	{"Invalid", []repo.Phase{repo.PhaseInvalid}, false},
	{"Succeeded", []repo.Phase{repo.PhaseSucceeded}, false},
	{"Stopped", []repo.Phase{repo.PhaseStopped}, false},
	{"Removed", []repo.Phase{repo.PhaseRemoved}, true},
}

func environmentSection(layout repo.Layout, environment string, records []repo.Record, notices []string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Environment %s\n\n", environment)
	for _, n := range notices {
		fmt.Fprintf(&b, "> **%s**\n\n", escape(n))
	}
	fmt.Fprintf(&b, "%s\n\n", totals(records))
	warnings(&b, layout, environment, records)
	for _, g := range groups {
		var rows []*repo.Record
		for i := range records {
			if slices.Contains(g.phases, records[i].Phase) {
				rows = append(rows, &records[i])
			}
		}
		if len(rows) > 0 {
			g.write(&b, layout, environment, rows)
		}
	}
	return b.String()
}

// warnings of jobs' definitions, folded: the jobs run, but somebody should look.
func warnings(b *bytes.Buffer, layout repo.Layout, environment string, records []repo.Record) {
	var list []string
	for i := range records {
		r := &records[i]
		if r.Phase == repo.PhaseRemoved {
			continue
		}
		for _, w := range r.Warnings {
			list = append(list, fmt.Sprintf("- [%s](%s): %s\n", escape(r.Key().String()), pagePath(layout, environment, r), escape(w)))
		}
	}
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "<details><summary>Warnings: %d</summary>\n\n%s", len(list), strings.Join(list[:min(len(list), dashboardRows)], ""))
	if n := len(list) - dashboardRows; n > 0 {
		fmt.Fprintf(b, "- and %d more, on the pages of their jobs\n", n)
	}
	b.WriteString("\n</details>\n\n")
}

// pagePath is where a job's page is, from the dashboard.
func pagePath(layout repo.Layout, environment string, r *repo.Record) string {
	return strings.TrimPrefix(path.Join(layout.RecordDir(environment, r.Key()), repo.PageFile), layout.Root+"/")
}

// totals are the numbers of jobs in each phase, and the GPU hours of all runs.
func totals(records []repo.Record) string {
	counts := map[repo.Phase]int{}
	var seconds int64
	runs := 0
	for i := range records {
		counts[records[i].Phase]++
		seconds += GPUSeconds(&records[i])
		runs += len(records[i].History)
	}
	parts := []string{fmt.Sprintf("%d jobs", len(records))}
	for _, g := range groups {
		for _, p := range g.phases {
			if n := counts[p]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, p))
			}
		}
	}
	parts = append(parts, fmt.Sprintf("%d finished runs", runs))
	if seconds > 0 {
		parts = append(parts, hours(seconds)+" GPU hours")
	}
	return strings.Join(parts, " · ")
}

// GPUSeconds are the GPU seconds of all runs of a job, the present one too.
func GPUSeconds(r *repo.Record) int64 {
	var n int64
	for _, s := range r.History {
		n += s.GPUSeconds
	}
	if r.Run != nil && r.Run.FinishedAt == nil {
		n += r.Run.GPUSeconds
	}
	return n
}

func (g *group) write(b *bytes.Buffer, layout repo.Layout, environment string, rows []*repo.Record) {
	slices.SortStableFunc(rows, func(a, b *repo.Record) int {
		if c := startOf(b).Compare(startOf(a)); c != 0 {
			return c
		}
		return cmp.Compare(a.Key().String(), b.Key().String())
	})
	if g.folded {
		fmt.Fprintf(b, "<details><summary>%s: %d</summary>\n\n", g.title, len(rows))
	} else {
		fmt.Fprintf(b, "### %s\n\n", g.title)
	}
	b.WriteString("| job | phase | tasks done | retries | started | took | GPU hours | why |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows[:min(len(rows), dashboardRows)] {
		dashboardRow(b, layout, environment, r)
	}
	b.WriteString("\n")
	if n := len(rows) - dashboardRows; n > 0 {
		fmt.Fprintf(b, "and %d more below [%s](%s)\n\n", n, environment, environment)
	}
	if g.folded {
		b.WriteString("</details>\n\n")
	}
}

func dashboardRow(b *bytes.Buffer, layout repo.Layout, environment string, r *repo.Record) {
	started, duration, tasks, retries := "", "", "", ""
	if run := r.Run; run != nil {
		started, duration = clock(run.StartedAt), took(run.StartedAt, run.FinishedAt)
		done, all, again := Progress(r)
		tasks, retries = fmt.Sprintf("%d/%d", done, all), fmt.Sprint(again)
	}
	why := r.Message
	if r.Phase == repo.PhaseInvalid {
		why = strings.Join(r.Errors, "; ")
	} else if r.Reason != "" && r.Phase != repo.PhaseSucceeded {
		why = strings.TrimSuffix(r.Reason+": "+why, ": ")
	}
	seconds := ""
	if n := GPUSeconds(r); n > 0 {
		seconds = hours(n)
	}
	fmt.Fprintf(b, "| [%s](%s) | %s | %s | %s | %s | %s | %s | %s |\n", escape(r.Key().String()), pagePath(layout, environment, r), r.Phase, tasks, retries, started, duration, seconds, escape(Mask(why)))
}

// Progress counts a run's tasks: those that succeeded and all that have to
// (daemons do not), and the retries of the run and its tasks.
func Progress(r *repo.Record) (done, all, retries int32) {
	retries = r.Run.Retries.Total
	for _, a := range r.Attempts {
		for _, t := range a.Tasks {
			retries += t.Retries.Total
		}
	}
	for _, role := range r.Roles {
		for _, t := range role.Tasks {
			retries += t.Retries.Total
		}
		if !role.Daemon {
			done += role.Succeeded
			all += role.Replicas
		}
	}
	return done, all, retries
}

func startOf(r *repo.Record) time.Time {
	if r.Run == nil {
		return time.Time{}
	}
	return r.Run.StartedAt.Time
}
