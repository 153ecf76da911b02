package runner

import (
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// clone copies everything of a record that Decide may change. What it only
// replaces as a whole (outcomes, times, labels) is shared, and so is the history
// up to what is appended: of a schedule of every minute it grows long.
func clone(r repo.Record) repo.Record {
	r.Conditions = slices.Clone(r.Conditions)
	r.Attempts = slices.Clone(r.Attempts)
	r.History = slices.Clip(r.History)
	if r.Run != nil {
		run := *r.Run
		run.Covers, run.AvoidNodes = slices.Clone(run.Covers), slices.Clone(run.AvoidNodes)
		r.Run = &run
	}
	if r.Schedule != nil {
		s := *r.Schedule
		r.Schedule = &s
	}
	r.Roles = slices.Clone(r.Roles)
	for i := range r.Roles {
		r.Roles[i].Tasks = slices.Clone(r.Roles[i].Tasks)
		for j := range r.Roles[i].Tasks {
			r.Roles[i].Tasks[j].Attempts = slices.Clone(r.Roles[i].Tasks[j].Attempts)
		}
	}
	return r
}
