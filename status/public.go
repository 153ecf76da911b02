package status

import (
	"encoding/json"
	"fmt"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// public is a record as everybody may read it: what programs and backends said
// is masked. It shares nothing with the record that it is made from but its finished runs.
func public(r repo.Record) (repo.Record, error) {
	out, err := copied(r)
	if err != nil {
		return out, err
	}
	out.Message = Mask(out.Message)
	for i := range out.Conditions {
		out.Conditions[i].Message = Mask(out.Conditions[i].Message)
	}
	if run := out.Run; run != nil {
		maskOutcome(run.Ending)
		maskOutcome(run.Outcome)
	}
	for i := range out.Attempts {
		maskOutcome(&out.Attempts[i].Outcome)
	}
	eachTask(&out, func(t *repo.TaskRecord) {
		for i := range t.Attempts {
			t.Attempts[i].Waiting = Mask(t.Attempts[i].Waiting)
			maskOutcome(t.Attempts[i].Outcome)
		}
	})
	return out, nil
}

func maskOutcome(o *repo.Outcome) {
	if o != nil {
		o.Message = Mask(o.Message)
	}
}

func copied(r repo.Record) (repo.Record, error) {
	var out repo.Record
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return out, fmt.Errorf("copy the record of %s: %w", r.Key(), err)
	}
	out.History, out.Past, out.Dir, out.Damaged = r.History, r.Past, r.Dir, r.Damaged
	return out, nil
}
