package manifest

import (
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checker goes over a parsed document once, before anything else does.
type checker struct {
	p     *parser
	text  []string // the document's lines, for what only they tell
	first int      // line of the file that text begins at
	sizes map[*yaml.Node]*size
	// aliased is what the document's aliases stand for, all together.
	nodes, bytes int
	over         bool
}

// size of a node with its aliases written out. A node whose size is being
// taken (open) and is met again contains itself.
type size struct {
	nodes, bytes, depth int
	open                bool
}

func newChecker(p *parser, c chunk) *checker {
	return &checker{p: p, text: strings.Split(string(c.text), "\n"), first: c.line, sizes: map[*yaml.Node]*size{}}
}

// document says whether the document is safe to walk; it may have problems nevertheless.
func (c *checker) document(d *Document) (safe bool) {
	if c.deep(d.Root, 1) || !c.aliases(d.Root) {
		return false // nothing else is certain to end
	}
	c.node(d.Root, "")
	if sops := child(d.Root, "sops"); sops != nil && (child(sops, "mac") != nil || child(sops, "lastmodified") != nil) {
		c.p.add(sops.Line, sops.Column, "sops", "the file is encrypted with SOPS; it is not decrypted here, and secrets do not belong into a job file")
	}
	if items := child(d.Root, "items"); d.Kind() == "List" && (items == nil || items.Kind != yaml.SequenceNode) {
		line, column := d.Position("items")
		c.p.add(line, column, "items", "a List needs a list of items")
	}
	return true
}

// deep reports nesting beyond MaxDepth, as it is written.
func (c *checker) deep(n *yaml.Node, depth int) bool {
	if depth > MaxDepth {
		c.p.add(n.Line, n.Column, "", "nested more than %d levels deep", MaxDepth)
		return true
	}
	for _, k := range n.Content {
		if c.deep(k, depth+1) {
			return true
		}
	}
	return false
}

// aliases reports aliases that contain themselves or stand for too much.
func (c *checker) aliases(root *yaml.Node) bool {
	before := len(c.p.problems)
	s := c.size(root)
	if len(c.p.problems) > before {
		return false
	}
	if s.depth > MaxDepth {
		c.p.add(root.Line, root.Column, "", "nested more than %d levels deep once aliases are written out", MaxDepth)
	}
	return len(c.p.problems) == before
}

const sizeCap = 1 << 40 // sizes stop growing there, long before they overflow

func (c *checker) size(n *yaml.Node) *size {
	if s := c.sizes[n]; s != nil {
		return s
	}
	s := &size{nodes: 1, bytes: len(n.Value), depth: 1, open: true}
	c.sizes[n] = s
	for _, k := range n.Content {
		s.take(c.size(k), 1)
	}
	if n.Kind == yaml.AliasNode {
		t := c.size(n.Alias)
		if t.open {
			c.p.add(n.Line, n.Column, "", "alias *%s refers to itself", n.Value)
			s.open = false
			return s
		}
		s.take(t, 0)
		c.nodes, c.bytes = min(c.nodes+t.nodes, sizeCap), min(c.bytes+t.bytes, sizeCap)
		if !c.over && (c.nodes > MaxAliased || c.bytes > MaxBytes) {
			c.over = true
			c.p.add(n.Line, n.Column, "", "aliases stand for too much: more than %d values or %d bytes once written out", MaxAliased, MaxBytes)
		}
	}
	s.open = false
	return s
}

func (s *size) take(t *size, level int) {
	s.nodes, s.bytes = min(s.nodes+t.nodes, sizeCap), min(s.bytes+t.bytes, sizeCap)
	s.depth = max(s.depth, t.depth+level)
}

// node checks keys, tags and merges below a node. Aliases are not followed:
// what they stand for is checked where it is written.
func (c *checker) node(n *yaml.Node, path string) {
	if n.Style&yaml.TaggedStyle != 0 && !plainTag(n) {
		c.p.add(n.Line, n.Column, path, "tag %s is not understood", short(n.Tag))
	}
	switch n.Kind {
	case yaml.ScalarNode:
		c.number(n, path)
	case yaml.SequenceNode:
		for i, k := range n.Content {
			c.node(k, Item(path, i))
		}
	case yaml.MappingNode:
		c.mapping(n, path)
	}
}

// number refuses what YAML takes for a number and JSON does not, and values
// that are not what their tag says.
func (c *checker) number(n *yaml.Node, path string) {
	tagged := n.Style&yaml.TaggedStyle != 0
	if !tagged && n.ShortTag() != "!!float" {
		return
	}
	var v any
	if err := n.Decode(&v); err != nil {
		c.p.add(n.Line, n.Column, path, "%q is not what its tag %s says", short(n.Value), short(n.ShortTag()))
	}
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		c.p.add(n.Line, n.Column, path, "unquoted %s is read as a number that no field can hold: write %q in quotes", n.Value, n.Value)
	}
}

