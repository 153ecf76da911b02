package manifest

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// resolve follows an alias. Documents of Parse have none that refers to itself.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// child is the value of a key, also through a merge; nil when there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	_, value := entry(n, key)
	return value
}

// entry is the key and the value of an entry of a map.
func entry(n *yaml.Node, key string) (k, v *yaml.Node) {
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	var merged *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode {
			if k.Value == key && k.ShortTag() != "!!merge" {
				return k, n.Content[i+1]
			}
			if k.ShortTag() == "!!merge" {
				merged = n.Content[i+1]
			}
		}
	}
	if merged == nil {
		return nil, nil
	}
	sources := []*yaml.Node{merged}
	if merged.Kind == yaml.SequenceNode {
		sources = merged.Content
	}
	for _, s := range sources {
		if k, v := entry(s, key); v != nil {
			return k, v
		}
	}
	return nil, nil
}

func isPlain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
}

// isOldBool says whether YAML 1.1 reads a plain word as a boolean that YAML
// 1.2 reads as text. Readers disagree on them, so they are never guessed at.
func isOldBool(word string) bool {
	switch word {
	case "y", "Y", "n", "N", "yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF":
		return true
	}
	return false
}

func oldBool(word string) bool {
	switch strings.ToLower(word) {
	case "y", "yes", "on", "true":
		return true
	}
	return false
}

// article names what a node is: "a list".
func article(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return scalar(n)
}

// scalar names how a scalar is read: "the number 8".
func scalar(n *yaml.Node) string {
	var v any
	if n.Decode(&v) != nil {
		return fmt.Sprintf("the text %q", short(n.Value))
	}
	return describe(v)
}

// describe names a value in the words of the person who wrote it.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	case string:
		return fmt.Sprintf("the text %q", short(v))
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	case time.Time:
		return "a date"
	}
	return fmt.Sprintf("the number %v", v)
}

// short cuts what a message quotes.
func short(s string) string {
	r := []rune(s)
	if len(r) <= 60 {
		return s
	}
	return string(r[:60]) + "…"
}
