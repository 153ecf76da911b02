package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Limits of a file. They are far above what a job file needs, and far below
// what would cost a reader memory or time.
const (
	MaxBytes     = 1 << 20
	MaxDocuments = 1000
	MaxDepth     = 100
	// MaxKeys bounds one map: the YAML library compares each key with each other.
	MaxKeys = 4000
	// MaxAliased bounds the nodes, and MaxBytes the bytes, that aliases stand
	// for once they are written out.
	MaxAliased  = 10000
	maxProblems = 100
)

// Document is one YAML document of a file with its positions.
type Document struct {
	File string
	Line int        // of its first content
	Root *yaml.Node // the content itself, not a yaml.DocumentNode
}

// Parse checks a YAML file and splits it into documents; empty ones are
// dropped. Every problem is found at once, as far as the text can be read.
// Nothing reaches kustomize that has not passed it: a file that it takes is
// plain UTF-8 of bounded size and depth, without duplicate or non-text keys,
// and its aliases stand for a bounded amount of text. JSON files are YAML.
//
// With errors the documents that could be read at all are returned too: for
// the names of what is broken, and for nothing else.
func Parse(file string, data []byte) ([]*Document, []*repo.Error) {
	p := &parser{file: file}
	if !p.scan(data) {
		return nil, p.problems
	}
	chunks := split(data)
	if len(chunks) > MaxDocuments {
		p.add(chunks[MaxDocuments].line, 1, "", "more than %d documents in one file", MaxDocuments)
		return nil, p.problems
	}
	var docs []*Document
	for _, c := range chunks {
		if d := p.document(c); d != nil {
			docs = append(docs, d)
		}
	}
	return docs, repo.SortErrors(p.problems)
}

type parser struct {
	file     string
	problems []*repo.Error
}

func (p *parser) add(line, column int, field, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		return
	}
	p.problems = append(p.problems, &repo.Error{File: p.file, Line: line, Column: column, Field: field, Message: fmt.Sprintf(format, args...)})
}

// chunk is the text of one document, with the line of the file it begins at.
type chunk struct {
	text []byte
	line int
}

// split cuts a file at its document markers. A line that begins with "---" is
// one wherever it stands, by YAML's own rule, so this needs no parser.
func split(data []byte) []chunk {
	var chunks []chunk
	start, startLine, line := 0, 1, 1
	for pos := 0; pos < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		if isMarker(data[pos:end]) && pos > start {
			chunks = append(chunks, chunk{data[start:pos], startLine})
			start, startLine = pos, line
		}
		pos = end
	}
	return append(chunks, chunk{data[start:], startLine})
}

func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// document parses one chunk; nil when it is empty or cannot be read.
func (p *parser) document(c chunk) *Document {
	text := p.directives(c)
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		p.syntax(c, err)
		return nil
	}
	root := doc.Content[0]
	shift(&doc, c.line-1)
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		if root.Kind != yaml.MappingNode { // which is seldom the author's mistake alone
			p.add(root.Line, root.Column, "", "expected an object with apiVersion and kind, found %s", article(root))
		}
		line := c.line + afterEnd(string(text), root.Line-c.line, err)
		p.add(line, 1, "", "text after the end of the document (which began in line %d)", root.Line)
	}
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" && root.Style&yaml.TaggedStyle == 0 {
		return nil
	}
	d := &Document{File: p.file, Line: root.Line, Root: root}
	if !newChecker(p, c).document(d) {
		return nil
	}
	return d
}

// directives blanks %YAML lines, which say nothing that matters here, and
// refuses the others.
func (p *parser) directives(c chunk) []byte {
	if len(c.text) == 0 || c.text[0] != '%' {
		return c.text
	}
	lines := strings.SplitAfter(string(c.text), "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "%") {
			break
		}
		if !strings.HasPrefix(l, "%YAML ") {
			p.add(c.line+i, 1, "", "directive %q is not understood", strings.TrimSpace(l))
		}
		lines[i] = "#" + l[1:]
	}
	return []byte(strings.Join(lines, ""))
}

// shift moves the positions of a chunk's nodes to those of the file. Depth is
// bounded by the YAML library: it takes 10,000 levels at most.
func shift(n *yaml.Node, by int) {
	if by == 0 {
		return
	}
	n.Line += by
	for _, c := range n.Content {
		shift(c, by)
	}
}

var errorLine = regexp.MustCompile(`^yaml: line (\d+): `)

// afterEnd finds the line, from the chunk's first, at which text goes on after
// a document has ended.
func afterEnd(text string, from int, err error) int {
	if err != nil {
		if m := errorLine.FindStringSubmatch(err.Error()); m != nil {
			n, _ := strconv.Atoi(m[1])
			if !strings.Contains(err.Error(), "did not find expected") {
				n-- // the scanner counts lines from 1, the parser from 0
			}
			return max(n, from)
		}
	}
	lines := strings.Split(text, "\n")
	for i := from + 1; i < len(lines); i++ {
		l := strings.TrimSpace(lines[i])
		if l != "" && l != "..." && !strings.HasPrefix(l, "#") {
			return i
		}
	}
	return from
}