func plainTag(n *yaml.Node) bool {
	switch n.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return true
	}
	return false
}

func (c *checker) mapping(n *yaml.Node, path string) {
	if len(n.Content)/2 > MaxKeys {
		c.p.add(n.Line, n.Column, path, "a map of %d keys is too large; %d are the most", len(n.Content)/2, MaxKeys)
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			c.merge(value, path)
			continue
		}
		if !c.key(key, path) {
			continue
		}
		at := Join(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			c.p.add(key.Line, key.Column, at, "written twice, first in line %d", line)
		}
		seen[key.Value] = key.Line
		c.node(value, at)
	}
}

// key says whether a key is plain text.
func (c *checker) key(key *yaml.Node, path string) bool {
	switch {
	case key.Kind == yaml.MappingNode && c.template(key.Line):
		c.p.add(key.Line, key.Column, path, `this looks like a Helm template ({{…}}), which is not filled in here; quote it if it is meant as it stands: "{{…}}"`)
	case key.Kind != yaml.ScalarNode:
		c.p.add(key.Line, key.Column, path, "a key must be text, not %s", article(key))
	case key.Style&yaml.TaggedStyle != 0 && !plainTag(key):
		c.p.add(key.Line, key.Column, path, "tag %s is not understood", short(key.Tag))
	case key.ShortTag() != "!!str":
		c.p.add(key.Line, key.Column, path, "a key must be text, but unquoted %s is read as %s: write %q in quotes", key.Value, scalar(key), key.Value)
	case isPlain(key) && isOldBool(key.Value):
		c.p.add(key.Line, key.Column, path, "a key must be text, but unquoted %s is read as the boolean %v by many YAML readers: write %q in quotes", key.Value, oldBool(key.Value), key.Value)
	case len(key.Value) > 1024:
		c.p.add(key.Line, key.Column, path, "a key of %d bytes is too long", len(key.Value))
	default:
		return true
	}
	return false
}

// merge takes "<<" with a map or a list of maps, which is all that it is for.
func (c *checker) merge(value *yaml.Node, path string) {
	list := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		list = value.Content
	}
	for _, v := range list {
		if resolve(v).Kind != yaml.MappingNode {
			c.p.add(v.Line, v.Column, path, `"<<" merges maps, not %s`, article(resolve(v)))
			continue
		}
		if v.Kind != yaml.AliasNode {
			c.node(v, path)
		}
	}
}

// template says whether a line has an unquoted {{.
func (c *checker) template(line int) bool {
	i := line - c.first
	return i >= 0 && i < len(c.text) && hasTemplate(c.text[i])
}

// hasTemplate says whether {{ stands in a line outside of quotes.
func hasTemplate(line string) bool {
	var quote byte
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case quote == '"' && b == '\\':
			i++
		case quote != 0:
			if b == quote {
				quote = 0
			}
		case b == '"' || b == '\'':
			quote = b
		case strings.HasPrefix(line[i:], "{{"):
			return true
		}
	}
	return false
}
