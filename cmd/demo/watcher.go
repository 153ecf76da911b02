package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/trainyard/trainyard/cmd/daemon"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// watcher prints a line whenever a job's state changed or its log grew.
type watcher struct {
	out   io.Writer
	start time.Time
	lines map[string]string // what was printed last, by job and by pod
}

func (w *watcher) look(ctx context.Context, d *daemon.Daemon) {
	for _, rec := range d.Records() {
		name := rec.Metadata.Name
		w.print(name, name, describe(&rec))
		for _, r := range rec.Roles {
			for _, t := range r.Tasks {
				if len(t.Attempts) == 0 {
					continue
				}
				pod := t.Attempts[len(t.Attempts)-1].Pod
				if line := d.LastLine(ctx, rec.Key().Namespace, pod); line != "" {
					w.print(pod, name, t.Name+" | "+line)
				}
			}
		}
	}
}

func (w *watcher) print(key, job, line string) {
	if w.lines[key] == line {
		return
	}
	w.lines[key] = line
	fmt.Fprintf(w.out, "%5.1fs  %-9s %s\n", time.Since(w.start).Seconds(), job, line)
}

// describe says in a line where a job stands.
func describe(rec *repo.Record) string {
	var parts []string
	for _, r := range rec.Roles {
		for _, n := range []struct {
			count int32
			word  string
		}{{r.Pending, "pending"}, {r.Running, "running"}, {r.Succeeded, "succeeded"}, {r.Failed, "failed"}} {
			if n.count > 0 {
				parts = append(parts, fmt.Sprintf("%d %s %s", n.count, r.Name, n.word))
			}
		}
	}
	line := string(rec.Phase)
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	return line
}
