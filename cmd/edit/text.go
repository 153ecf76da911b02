package edit

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// text finds byte offsets for the lines and columns of a YAML parser.
type text struct {
	bytes []byte
	lines []int // offset of each line
}

func newText(file []byte) text {
	t := text{bytes: file, lines: []int{0}}
	if bytes.HasPrefix(file, []byte("\uFEFF")) {
		t.lines[0] = len("\uFEFF") // the parser does not count it
	}
	for i, c := range file {
		if c == '\n' {
			t.lines = append(t.lines, i+1)
		}
	}
	return t
}

func (t text) from(at int) string { return string(t.bytes[min(at, len(t.bytes)):]) }

// offset of a node. The parser counts columns in characters.
func (t text) offset(n *yaml.Node) (int, bool) {
	if n.Line < 1 || n.Line > len(t.lines) {
		return 0, false
	}
	at := t.lines[n.Line-1]
	for c := 1; c < n.Column; c++ {
		if at >= len(t.bytes) || t.bytes[at] == '\n' {
			return 0, false
		}
		_, size := utf8.DecodeRune(t.bytes[at:])
		at += size
	}
	return at, true
}

// scalar finds the bytes of a plain or quoted scalar on one line. It does not
// find anchored, tagged, block or folded ones.
func (t text) scalar(n *yaml.Node) (start, end int, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Anchor != "" || n.Style&(yaml.TaggedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return 0, 0, false
	}
	start, ok = t.offset(n)
	if !ok {
		return 0, 0, false
	}
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		end, ok = t.quoteEnd(start, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		end, ok = t.quoteEnd(start, '\'')
	default:
		end, ok = start+len(n.Value), bytes.HasPrefix(t.bytes[start:], []byte(n.Value))
	}
	return start, end, ok
}

// quoteEnd is behind the quote that closes the one at start, on the same line.
func (t text) quoteEnd(start int, quote byte) (int, bool) {
	if start >= len(t.bytes) || t.bytes[start] != quote {
		return 0, false
	}
	for i := start + 1; i < len(t.bytes); i++ {
		switch c := t.bytes[i]; {
		case c == '\n':
			return 0, false
		case c == '\\' && quote == '"':
			i++
		case c == quote && quote == '\'' && i+1 < len(t.bytes) && t.bytes[i+1] == quote:
			i++
		case c == quote:
			return i + 1, true
		}
	}
	return 0, false
}

// blanks are the spaces and tabs at an offset.
func (t text) blanks(at int) string {
	rest := t.from(at)
	return rest[:len(rest)-len(strings.TrimLeft(rest, " \t"))]
}

// before is what stands on the line before an offset, and whether that is
// nothing but spaces.
func (t text) before(at int) (string, bool) {
	start := bytes.LastIndexByte(t.bytes[:at], '\n') + 1
	s := string(t.bytes[start:at])
	return s, strings.Trim(s, " ") == ""
}

// lineEnd is where the line ends, before its line break, and whether nothing
// but blanks and a comment lie between.
func (t text) lineEnd(at int) (int, bool) {
	line, _, _ := strings.Cut(t.from(at), "\n")
	line = strings.TrimSuffix(line, "\r")
	rest := strings.TrimLeft(line, " \t")
	return at + len(line), rest == "" || rest[0] == '#' && len(rest) < len(line)
}

// newline is the file's line break.
func (t text) newline() string {
	if i := bytes.IndexByte(t.bytes, '\n'); i > 0 && t.bytes[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// step is how far the document indents a mapping in a mapping.
func (t text) step(root *yaml.Node) string {
	for i := 1; i < len(root.Content); i += 2 {
		v := root.Content[i]
		if v.Kind == yaml.MappingNode && v.Style&yaml.FlowStyle == 0 && v.Column > root.Column {
			return strings.Repeat(" ", min(v.Column-root.Column, 8))
		}
	}
	return "  "
}
