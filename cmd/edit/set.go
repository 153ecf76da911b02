package edit

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// refusal is an edit that cannot be done safely by machine.
type refusal struct {
	path []string
	line int
	why  string
}

func (r *refusal) Error() string {
	if r.line == 0 {
		return fmt.Sprintf("set %s: %s", strings.Join(r.path, "."), r.why)
	}
	return fmt.Sprintf("set %s: line %d: %s", strings.Join(r.path, "."), r.line, r.why)
}

// splice replaces the bytes from start to end.
type splice struct {
	start, end int
	text       string
}

// set gives one field of one document a value: it replaces the scalar that is
// there, or adds the field, and the mappings above it, in the style around it.
func set(file []byte, index int, s setting) ([]byte, error) {
	docs, err := parse(file)
	if err != nil {
		return nil, err
	}
	root := docs[index]
	e := editor{text: newText(file), root: root, setting: s}
	where, err := e.place()
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(file)+len(where.text))
	out = append(append(append(out, file[:where.start]...), where.text...), file[where.end:]...)
	if err := verify(docs, out, index, s); err != nil {
		return nil, &refusal{path: s.path, line: root.Line, why: err.Error()}
	}
	return out, nil
}

type editor struct {
	text    text
	root    *yaml.Node
	setting setting
}

func (e *editor) refuse(n *yaml.Node, format string, args ...any) error {
	r := &refusal{path: e.setting.path, why: fmt.Sprintf(format, args...)}
	if n != nil {
		r.line = n.Line
	}
	return r
}

// place walks down the path as far as it exists and decides where to write.
func (e *editor) place() (splice, error) {
	n := e.root
	for i, key := range e.setting.path {
		if n.Kind != yaml.MappingNode {
			return splice{}, e.refuse(n, "%s is no mapping", e.name(i))
		}
		if n.Anchor != "" {
			return splice{}, e.refuse(n, "%s has the anchor &%s, so that a change of it would reach every alias", e.name(i), n.Anchor)
		}
		k, v, times := child(n, key)
		switch {
		case times > 1:
			return splice{}, e.refuse(k, "%s is there %d times", key, times)
		case times == 0 && merges(n):
			return splice{}, e.refuse(n, "%s is merged from an alias, which may hold %s", e.name(i), key)
		case times == 0:
			return e.add(n, i)
		case isNull(v) && v.Anchor == "":
			return e.fill(k, v, i)
		}
		n = v
	}
	return e.replace(n)
}

// name of the node that the path's first i keys lead to.
func (e *editor) name(i int) string {
	if i == 0 {
		return "the document"
	}
	return strings.Join(e.setting.path[:i], ".")
}

// replace writes over a scalar.
func (e *editor) replace(n *yaml.Node) (splice, error) {
	if n.Kind != yaml.ScalarNode {
		return splice{}, e.refuse(n, "%s is no single value", e.name(len(e.setting.path)))
	}
	start, end, ok := e.text.scalar(n)
	if !ok {
		return splice{}, e.refuse(n, "%s has an anchor, an alias, a tag or a block form", e.name(len(e.setting.path)))
	}
	return splice{start: start, end: end, text: e.setting.quoted(n.Style)}, nil
}

// fill gives a key without a value (or with null) the rest of the path.
func (e *editor) fill(k, v *yaml.Node, i int) (splice, error) {
	if start, end, ok := e.text.scalar(v); ok && end > start {
		return splice{start: start, end: end, text: e.flow(i+1, k.Style)}, nil
	}
	_, end, ok := e.text.scalar(k)
	if !ok {
		return splice{}, e.refuse(k, "the key %s has an unusual form", e.setting.path[i])
	}
	at := end + len(e.text.blanks(end))
	if !strings.HasPrefix(e.text.from(at), ":") {
		return splice{}, e.refuse(k, "the key %s has an unusual form", e.setting.path[i])
	}
	return splice{start: at + 1, end: at + 1, text: " " + e.flow(i+1, k.Style)}, nil
}

