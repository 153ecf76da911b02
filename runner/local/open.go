package local

import (
	"fmt"
	"path/filepath"
)

// Open reads the pods of a state directory that a daemon looks after, or did:
// Pods and Log can be asked, nothing is changed and nothing is started.
func Open(dir, environment string) (*Backend, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("local runner: %w", err)
	}
	return &Backend{
		dir: dir, environment: environment, cancel: func() {},
		pods: map[string]*entry{}, dropped: map[string]*entry{}, waiting: map[string]string{}, shims: map[int]*shimChild{},
	}, nil
}
