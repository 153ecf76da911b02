package status

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/repo-layout"
)

// Encode writes a record as status.yaml. Its size is bounded by what the
// runner keeps in a record: repo.MaxAttempts and repo.MaxMessage.
func Encode(r repo.Record) ([]byte, error) {
	b, err := yaml.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of %s: %w", r.Key(), err)
	}
	return b, nil
}

// Decode reads a status.yaml. Fields that it does not know are left out: a
// newer version may have written them.
func Decode(b []byte) (repo.Record, error) {
	var r repo.Record
	if err := yaml.Unmarshal(b, &r); err != nil {
		return repo.Record{}, fmt.Errorf("decode record: %w", err)
	}
	if r.Kind != repo.RecordKind || r.APIVersion != repo.APIVersion {
		return repo.Record{}, fmt.Errorf("decode record: want %s %s, not %q %q", repo.APIVersion, repo.RecordKind, r.APIVersion, r.Kind)
	}
	if r.Metadata.Name == "" || r.Metadata.Namespace == "" {
		return repo.Record{}, errors.New("decode record: it names no job")
	}
	return r, nil
}
