package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// text is the value of a scalar of text at a path of keys, or "".
func (d *Document) text(keys ...string) string {
	if d == nil {
		return ""
	}
	n := d.Root
	for _, k := range keys {
		n = child(n, k)
	}
	if n = resolve(n); n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return ""
	}
	return n.Value
}

// APIVersion of the document's object, or "".
func (d *Document) APIVersion() string { return d.text("apiVersion") }

// Kind of the document's object, or "".
func (d *Document) Kind() string { return d.text("kind") }

// Name of the document's object, or "".
func (d *Document) Name() string { return d.text("metadata", "name") }

// Namespace of the document's object, or "".
func (d *Document) Namespace() string { return d.text("metadata", "namespace") }

// Position is the line and column of a field, or of its nearest parent that
// the document has.
func (d *Document) Position(field string) (line, column int) {
	if d == nil || d.Root == nil {
		return 0, 0
	}
	at := d.Root
	line, column = at.Line, at.Column
	n := at
	for _, s := range steps(field) {
		n = resolve(n)
		if s.index >= 0 {
			if n.Kind != yaml.SequenceNode || s.index >= len(n.Content) {
				return line, column
			}
			n = n.Content[s.index]
			line, column = n.Line, n.Column
			continue
		}
		k, v := entry(n, s.key)
		if v == nil {
			return line, column
		}
		n, line, column = v, k.Line, k.Column
	}
	return line, column
}

// Errorf is a problem with a field, at its position.
func (d *Document) Errorf(field, format string, args ...any) *repo.Error {
	e := &repo.Error{Field: field, Message: fmt.Sprintf(format, args...)}
	if d != nil {
		e.File = d.File
		e.Line, e.Column = d.Position(field)
	}
	return e
}

// WantText is the problem of a field that has to be text and is not.
func (d *Document) WantText(field string) *repo.Error {
	n := d.Root
	for _, s := range steps(field) {
		if s.index >= 0 {
			return d.Errorf(field, "want text: write the value in quotes")
		}
		n = child(resolve(n), s.key)
	}
	if n = resolve(n); n == nil {
		return d.Errorf(field, "want text: write the value in quotes")
	}
	return d.Errorf(field, "want text, not %s%s", article(n), quoteHint(n))
}

// CheckObject reports what keeps a document from being a Kubernetes object:
// one with apiVersion, kind and metadata.name.
func (d *Document) CheckObject() []*repo.Error {
	if d.Root.Kind != yaml.MappingNode {
		return []*repo.Error{d.Errorf("", "expected an object with apiVersion and kind, found %s", article(d.Root))}
	}
	var problems []*repo.Error
	require := func(field string, keys ...string) {
		n := d.Root
		for _, k := range keys {
			n = child(n, k)
		}
		switch n = resolve(n); {
		case n == nil || n.ShortTag() == "!!null":
			problems = append(problems, d.Errorf(field, "required"))
		case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
			problems = append(problems, d.Errorf(field, "want text, not %s%s", article(n), quoteHint(n)))
		case isPlain(n) && isOldBool(n.Value):
			problems = append(problems, d.Errorf(field, "want text%s", quoteHint(n)))
		case n.Value == "":
			problems = append(problems, d.Errorf(field, "required"))
		}
	}
	require("apiVersion", "apiVersion")
	require("kind", "kind")
	meta := resolve(child(d.Root, "metadata"))
	switch {
	case meta != nil && meta.Kind != yaml.MappingNode && meta.ShortTag() != "!!null":
		return append(problems, d.Errorf("metadata", "want a map, not %s", article(meta)))
	case d.Kind() == "List" || child(meta, "generateName") != nil:
		return problems
	}
	require("metadata.name", "metadata", "name")
	return problems
}

// quoteHint explains how a plain word was read, when that is a surprise.
func quoteHint(n *yaml.Node) string {
	if n = resolve(n); n == nil || !isPlain(n) {
		return ""
	}
	switch {
	case isOldBool(n.Value):
		return fmt.Sprintf(": unquoted %s is read as the boolean %v by many YAML readers; write %q in quotes", n.Value, oldBool(n.Value), n.Value)
	case n.ShortTag() == "!!str" || n.ShortTag() == "!!null":
		return ""
	}
	if read := scalar(n); !strings.HasSuffix(read, " "+n.Value) {
		return fmt.Sprintf(": unquoted %s is read as %s; write %q in quotes", short(n.Value), read, short(n.Value))
	}
	return fmt.Sprintf(": write %q in quotes", short(n.Value))
}
