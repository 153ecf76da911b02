package edit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Document is what a file's document says of itself.
type Document struct {
	Index      int // among the file's documents, from 0
	Line       int // where it begins, from 1
	APIVersion string
	Kind       string
	repo.Key   // Namespace is empty when the document names none
}

// Documents lists the documents of a file that are objects with a kind and a name.
func Documents(file []byte) ([]Document, error) {
	docs, err := parse(file)
	if err != nil {
		return nil, err
	}
	var out []Document
	for i, n := range docs {
		if d := document(n); d.Kind != "" && d.Name != "" {
			d.Index = i
			out = append(out, d)
		}
	}
	return out, nil
}

// jobGroups are the API groups whose objects are jobs.
var jobGroups = []string{
	"trainyard.dev", "launcher.microsoft.com", "frameworkcontroller.microsoft.com",
	"tensorflow.org", "mlkube.io", "kubeflow.org", "batch",
}

// IsJob tells jobs from the objects that lie beside them.
func (d Document) IsJob() bool {
	for _, g := range jobGroups {
		if strings.HasPrefix(d.APIVersion, g+"/") {
			return true
		}
	}
	return false
}

func (d Document) isTrainingJob() bool {
	return strings.HasPrefix(d.APIVersion, "trainyard.dev/") && d.Kind == "TrainingJob"
}

func (d Document) isFramework() bool {
	return d.Kind == "Framework" && strings.Contains(d.APIVersion, ".microsoft.com/")
}

func document(root *yaml.Node) Document {
	d := Document{APIVersion: scalarAt(root, []string{"apiVersion"}), Kind: scalarAt(root, []string{"kind"})}
	d.Namespace = scalarAt(root, []string{"metadata", "namespace"})
	d.Name = scalarAt(root, []string{"metadata", "name"})
	d.Line = root.Line
	return d
}

// parse reads the root node of every document. Aliases stay aliases.
func parse(file []byte) ([]*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(file))
	var roots []*yaml.Node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read as YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
			roots = append(roots, doc.Content[0])
			continue
		}
		roots = append(roots, &doc)
	}
}

// child returns the key and the value of a mapping's entry, and how often the
// key is there.
func child(mapping *yaml.Node, key string) (k, v *yaml.Node, times int) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil, 0
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if n := mapping.Content[i]; n.Kind == yaml.ScalarNode && n.Value == key {
			k, v, times = n, mapping.Content[i+1], times+1
		}
	}
	return k, v, times
}

// scalarAt is the text of a scalar, or "" when there is none.
func scalarAt(root *yaml.Node, path []string) string {
	n := root
	for _, key := range path {
		if _, n, _ = child(n, key); n == nil {
			return ""
		}
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}
