package daemon

import (
	"fmt"
	"io/fs"
	"path"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/status"
	"github.com/trainyard/trainyard/sync"
)

// A record can be made again from its pods, but for one thing: how a pod has
// ended that was released since is in the record alone. So a record on the
// branch that knows of an end is not overwritten by one that does not. It was
// written by another daemon of the same environment, and whoever meets it reads
// everything again. An older state of the branch that somebody put back knows
// of no such end, and is overwritten; so is what people change by hand.

// overtakenError says that a record on the branch knows more than ours.
type overtakenError struct {
	branch string
	job    repo.Key
	what   string
}

func (e *overtakenError) Error() string {
	return fmt.Sprintf("branch %s: another daemon writes the record of %s: it knows that %s, which this daemon does not", e.branch, e.job, e.what)
}

// compare looks at the records that are about to be overwritten, if anybody has
// been at the branch since.
func (l *ledger) compare(tip *gitsync.Snapshot, records []repo.Record, touched func(dir string) bool) error {
	if tip == nil || tip.Revision() == l.last() {
		return nil
	}
	layout := l.shared.get()
	for i := range records {
		mine := &records[i]
		dir := layout.RecordDir(l.environment, mine.Key())
		if !touched(dir) {
			continue
		}
		text, err := fs.ReadFile(tip, path.Join(dir, repo.StatusFile))
		if err != nil {
			continue // it is not there
		}
		theirs, err := status.Decode(text)
		if err != nil {
			continue // nobody can read it, so it knows nothing
		}
		if text, err := fs.ReadFile(tip, path.Join(dir, repo.HistoryFile)); err == nil {
			theirs.History, _ = status.DecodeHistory(repo.HistoryFile, text)
		}
		if what := news(&theirs, mine); what != "" {
			return &overtakenError{branch: l.branch, job: mine.Key(), what: what}
		}
	}
	return nil
}

// news is an end that their record knows of and mine does not, "" if there is none.
func news(theirs, mine *repo.Record) string {
	over := map[string]bool{}
	for _, run := range mine.History {
		over[run.ID] = true
	}
	for _, run := range theirs.History {
		if !over[run.ID] {
			return fmt.Sprintf("run %s has finished", run.ID)
		}
	}
	their, my := theirs.Run, mine.Run
	if their == nil || my == nil || their.ID != my.ID || over[my.ID] || their.Attempt < my.Attempt {
		return ""
	}
	if their.Attempt > my.Attempt {
		return fmt.Sprintf("attempt %d of run %s has ended", my.Attempt, my.ID)
	}
	return newsOfTasks(theirs, mine)
}

// newsOfTasks compares two records of the same attempt of a run. A task that
// mine does not have was scaled away. Attempts without a pod can be decided
// again: they have left no trace but their record.
func newsOfTasks(theirs, mine *repo.Record) string {
	known := map[string]*repo.TaskRecord{}
	for _, r := range mine.Roles {
		for j := range r.Tasks {
			known[r.Tasks[j].Name] = &r.Tasks[j]
		}
	}
	for _, r := range theirs.Roles {
		for _, task := range r.Tasks {
			my := known[task.Name]
			if my == nil {
				continue
			}
			for _, a := range task.Attempts {
				if a.Outcome != nil && a.UID != "" && a.Reason != runner.ReasonPodLost && !knowsEnd(my, a.Attempt) {
					return fmt.Sprintf("pod %s has ended", a.Pod)
				}
			}
		}
	}
	return ""
}

// knowsEnd says whether a task's record knows that one of its attempts is over.
func knowsEnd(t *repo.TaskRecord, attempt int32) bool {
	for _, a := range t.Attempts {
		if a.Attempt == attempt {
			return a.Outcome != nil
		}
		if a.Attempt > attempt {
			return true
		}
	}
	return false
}
