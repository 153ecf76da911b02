package manifest

import (
	"fmt"
	"regexp"
	"strings"
)

// badIndent finds the first line of a block that stands at no level of
// indentation that is open there. YAML libraries report the beginning of the
// enclosing block, or the line before, which sends people to the wrong place.
// It is asked only about text that could not be parsed, so it may guess.
func badIndent(text string) (line int, message string) {
	f := indentFinder{block: -1}
	for i, l := range strings.Split(text, "\n") {
		if message := f.line(i+1, strings.TrimRight(l, " \t\r")); message != "" {
			return i + 1, message
		}
	}
	return 0, ""
}

// level is a block that is open: a map whose keys, or a list whose dashes,
// stand in one column.
type level struct {
	column int
	line   int
	key    string // first key of a map, "" for a list
}

// unclosed is the line of a bracket or quote that is still open at the end, or 0.
func unclosed(text string) int {
	f := indentFinder{block: -1}
	for i, l := range strings.Split(text, "\n") {
		f.line(i+1, strings.TrimRight(l, " \t\r"))
	}
	if !f.inside {
		return 0
	}
	return f.since
}

type indentFinder struct {
	levels []level
	block  int  // lines deeper than this belong to a block scalar; -1 is none
	opened bool // the line before ended with a key or dash that waits for its value
	inside bool // within brackets or quotes that span lines
	since  int  // the line that opened them
	flow   flow
}

var (
	keyOf       = regexp.MustCompile(`^("(?:[^"\\]|\\.)*"|'[^']*'|[^\s\[\]{}&*!|>'"%@#,-][^#]*?|-[^\s#][^#]*?)\s*:(?:\s+(.*))?$`)
	blockScalar = regexp.MustCompile(`^[|>][-+0-9]*(\s+#.*)?$`)
	noValue     = regexp.MustCompile(`^([&!]\S+\s*)*(#.*)?$`)
)

func (f *indentFinder) line(number int, text string) string {
	content := strings.TrimLeft(text, " ")
	column := len(text) - len(content)
	switch {
	case f.inside:
		f.inside = f.flow.take(content)
		return ""
	case content == "" || f.block >= 0 && column > f.block:
		return ""
	case content[0] == '#' || content[0] == '\t':
		return ""
	case column == 0 && (content == "---" || strings.HasPrefix(content, "--- ") || content[0] == '%' || content == "..."):
		*f = indentFinder{block: -1}
		return ""
	}
	f.block = -1
	dash, key := content == "-" || strings.HasPrefix(content, "- "), keyOf.FindStringSubmatch(content)
	if len(f.levels) > 0 && !f.opened && column > f.top().column && !dash && key == nil {
		return "" // a plain text that goes on
	}
	if message := f.align(number, column, content, dash, key); message != "" {
		return message
	}
	f.enter(number, column, content)
	return ""
}

func (f *indentFinder) top() level { return f.levels[len(f.levels)-1] }

// align closes the levels that a line leaves, and says when it fits none.
func (f *indentFinder) align(number, column int, content string, dash bool, key []string) string {
	var closed *level
	for len(f.levels) > 0 && f.top().column > column {
		l := f.top()
		if dash == (l.key == "") {
			closed = &l
		}
		f.levels = f.levels[:len(f.levels)-1]
	}
	if len(f.levels) > 0 && f.top().column == column {
		return ""
	}
	if closed == nil && (f.opened || len(f.levels) == 0) {
		return "" // a new level
	}
	near := closed
	for i := len(f.levels) - 1; i >= 0; i-- {
		if l := f.levels[i]; dash == (l.key == "") {
			if near == nil || column-l.column <= near.column-column {
				near = &l
			}
			break
		}
	}
	what := short(content)
	if key != nil {
		what = fmt.Sprintf("%q", short(key[1]))
	}
	switch {
	case near == nil:
		return fmt.Sprintf("%s is indented by %d, which fits nothing above it", what, column)
	case near.key == "":
		return fmt.Sprintf("%s is indented by %d, but the list's other items (line %d) by %d", what, column, near.line, near.column)
	}
	return fmt.Sprintf("%s is indented by %d, but its siblings (%q, line %d) by %d", what, column, near.key, near.line, near.column)
}

// enter opens the levels that a line begins, and notes how it ends.
func (f *indentFinder) enter(number, column int, content string) {
	for content == "-" || strings.HasPrefix(content, "- ") {
		f.push(level{column: column, line: number})
		rest := strings.TrimLeft(content[1:], " ")
		column, content = column+len(content)-len(rest), rest
	}
	value, parent := content, column-1
	if len(f.levels) > 0 {
		parent = f.top().column
	}
	if key := keyOf.FindStringSubmatch(content); key != nil {
		f.push(level{column: column, line: number, key: strings.Trim(key[1], `"'`)})
		value, parent = key[2], column
	}
	f.opened = noValue.MatchString(value)
	if blockScalar.MatchString(value) {
		f.block = parent
		return
	}
	f.flow = flow{}
	f.inside, f.since = f.flow.take(value), number
}

// push opens a level unless the line goes on with one that is open.
func (f *indentFinder) push(l level) {
	if len(f.levels) > 0 && f.top().column == l.column && (f.top().key == "") == (l.key == "") {
		return
	}
	f.levels = append(f.levels, l)
}

// flow follows brackets and quotes over lines.
type flow struct {
	depth int
	quote byte
}

// take reads a line, and says whether something is still open at its end.
func (f *flow) take(s string) bool {
	for i := 0; i < len(s); i++ {
		b := s[i]
		switch {
		case f.quote == '"' && b == '\\':
			i++
		case f.quote != 0:
			if b == f.quote {
				f.quote = 0
			}
		case (b == '"' || b == '\'') && (i == 0 || f.depth > 0 && strings.IndexByte(" [{,:", s[i-1]) >= 0):
			f.quote = b
		case (b == '[' || b == '{') && (i == 0 || f.depth > 0):
			f.depth++
		case (b == ']' || b == '}') && f.depth > 0:
			f.depth--
		case b == '#' && i > 0 && s[i-1] == ' ':
			return f.depth > 0
		}
	}
	return f.depth > 0 || f.quote != 0
}
