package status

import (
	"encoding/json"
	"fmt"
	"regexp"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// masks find what looks like a secret. Group 1, if there is one, is kept, and so is group 2.
var masks = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	regexp.MustCompile(`(?s)\A[A-Za-z0-9+/=\s]*-----END [A-Z ]*PRIVATE KEY-----`),   // its begin was cut off
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), // JWT
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,})`),
	regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/]+(@)`),
	regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)(\s--?[a-z-]*(?:password|secret|token|api-key)\s+)[^\s*-][^\s]*`),
}

// assigned finds values of names that end like those of secrets. tokens=512
// and token_count: 3 are none.
var assigned = regexp.MustCompile(
	`(?i)([a-z0-9_.-]*(?:password|passwd|secret|token|(?:api|access|private|secret)[_-]?key|credentials?|authorization)["']?\s*[:=]\s*["']?(?:(?:basic|bearer|token)\s+)?)([^\s"',;&]+)`)

// plain is a value that is no secret, whatever its name: a number, or a word
// before the secret.
var plain = regexp.MustCompile(`(?i)^(?:basic|bearer|token|\*+)$|^[-+]?[0-9.][0-9._]{0,11}(?:[eE][-+]?[0-9]+)?[a-z/%)]{0,3}$`)

// Mask replaces what looks like a secret by ***.
func Mask(text string) string {
	for _, m := range masks {
		if m.NumSubexp() == 0 {
			text = m.ReplaceAllString(text, "***")
		} else {
			text = m.ReplaceAllString(text, "${1}***${2}")
		}
	}
	return assigned.ReplaceAllStringFunc(text, func(found string) string {
		parts := assigned.FindStringSubmatch(found)
		if plain.MatchString(parts[2]) {
			return found
		}
		return parts[1] + "***"
	})
}

// public is a record as everybody may read it: what programs and backends said
// is masked. It shares nothing with the record that it is made from.
func public(r repo.Record) (repo.Record, error) {
	var out repo.Record
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return out, fmt.Errorf("copy the record of %s: %w", r.Key(), err)
	}
	out.History, out.Dir, out.Damaged = r.History, r.Dir, r.Damaged
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
