package status

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// maxRecord is the size above which a status.yaml leaves out what only people
// need: messages of task attempts, and then all but a task's latest attempts.
const maxRecord = 1 << 20

// Encode writes a record as status.yaml. The runner bounds what it keeps of a
// task (repo.MaxAttempts, repo.MaxMessage); a record of very many tasks is
// folded until it is below 1 MiB, or only the last attempt of each is left.
func Encode(r repo.Record) ([]byte, error) {
	b, err := yaml.Marshal(r)
	if err == nil && len(b) > maxRecord {
		r, err = public(r) // a copy
	}
	for _, fold := range []func(*repo.TaskRecord){
		func(t *repo.TaskRecord) { foldMessages(t, 1) },
		func(t *repo.TaskRecord) { foldMessages(t, 0) },
		func(t *repo.TaskRecord) { t.Attempts = t.Attempts[max(0, len(t.Attempts)-1):] },
	} {
		if err != nil || len(b) <= maxRecord {
			break
		}
		eachTask(&r, fold)
		b, err = yaml.Marshal(r)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the record of %s: %w", r.Key(), err)
	}
	return b, nil
}

// eachTask calls f for every task of every attempt.
func eachTask(r *repo.Record, f func(*repo.TaskRecord)) {
	for i := range r.Roles {
		for j := range r.Roles[i].Tasks {
			f(&r.Roles[i].Tasks[j])
		}
	}
	for i := range r.Attempts {
		for j := range r.Attempts[i].Tasks {
			f(&r.Attempts[i].Tasks[j])
		}
	}
}

// foldMessages drops the messages of a task's attempts but the last n.
func foldMessages(t *repo.TaskRecord, n int) {
	for i := range t.Attempts[:max(0, len(t.Attempts)-n)] {
		if o := t.Attempts[i].Outcome; o != nil {
			o.Message = ""
		}
	}
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
