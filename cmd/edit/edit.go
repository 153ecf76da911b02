package edit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Action is what a job is asked to do.
type Action string

// The actions.
const (
	Suspend Action = "suspend"
	Resume  Action = "resume"
	Stop    Action = "stop"
	Rerun   Action = "rerun"
)

// ErrUnchanged says that the job already is as the action asks.
var ErrUnchanged = errors.New("nothing to change")

// setting is one field of a document and the value it is to have.
type setting struct {
	path  []string
	value string
	text  bool // the value is a string, whatever it looks like
}

// Apply returns the file with the action done to the document at index (as
// Documents counts them). The time is for Rerun alone: the annotation's new
// value, moved on by a second when it is there already.
func Apply(file []byte, index int, action Action, now time.Time) ([]byte, error) {
	docs, err := parse(file)
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(docs) {
		return nil, fmt.Errorf("document %d of %d: there is none", index+1, len(docs))
	}
	settings, err := plan(docs[index], action, now)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		if file, err = set(file, index, s); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// plan lists what an action sets in a document of its kind.
func plan(doc *yaml.Node, action Action, now time.Time) ([]setting, error) {
	var out []setting
	d := document(doc)
	switch action {
	case Suspend:
		out = append(out, suspendSetting(d, "true"))
	case Resume:
		out = resume(doc, d)
	case Stop:
		out = append(out, stopSetting(d, true))
	case Rerun:
		out = rerun(doc, d, now)
	default:
		return nil, fmt.Errorf("no action %q", action)
	}
	kept := out[:0]
	for _, s := range out {
		if scalarAt(doc, s.path) != s.value {
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 {
		return nil, ErrUnchanged
	}
	return kept, nil
}

// resume takes back every way in which the job may have been suspended.
func resume(doc *yaml.Node, d Document) []setting {
	ways := []setting{annotation(repo.AnnotationSuspend, "false")}
	if d.isTrainingJob() {
		ways = append(ways, suspendSetting(d, "false"))
	}
	return slices.DeleteFunc(ways, func(s setting) bool { return scalarAt(doc, s.path) == "" })
}

// rerun asks for a new run, and takes back a stop, which would end it at once.
func rerun(doc *yaml.Node, d Document, now time.Time) []setting {
	value := now.UTC().Truncate(time.Second)
	was := scalarAt(doc, annotation(repo.AnnotationRerun, "").path)
	if at, err := time.Parse(time.RFC3339, was); err == nil && !value.After(at) {
		value = at.UTC().Truncate(time.Second).Add(time.Second)
	}
	out := []setting{annotation(repo.AnnotationRerun, value.Format(time.RFC3339))}
	ways := []setting{annotation(repo.AnnotationStop, "false")}
	if d.isTrainingJob() || d.isFramework() {
		ways = append(ways, stopSetting(d, false))
	}
	for _, s := range ways {
		if was := scalarAt(doc, s.path); strings.EqualFold(was, "true") || was == executionStop {
			out = append(out, s)
		}
	}
	return out
}

func suspendSetting(d Document, value string) setting {
	if d.isTrainingJob() {
		return setting{path: []string{"spec", "suspend"}, value: value}
	}
	return annotation(repo.AnnotationSuspend, value)
}

// The values of a Framework's executionType that stop it and start it.
const (
	executionStop  = "Stop"
	executionStart = "Start"
)

func stopSetting(d Document, stop bool) setting {
	value := fmt.Sprint(stop)
	switch {
	case d.isTrainingJob():
		return setting{path: []string{"spec", "stop"}, value: value}
	case d.isFramework() && stop:
		return setting{path: []string{"spec", "executionType"}, value: executionStop}
	case d.isFramework():
		return setting{path: []string{"spec", "executionType"}, value: executionStart}
	}
	return annotation(repo.AnnotationStop, value)
}

func annotation(name, value string) setting {
	return setting{path: []string{"metadata", "annotations", name}, value: value, text: true}
}
