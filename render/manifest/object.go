package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Format reads one kind of job file. The package of each format exports
// func Format() manifest.Format.
type Format struct {
	Kinds []schema.GroupVersionKind
	// Spec is the zero value of the Go type of the spec. Each of its fields has
	// its row in docs/formats.md.
	Spec any
	// Read decodes, fills in defaults and validates, and returns the job
	// without Digest, Shape, Objects and Source. Problems, all of them, are
	// reported to the object; with errors among them the result means nothing.
	Read func(o *Object) *repo.Job
	// Neutral are paths that do not change what a run does, left out of its digest.
	Neutral []string
	// Replicas are paths of replica counts, Templates of pod templates:
	// spec.roles[*].replicas.
	Replicas  []string
	Templates []string
	// MergeKeys are lists of the format that merge by a key: spec.roles by name.
	MergeKeys map[string]string
}

// Object is an object as kustomize built it, with the document it came from.
// Its reader reports problems through it, with positions in that document.
type Object struct {
	built    map[string]any
	source   *Document
	settings repo.Settings
	problems []*repo.Error
	errors   int // of problems; the rest are warnings
	// unread are fields whose value had the wrong type. Nothing more is said of
	// them: that they are missing, for one, would be wrong.
	unread []string
}

// NewObject wraps a built object. source is nil when it is not known.
func NewObject(built map[string]any, source *Document, settings repo.Settings) *Object {
	return &Object{built: built, source: source, settings: settings}
}

// Content is the object as it was built. It is not to be changed.
func (o *Object) Content() map[string]any { return o.built }

// Settings of the repository.
func (o *Object) Settings() repo.Settings { return o.settings }

// wrong reports a field that has the wrong type.
func (o *Object) wrong(field, format string, args ...any) {
	o.Errorf(field, format, args...)
	if !o.full() {
		o.unread = append(o.unread, field)
	}
}

// full says that no further error is kept: there are enough to begin with, and
// a hostile file must not make more work than that.
func (o *Object) full() bool { return o.errors >= maxProblems }

// Errorf reports a problem with a field.
func (o *Object) Errorf(field, format string, args ...any) {
	if o.full() {
		return
	}
	for _, u := range o.unread {
		if rest, ok := strings.CutPrefix(field, u); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return
		}
	}
	o.report(false, field, fmt.Sprintf(format, args...))
}

// Warnf reports something that is accepted but should be looked at.
func (o *Object) Warnf(field, format string, args ...any) {
	o.report(true, field, fmt.Sprintf(format, args...))
}

// Problems are all that was reported, in the order of the file.
func (o *Object) Problems() []*repo.Error { return repo.SortErrors(o.problems) }

// Failed says whether an error, and not only warnings, was reported.
func (o *Object) Failed() bool { return o.errors > 0 }

func (o *Object) report(warning bool, field, message string) {
	if warning && len(o.problems)-o.errors >= maxProblems {
		return
	}
	if !warning {
		o.errors++
	}
	e := &repo.Error{Field: field, Message: message, Warning: warning}
	if o.source != nil {
		e.File = o.source.File
		key, value, overlaid := o.find(field)
		switch {
		case overlaid:
			e.Line = o.source.Line
			e.Message += " (set by an overlay)"
		case key != nil:
			e.Line, e.Column = key.Line, key.Column
		case value != nil:
			e.Line, e.Column = value.Line, value.Column
		}
	}
	o.problems = append(o.problems, e)
}

// node is the source's value of a field, nil when an overlay set it or it is absent.
func (o *Object) node(field string) *yaml.Node {
	if o.source == nil {
		return nil
	}
	s := steps(field)
	_, value, overlaid := o.find(field)
	if overlaid || value == nil || o.missing(s) {
		return nil
	}
	return resolve(value)
}

// missing says whether the built object has no such field.
func (o *Object) missing(path []step) bool {
	var b any = o.built
	for _, s := range path {
		var ok bool
		if b, ok = below(b, s); !ok {
			return true
		}
	}
	return false
}

// find walks the built object and its source side by side. It returns the
// field's node in the source, or its nearest parent's when the object has no
// such field; overlaid says that the object has it and the source has not.
func (o *Object) find(field string) (key, value *yaml.Node, overlaid bool) {
	var b any = o.built
	value = o.source.Root
	for _, s := range steps(field) {
		next, there := below(b, s)
		k, v := beside(value, s, next)
		if v == nil {
			return key, value, there
		}
		key, value, b = k, v, next
		if !there {
			b = nil
		}
	}
	return key, value, false
}

// below is the part of a built value that a step leads to.
func below(b any, s step) (any, bool) {
	switch v := b.(type) {
	case map[string]any:
		x, ok := v[s.key]
		return x, ok && s.index < 0
	case []any:
		if s.index >= 0 && s.index < len(v) {
			return v[s.index], true
		}
	}
	return nil, false
}

// beside is the node that a step leads to in the source. Items of lists that
// kustomize may have merged are found by their name.
func beside(n *yaml.Node, s step, built any) (key, value *yaml.Node) {
	if n = resolve(n); n == nil {
		return nil, nil
	}
	if s.index < 0 {
		return entry(n, s.key)
	}
	if n.Kind != yaml.SequenceNode {
		return nil, nil
	}
	if m, ok := built.(map[string]any); ok {
		if name, ok := m["name"].(string); ok {
			items := n.Content
			if s.index < len(items) { // of two with one name, the one in its place
				items = append([]*yaml.Node{items[s.index]}, items...)
			}
			for _, item := range items {
				if c := resolve(child(item, "name")); c != nil && c.Value == name {
					return nil, item
				}
			}
			return nil, nil
		}
	}
	if s.index < len(n.Content) {
		return nil, n.Content[s.index]
	}
	return nil, nil
}
