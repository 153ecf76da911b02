package status

import (
	"errors"
	"fmt"
	"io/fs"

	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// bindingWords begin the file: people meet it when something is amiss.
const bindingWords = `# Written by Trainyard. By "repository" the daemon knows its own pods on a cluster
# that it shares; it stays the same when the repository moves. A daemon on
# another cluster than "cluster" starts nothing: delete that line if the
# environment is to move, or if the cluster was built anew.
`

// EncodeBinding writes an environment's binding.
func EncodeBinding(b repo.Binding) ([]byte, error) {
	b.APIVersion, b.Kind = repo.APIVersion, repo.BindingKind
	text, err := yaml.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", repo.BindingFile, err)
	}
	return append([]byte(bindingWords), text...), nil
}

// ReadBinding reads an environment's binding; the zero value is that there is
// none. What cannot be read is an error: whoever took it for none would take a
// cluster's pods for somebody else's.
func ReadBinding(tip fs.FS, layout repo.Layout, environment string) (b repo.Binding, err error) {
	name := layout.Binding(environment)
	text, err := fs.ReadFile(tip, name)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &b)
	}
	switch {
	case err != nil:
	case b.APIVersion != repo.APIVersion || b.Kind != repo.BindingKind:
		err = fmt.Errorf("it is a %s %s, and no %s %s", b.APIVersion, b.Kind, repo.APIVersion, repo.BindingKind)
	case !repo.IsRepositoryID(b.Repository):
		err = fmt.Errorf("repository: %q is no identity: small letters, digits and - within, 63 at most", b.Repository)
	}
	if err != nil {
		return repo.Binding{}, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