// add writes the path from its key i on as a new entry of a mapping.
func (e *editor) add(mapping *yaml.Node, i int) (splice, error) {
	if mapping.Style&yaml.FlowStyle != 0 {
		return e.addFlow(mapping, i)
	}
	if len(mapping.Content) == 0 {
		return splice{}, e.refuse(mapping, "%s has an unusual form", e.name(i))
	}
	first := mapping.Content[0]
	at, ok := e.text.offset(first)
	indent, alone := e.text.before(at)
	if !ok || !alone {
		return splice{}, e.refuse(first, "%s does not begin on a line of its own", e.name(i))
	}
	entry := e.block(i, indent)
	if end, ok := e.lastLine(mapping); ok && i > 0 {
		nl := e.text.newline()
		return splice{start: end, end: end, text: nl + indent + entry}, nil
	}
	return splice{start: at, end: at, text: entry + e.text.newline() + indent}, nil
}

// lastLine is the end of the line of the mapping's first run of entries that
// have one line each: names and the like, behind which a new entry reads well.
func (e *editor) lastLine(mapping *yaml.Node) (int, bool) {
	end, found := 0, false
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		k, v := mapping.Content[i], mapping.Content[i+1]
		_, to, ok := e.text.scalar(v)
		if !ok || k.Line != v.Line {
			break
		}
		eol, clean := e.text.lineEnd(to)
		if !clean {
			break
		}
		end, found = eol, true
	}
	return end, found
}

func (e *editor) addFlow(mapping *yaml.Node, i int) (splice, error) {
	at, ok := e.text.offset(mapping)
	if !ok || !strings.HasPrefix(e.text.from(at), "{") {
		return splice{}, e.refuse(mapping, "%s has a tag or an unusual form", e.name(i))
	}
	if len(mapping.Content) == 0 {
		inner := strings.TrimSuffix(strings.TrimPrefix(e.flow(i, e.keyStyle()), "{"), "}")
		return splice{start: at + 1, end: at + 1, text: inner}, nil
	}
	style := mapping.Content[0].Style
	entry := strings.TrimSuffix(strings.TrimPrefix(e.flow(i, style), "{"), "}")
	last := mapping.Content[len(mapping.Content)-1]
	if _, end, ok := e.text.scalar(last); ok && end > 0 && last.Value != "" {
		return splice{start: end, end: end, text: ", " + entry}, nil
	}
	return splice{start: at + 1, end: at + 1, text: entry + ", "}, nil
}

// keyStyle is the style of the document's keys: quoted in a JSON file.
func (e *editor) keyStyle() yaml.Style {
	if len(e.root.Content) > 0 {
		return e.root.Content[0].Style
	}
	return 0
}

// block writes the path from key i on in block style; the first line has no indent.
func (e *editor) block(i int, indent string) string {
	var b strings.Builder
	step := e.text.step(e.root)
	for ; i < len(e.setting.path)-1; i++ {
		indent += step
		b.WriteString(e.setting.path[i] + ":" + e.text.newline() + indent)
	}
	b.WriteString(e.setting.path[i] + ": " + e.setting.quoted(0))
	return b.String()
}

// flow writes the path from key i on in flow style; behind the last key it is
// the value alone. Keys are quoted where the keys around them are.
func (e *editor) flow(i int, style yaml.Style) string {
	if i == len(e.setting.path) {
		return e.setting.quoted(0)
	}
	key := e.setting.path[i]
	if style&yaml.DoubleQuotedStyle != 0 {
		key = `"` + key + `"`
	}
	return "{" + key + ": " + e.flow(i+1, style) + "}"
}

// quoted is the value as YAML, with the quotes of what was there before.
func (s setting) quoted(style yaml.Style) string {
	switch {
	case style&yaml.SingleQuotedStyle != 0 && s.text:
		return "'" + s.value + "'"
	case style&yaml.DoubleQuotedStyle != 0 && s.stays(), s.text:
		return `"` + s.value + `"`
	}
	return s.value
}

// stays says that quotes do not change what the value is: a word, no boolean.
func (s setting) stays() bool { return s.value != "true" && s.value != "false" }

// merges says whether a mapping takes entries over with <<.
func merges(mapping *yaml.Node) bool {
	_, _, times := child(mapping, "<<")
	return times > 0
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
