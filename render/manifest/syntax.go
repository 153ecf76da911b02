package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var unknownAnchor = regexp.MustCompile(`unknown anchor '([^']*)' referenced`)

// syntax reports text that could not be parsed, at the line that is wrong and
// in words that say what to do. The library's own line is the last resort.
func (p *parser) syntax(c chunk, err error) {
	text := string(c.text)
	lines := strings.Split(text, "\n")
	report := func(line, column int, format string, args ...any) {
		p.add(c.line+line-1, column, "", format, args...)
	}
	said := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := unknownAnchor.FindStringSubmatch(said); m != nil {
		line, column := findText(lines, "*"+m[1])
		report(line, column, "alias *%s has no anchor &%s before it in this document", m[1], m[1])
		return
	}
	if strings.Contains(said, "exceeded max depth") {
		report(1, 1, "nested more than %d levels deep", MaxDepth)
		return
	}
	if strings.Contains(said, "found character that cannot start any token") || strings.Contains(said, "tab") {
		if line, column := tab(lines); line > 0 {
			report(line, column, "a tab indents this line; YAML takes blanks only")
			return
		}
	}
	for i, l := range lines {
		if hasTemplate(l) {
			report(i+1, strings.Index(l, "{{")+1, `this looks like a Helm template ({{…}}), which is not filled in here; quote it if it is meant as it stands: "{{…}}"`)
			return
		}
	}
	if line, message := badIndent(text); line > 0 {
		report(line, len(lines[line-1])-len(strings.TrimLeft(lines[line-1], " "))+1, "%s", message)
		return
	}
	if line := unclosed(text); line > 0 {
		report(line, 1, "a quote or bracket that is opened in this line is never closed")
		return
	}
	line, message := translate(said, lines)
	report(line, 1, "%s", message)
}

// translate puts a message of the library into words for the file's author.
func translate(said string, lines []string) (line int, message string) {
	line, message = 1, said
	if m := errorLine.FindStringSubmatch("yaml: " + said); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = strings.TrimPrefix(said, "line "+m[1]+": ")
	}
	line = min(max(line, 1), max(len(lines), 1))
	switch {
	case strings.Contains(message, "mapping values are not allowed"):
		message = `": " begins a map where none can be: put the text in quotes, or check the indentation`
	case strings.Contains(message, "could not find expected ':'"):
		message = `a key without ":" after it, or text that needs quotes`
	case strings.Contains(message, "found character that cannot start any token"):
		message = "a character that cannot begin a text: put it in quotes"
	case strings.Contains(message, "did not find expected"):
		line = min(line+1, len(lines)) // the parser, unlike the scanner, counts lines from 0
		message = fmt.Sprintf("what begins in this line cannot be read to its end: %s", message)
	}
	return line, message
}

// tab finds the first line that is indented by a tab.
func tab(lines []string) (line, column int) {
	for i, l := range lines {
		white := len(l) - len(strings.TrimLeft(l, " \t"))
		if at := strings.IndexByte(l[:white], '\t'); at >= 0 && white < len(strings.TrimRight(l, "\r")) {
			return i + 1, at + 1
		}
	}
	return 0, 0
}

// findText is where a text first stands, or 1, 1.
func findText(lines []string, text string) (line, column int) {
	for i, l := range lines {
		if at := strings.Index(l, text); at >= 0 {
			return i + 1, at + 1
		}
	}
	return 1, 1
}
