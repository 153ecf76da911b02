package repo

import (
	"iter"
	"slices"
	"time"
)

// Past is what is kept of the runs that are no longer in a record's History: who
// they were, so that none runs again, and not how they went, which the file says.
type Past struct {
	GPUSeconds int64

	runs    []pastRun // oldest first
	covered []pastRun // what runs answered for besides themselves
	reruns  []pastRerun
}

type pastRun struct {
	id string
	at int64 // when it finished, in seconds of Unix time
}

type pastRerun struct{ value, digest string }

// Finish puts a finished run into the history. Copies of the record that were
// made before do not see it.
func (r *Record) Finish(s RunSummary) {
	r.History = slices.Concat(r.History, []RunSummary{s}) // without room for more
}

// Fold keeps of old runs no more than Past does. The first so many runs are those
// whose lines the remote has: of the others the record is all that there is.
func (r *Record) Fold(pushed int) {
	n := min(pushed-len(r.Past.runs), len(r.History)-KeptRuns)
	if n < KeptRuns { // many at a time, as each time copies all that is known of the past
		return
	}
	r.Past.add(r.History[:n])
	r.History = slices.Clone(r.History[n:])
}

func (p *Past) add(old []RunSummary) {
	p.runs, p.covered, p.reruns = slices.Clip(p.runs), slices.Clip(p.covered), slices.Clip(p.reruns)
	for i := range old {
		s := &old[i]
		at := s.FinishedAt.Unix()
		p.GPUSeconds += s.GPUSeconds
		p.runs = append(p.runs, pastRun{s.ID, at})
		for _, id := range s.Covers {
			p.covered = append(p.covered, pastRun{id, at})
		}
		if s.Trigger.Kind == TriggerRerun {
			p.reruns = append(p.reruns, pastRerun{s.Trigger.Value, s.Digest})
		}
	}
}

// Runs is how many runs of the job have finished.
func (r *Record) Runs() int { return len(r.Past.runs) + len(r.History) }

// RunIDs are the finished runs, oldest first.
func (r *Record) RunIDs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range r.Past.runs {
			if !yield(r.Past.runs[i].id) {
				return
			}
		}
		for i := range r.History {
			if !yield(r.History[i].ID) {
				return
			}
		}
	}
}

// Finished says when a run finished, or the one that answered for it; ok is
// false if none of them has.
func (r *Record) Finished(run string) (at time.Time, ok bool) {
	for i := range r.History {
		if s := &r.History[i]; s.ID == run || slices.Contains(s.Covers, run) {
			return s.FinishedAt.Time, true
		}
	}
	for _, list := range [][]pastRun{r.Past.runs, r.Past.covered} {
		for i := range list {
			if list[i].id == run {
				return time.Unix(list[i].at, 0).UTC(), true
			}
		}
	}
	return time.Time{}, false
}

// AnyRerun says whether f holds for a finished run that was started by a rerun:
// for the annotation's value and the digest of what it ran.
func (r *Record) AnyRerun(f func(value, digest string) bool) bool {
	return slices.ContainsFunc(r.History, func(s RunSummary) bool { return s.Trigger.Kind == TriggerRerun && f(s.Trigger.Value, s.Digest) }) ||
		slices.ContainsFunc(r.Past.reruns, func(p pastRerun) bool { return f(p.value, p.digest) })
}
