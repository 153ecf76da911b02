package edit

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// verify reads the edited file again and compares every node with what was
// there before, but for the one that was set.
func verify(before []*yaml.Node, edited []byte, index int, s setting) error {
	after, err := parse(edited)
	if err != nil {
		return fmt.Errorf("the edited file could not be read again: %w", err)
	}
	if len(after) != len(before) {
		return errors.New("the edit would change the number of documents")
	}
	for i := range before {
		path := s.path
		if i != index {
			path = nil
		}
		if err := same(before[i], after[i], path); err != nil {
			return err
		}
	}
	n := after[index]
	for _, key := range s.path {
		_, n, _ = child(n, key)
	}
	tag := "!!bool"
	if s.text || s.stays() {
		tag = "!!str"
	}
	if n == nil || n.Kind != yaml.ScalarNode || n.Value != s.value || n.Tag != tag {
		return errors.New("the edit would not take effect")
	}
	return nil
}

var errOther = errors.New("the edit would change something else")

// same compares two nodes, but for the field at path in both; with an empty
// path everything has to be the same.
func same(a, b *yaml.Node, path []string) error {
	if len(path) > 0 && isNull(a) && b.Kind == yaml.MappingNode {
		a = &yaml.Node{Kind: yaml.MappingNode, Tag: b.Tag, Style: b.Style}
	}
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || a.Anchor != b.Anchor || a.Style != b.Style {
		return errOther
	}
	if len(path) > 0 {
		return sameBut(a, b, path)
	}
	if len(a.Content) != len(b.Content) {
		return errOther
	}
	for i := range a.Content {
		if err := same(a.Content[i], b.Content[i], nil); err != nil {
			return err
		}
	}
	return nil
}

// sameBut compares two mappings, entry by entry and in order, but for path.
func sameBut(a, b *yaml.Node, path []string) error {
	_, va, _ := child(a, path[0])
	_, vb, times := child(b, path[0])
	if vb == nil || times != 1 {
		return errOther
	}
	if len(path) > 1 {
		if va == nil {
			va = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
		}
		if err := same(va, vb, path[1:]); err != nil {
			return err
		}
	}
	rest := func(n *yaml.Node) *yaml.Node {
		out := &yaml.Node{Kind: n.Kind, Style: n.Style, Tag: n.Tag, Content: slices.Clone(n.Content)}
		for i := 0; i+1 < len(out.Content); i += 2 {
			if out.Content[i].Kind == yaml.ScalarNode && out.Content[i].Value == path[0] {
				out.Content = slices.Delete(out.Content, i, i+2)
				break
			}
		}
		return out
	}
	return same(rest(a), rest(b), nil)
}
