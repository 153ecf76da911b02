package daemon

import (
	"path/filepath"

	"github.com/trainyard/trainyard/runner/local"
)

// LocalDir is where the local runner keeps its pods in a state directory.
func LocalDir(stateDir string) string { return filepath.Join(stateDir, "local") }

// Local opens the local runner in a state directory.
func Local(environment string, o local.Options) func(stateDir string) (Backend, error) {
	return func(stateDir string) (Backend, error) {
		b, err := local.New(LocalDir(stateDir), environment, o)
		if err != nil {
			return nil, err // and not a nil pointer, which is no nil Backend
		}
		return b, nil
	}
}
