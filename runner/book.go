package runner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Book is what a publish carries.
type Book struct {
	At       time.Time
	Revision string // of the watched branch
	Changes  []repo.Change
	Records  []repo.Record // all of the environment, changed or not, by key
	Notices  []string      // for the dashboard: what somebody should look at
}

// Branch is what the ledger's branch holds now.
type Branch interface {
	// Touched says whether anybody else may have been at a job's record since
	// this daemon last read or wrote the branch.
	Touched(key repo.Key) bool
	// Record is a job's record with its history, nil when there is none that can be read.
	Record(key repo.Key) *repo.Record
	// Others are the touched records of jobs that this daemon has no record of.
	Others(known map[repo.Key]bool) []repo.Record
}

// A record can be made again from its pods, but for one thing: how a pod has
// ended that was released since is in the record alone. So a record on the
// branch that knows of an end is not overwritten by one that does not. It was
// written by another daemon of the same environment, and whoever meets it reads
// everything again. An older state of the branch that somebody put back knows
// of no such end, and is overwritten; so is what people change by hand, unless it
// is how a pod has ended, or a run: that nobody can tell from another daemon's word.

// Revise says what a push of the book writes to a branch as it is now: its
// changes, and every other record at which somebody else has been, as it was. It
// is an *OvertakenError when the branch knows more.
func (b *Book) Revise(branch Branch) ([]repo.Change, error) {
	out := append([]repo.Change(nil), b.Changes...)
	changing := make(map[repo.Key]bool, len(out))
	for i := range out {
		changing[out[i].Record.Key()] = true
	}
	known := make(map[repo.Key]bool, len(b.Records))
	for i := range b.Records {
		known[b.Records[i].Key()] = true
	}
	if others := branch.Others(known); len(others) > 0 {
		theirs := &others[0]
		return nil, &OvertakenError{Job: theirs.Key(), What: cmp.Or(news(theirs, &repo.Record{}), "there is such a job")}
	}
	for i := range b.Records {
		mine := &b.Records[i]
		key := mine.Key()
		if !branch.Touched(key) {
			continue
		}
		if theirs := branch.Record(key); theirs != nil && mine.Damaged == "" {
			if what := news(theirs, mine); what != "" {
				return nil, &OvertakenError{Job: key, What: what}
			}
		}
		if !changing[key] {
			out = append(out, repo.Change{Record: *mine})
		}
	}
	return out, nil
}

// OvertakenError says that a record on the branch knows more than ours.
type OvertakenError struct {
	Job  repo.Key
	What string
}

func (e *OvertakenError) Error() string {
	return fmt.Sprintf("another daemon writes the record of %s: it knows that %s, which this daemon does not", e.Job, e.What)
}

// news is what their record knows of and mine does not, "" if there is nothing.
func news(theirs, mine *repo.Record) string {
	over := map[string]bool{}
	for run := range mine.RunIDs() {
		over[run] = true
	}
	for run := range theirs.RunIDs() {
		if !over[run] {
			return fmt.Sprintf("run %s has finished", run)
		}
	}
	their, my := theirs.Run, mine.Run
	switch {
	case their == nil || over[their.ID] && (my == nil || my.ID != their.ID):
		return ""
	case my == nil || my.ID != their.ID:
		return fmt.Sprintf("run %s has begun", their.ID)
	case their.Attempt < my.Attempt:
		return ""
	case their.Attempt > my.Attempt:
		return fmt.Sprintf("attempt %d of run %s has ended", my.Attempt, my.ID)
	}
	for _, id := range their.Covers {
		if !slices.Contains(my.Covers, id) { // its tasks are others, and it answers for one run more
			return fmt.Sprintf("run %s has another definition", my.ID)
		}
	}
	return newsOfTasks(theirs, mine)
}

// newsOfTasks compares two records of the same attempt of a run, in which tasks
// only become more. Attempts without a pod can be decided again: they have left
// no trace but their record.
func newsOfTasks(theirs, mine *repo.Record) string {
	known := map[string]*repo.TaskRecord{}
	for _, r := range mine.Roles {
		for j := range r.Tasks {
			known[r.Tasks[j].Name] = &r.Tasks[j]
		}
	}
	for _, r := range theirs.Roles {
		for _, task := range r.Tasks {
			my := cmp.Or(known[task.Name], &repo.TaskRecord{})
			for _, a := range task.Attempts {
				if a.Outcome != nil && a.UID != "" && a.Reason != ReasonPodLost && !knowsEnd(my, &a) {
					return fmt.Sprintf("pod %s has ended", a.Pod)
				}
			}
		}
	}
	return ""
}

// knowsEnd says whether a task's record knows of the end of one of its attempts,
// as somebody else has told it. What the branch said first stays.
func knowsEnd(t *repo.TaskRecord, told *repo.TaskAttemptRecord) bool {
	for _, a := range t.Attempts {
		if a.Attempt == told.Attempt {
			return a.Outcome != nil && a.Result == told.Result && a.Class == told.Class && a.Reason == told.Reason
		}
		if a.Attempt > told.Attempt {
			return true
		}
	}
	return false
}
