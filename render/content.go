package render

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// content is what a checked YAML node says, as values of JSON: kustomize is
// given this and not the text, so that it cannot read anything else in it.
func content(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.DocumentNode:
		return content(n.Content[0])
	case yaml.AliasNode:
		return content(n.Alias)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := content(item)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		return mapping(n)
	}
	return scalar(n)
}

// mapping reads a map: keys that a merge brings give way to its own.
func mapping(n *yaml.Node) (map[string]any, error) {
	m := make(map[string]any, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		v, err := content(value)
		if err != nil {
			return nil, err
		}
		m[key.Value] = v
	}
	for len(merges) > 0 {
		from := merges[0]
		merges = merges[1:]
		if from.Kind == yaml.SequenceNode {
			merges = append(append([]*yaml.Node{}, from.Content...), merges...)
			continue
		}
		v, err := content(from)
		if err != nil {
			return nil, err
		}
		source, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("line %d: << merges maps only", from.Line)
		}
		for k, v := range source {
			if _, own := m[k]; !own {
				m[k] = v
			}
		}
	}
	return m, nil
}

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp", "!!binary":
		return n.Value, nil
	case "!!null":
		return nil, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	if _, err := json.Marshal(v); err != nil {
		return nil, fmt.Errorf("line %d: %s is not a number that JSON knows", n.Line, n.Value)
	}
	return v, nil
}

// encode writes a value as JSON, with sorted keys and nothing escaped for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
