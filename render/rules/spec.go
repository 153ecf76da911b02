package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// Spec is a failure rule as a job's failureRules and the repository's settings
// write it. All conditions that are given must hold; at least one must be given.
type Spec struct {
	// Name becomes the reason of the outcome: one word in CamelCase.
	Name string `json:"name,omitempty"`
	// Container asks for the end of the container of this name.
	Container string `json:"container,omitempty"`
	// ExitCodes are codes and ranges of them: 42, 200-209.
	ExitCodes []Codes `json:"exitCodes,omitempty"`
	// Signals are numbers of signals: 9, 1-15.
	Signals []Codes `json:"signals,omitempty"`
	// Reasons of the pod or the container, as Kubernetes writes them: Evicted, OOMKilled.
	Reasons []string `json:"reasons,omitempty"`
	// ReasonPattern, MessagePattern and LogPattern are RE2 expressions found
	// anywhere in the reason, the message, or the end of the log.
	ReasonPattern  string `json:"reasonPattern,omitempty"`
	MessagePattern string `json:"messagePattern,omitempty"`
	LogPattern     string `json:"logPattern,omitempty"`
	// Class of a failure that matches: Transient, TransientConflict, Permanent or Unknown.
	Class repo.Class `json:"class"`
	// Free failures do not use up the budget of retries.
	Free bool `json:"free,omitempty"`
	// AvoidNode keeps the retry away from the node it failed on.
	AvoidNode bool `json:"avoidNode,omitempty"`
}

// Codes is a number, or a range of them: 200-209.
type Codes repo.CodeRange

// UnmarshalJSON reads 42 or "200-209".
func (c *Codes) UnmarshalJSON(data []byte) error {
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	lowest, err1 := strconv.ParseInt(strings.TrimSpace(low), 10, 32)
	highest, err2 := strconv.ParseInt(strings.TrimSpace(high), 10, 32)
	if err1 != nil || err2 != nil || lowest > highest {
		return fmt.Errorf("want a number like 42 or a range like 200-209, not %s", text)
	}
	*c = Codes{Min: int32(lowest), Max: int32(highest)}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (c Codes) MarshalJSON() ([]byte, error) {
	if c.Min == c.Max {
		return json.Marshal(c.Min)
	}
	return json.Marshal(fmt.Sprintf("%d-%d", c.Min, c.Max))
}

// maxPattern bounds an RE2 expression: its cost grows with its length.
const (
	maxPattern = 1000
	maxRules   = 100
)

// Read checks rules and turns them into those of a job.
func Read(o *manifest.Object, path string, specs []Spec) []repo.FailureRule {
	if len(specs) > maxRules {
		o.Errorf(path, "%d rules are too many; %d are the most", len(specs), maxRules)
		return nil
	}
	out := make([]repo.FailureRule, 0, len(specs))
	for i := range specs {
		s, at := &specs[i], manifest.Item(path, i)
		if s.Class == "" {
			o.Errorf(at+".class", "required: Transient, TransientConflict, Permanent or Unknown")
		}
		r := repo.FailureRule{
			Name: s.Name, Container: s.Container, Reasons: s.Reasons, ReasonPattern: s.ReasonPattern, MessagePattern: s.MessagePattern,
			LogPattern: s.LogPattern, Free: s.Free, AvoidNode: s.AvoidNode,
			Class: manifest.OneOf(o, at+".class", s.Class, repo.Unknown, repo.Transient, repo.TransientConflict, repo.Permanent, repo.Unknown),
		}
		if s.Name != "" && !word.MatchString(s.Name) {
			o.Errorf(at+".name", "%q is not one word of letters and digits", s.Name)
		}
		r.ExitCodes = ranges(o, at+".exitCodes", s.ExitCodes, 255)
		r.Signals = ranges(o, at+".signals", s.Signals, 64)
		pattern(o, at+".reasonPattern", s.ReasonPattern)
		pattern(o, at+".messagePattern", s.MessagePattern)
		pattern(o, at+".logPattern", s.LogPattern)
		if len(r.ExitCodes)+len(r.Signals)+len(r.Reasons) == 0 && r.Container+r.ReasonPattern+r.MessagePattern+r.LogPattern == "" {
			o.Errorf(at, "a rule without a condition would match every failure: give it exitCodes, signals, reasons or a pattern")
		}
		out = append(out, r)
	}
	return out
}

var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)

func ranges(o *manifest.Object, path string, in []Codes, highest int32) (out []repo.CodeRange) {
	for i, c := range in {
		if c.Min < 1 || c.Max > highest {
			o.Errorf(manifest.Item(path, i), "want numbers from 1 to %d", highest)
		}
		out = append(out, repo.CodeRange(c))
	}
	return out
}

func pattern(o *manifest.Object, path, expression string) {
	if len(expression) > maxPattern {
		o.Errorf(path, "an expression of %d characters is too long; %d are the most", len(expression), maxPattern)
		return
	}
	if _, err := regexp.Compile(expression); err != nil {
		o.Errorf(path, "%v (the syntax is RE2's)", err)
	}
}
