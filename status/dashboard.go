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
	var b strings.Builder
	rest, placed := text, false
	for {
		i, j := span(rest, begin, end)
		if j == 0 {
			break
		}
		b.WriteString(rest[:i])
		if !placed { // another one is left from a merge
			b.WriteString(section)
			placed = true
		}
		rest = rest[j:]
	}
	if !placed {
		return []byte(insert(text, environment, section))
	}
	return []byte(b.String() + rest)
}

// span is where the first section between two marks lies, with the end of its last line.
func span(text, begin, end string) (from, to int) {
	for at := 0; ; {
		j := strings.Index(text[at:], end)
		if j < 0 {
			return 0, 0
		}
		at += j + len(end)
		if i := strings.LastIndex(text[:at], begin); i >= 0 {
			if strings.HasPrefix(text[at:], "\n") {
				at++
			}
			return i, at
		}
	}
}

// insert puts a new section where it belongs by its name: before the first one that comes behind it.
func insert(text, environment, section string) string {
	const mark = "<!-- trainyard:begin "
	for at := 0; ; at += len(mark) {
		i := strings.Index(text[at:], mark)
		if i < 0 {
			break
		}
		at += i
		if name, _, _ := strings.Cut(text[at+len(mark):], " "); name > environment {
			return text[:at] + section + "\n" + text[at:]
		}
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + section
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
	{"Others", nil, false}, // of a newer version
}

// groupOf is the index of the group that shows a phase: no job is left out.
func groupOf(p repo.Phase) int {
	i := slices.IndexFunc(groups, func(g group) bool { return slices.Contains(g.phases, p) })
	if i < 0 {
		i = len(groups) - 1
	}
	return i
}

func environmentSection(layout repo.Layout, environment string, records []repo.Record, notices []string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Environment %s\n\n", escape(environment))
	for _, n := range notices {
		fmt.Fprintf(&b, "> **%s**\n\n", escape(Mask(n)))
	}
	fmt.Fprintf(&b, "%s\n\n", totals(records))
	warnings(&b, layout, environment, records)
	for n, g := range groups {
		var rows []*repo.Record
		for i := range records {
			if groupOf(records[i].Phase) == n {
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
			list = append(list, fmt.Sprintf("- %s: %s\n", pageLink(layout, environment, r), escape(w)))
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

// pageLink leads from the dashboard to a job's page.
func pageLink(layout repo.Layout, environment string, r *repo.Record) string {
	dir := strings.TrimPrefix(layout.RecordDir(environment, r.Key()), layout.Root+"/")
	return link(r.Key().String(), path.Join(dir, repo.PageFile))
}

// totals are the numbers of jobs in each phase, and the GPU hours of all runs.
func totals(records []repo.Record) string {
	counts := map[repo.Phase]int{}
	var seconds int64
	runs := 0
	for i := range records {
		counts[records[i].Phase]++
		seconds += GPUSeconds(&records[i])
		runs += records[i].Runs()
	}
	parts := []string{count(len(records), "job")}
	for _, g := range groups {
		for _, p := range g.phases {
			if n := counts[p]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, p))
			}
		}
	}
	parts = append(parts, count(runs, "finished run"))
	if seconds > 0 {
		parts = append(parts, hours(seconds)+" GPU hours")
	}
	return strings.Join(parts, " · ")
}

// GPUSeconds are the GPU seconds of all runs of a job, the present one too.
func GPUSeconds(r *repo.Record) int64 {
	n := r.Past.GPUSeconds
	for i := range r.History {
		n += r.History[i].GPUSeconds
	}
	if run := r.Run; run != nil {
		if _, over := r.Finished(run.ID); !over {
			n += run.GPUSeconds
		}
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
	b.WriteString("| job | phase | tasks done | retries | started (UTC) | took | GPU hours | why |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows[:min(len(rows), dashboardRows)] {
		dashboardRow(b, layout, environment, r)
	}
	b.WriteString("\n")
	if n := len(rows) - dashboardRows; n > 0 {
		fmt.Fprintf(b, "and %d more below %s\n\n", n, link(environment, environment))
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
	seconds := ""
	if n := GPUSeconds(r); n > 0 {
		seconds = hours(n)
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", pageLink(layout, environment, r), escape(string(r.Phase)), tasks, retries, started, duration, seconds, escape(Mask(why(r))))
}

// why a job stands where it does, and when it runs next.
func why(r *repo.Record) string {
	text := r.Message
	switch {
	case r.Phase == repo.PhaseInvalid:
		text = strings.Join(r.Errors, "; ")
	case r.Reason != "" && r.Phase != repo.PhaseSucceeded:
		text = strings.TrimSuffix(r.Reason+": "+text, ": ")
	}
	if s := r.Schedule; s != nil && s.Next != nil && r.Phase != repo.PhaseRemoved {
		text = strings.TrimPrefix(text+"; next "+clock(*s.Next), "; ")
	}
	return text
}

// Progress counts a run's tasks: those that succeeded and all that have to
// (daemons do not), and the retries of the run and its tasks.
func Progress(r *repo.Record) (done, all, retries int32) {
	if r.Run != nil {
		retries = r.Run.Retries.Total
	}
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
