package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	ordered "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// maxRecord is the size above which a status.yaml leaves out what only people
// need: messages of task attempts, and then all but a task's latest attempts.
const maxRecord = 1 << 20

// folds make a record smaller, in this order.
var folds = []func(*repo.Record){
	func(r *repo.Record) { eachTask(r, func(t *repo.TaskRecord) { foldMessages(t, 1) }) },
	func(r *repo.Record) { eachTask(r, func(t *repo.TaskRecord) { foldMessages(t, 0) }) },
	func(r *repo.Record) {
		eachTask(r, func(t *repo.TaskRecord) { t.Attempts = t.Attempts[max(0, len(t.Attempts)-1):] })
	},
	func(r *repo.Record) {
		for i := range r.Attempts {
			r.Attempts[i].Tasks = nil
		}
	},
}

// Encode writes a record as status.yaml. The runner bounds what it keeps of a
// task (repo.MaxAttempts, repo.MaxMessage); a record of very many tasks is
// folded until it is below 1 MiB, or nothing is left to fold: then it has the
// last attempt of each task of the present attempt of the run.
func Encode(r repo.Record) ([]byte, error) {
	out, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of %s: %w", r.Key(), err)
	}
	return out, nil
}

func encode(r repo.Record) ([]byte, error) {
	text, err := json.Marshal(r)
	var out []byte
	if err == nil && len(text) <= maxRecord { // YAML costs many times what JSON does
		out, err = toYAML(text)
	}
	for i := 0; err == nil && i < len(folds) && max(len(text), len(out)) > maxRecord; i++ {
		if i == 0 {
			if r, err = copied(r); err != nil {
				return nil, err
			}
		}
		folds[i](&r)
		if text, err = json.Marshal(r); err == nil && len(text) <= maxRecord {
			out, err = toYAML(text)
		}
	}
	if err == nil && out == nil {
		out, err = toYAML(text)
	}
	return out, err
}

// toYAML keeps JSON's order, which is that of Record's fields: in the order of
// YAML's own, labels like a1 and a01 have no fixed place. The text may have any
// character in it: what YAML does not take as it is goes through JSON's escapes.
// One odd byte in what a program said must not keep its record from being written.
func toYAML(text []byte) ([]byte, error) {
	var b bytes.Buffer
	for _, c := range string(text) {
		if c == 0x7f || c >= 0x80 && c <= 0x9f || c == 0xfeff || c == 0xfffe || c == 0xffff {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	var inOrder ordered.MapSlice
	if err := ordered.Unmarshal(b.Bytes(), &inOrder); err != nil {
		return nil, err
	}
	return ordered.Marshal(inOrder)
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
// newer version may have written them. A record that cannot be is an error.
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
	if err := r.Check(); err != nil {
		return repo.Record{}, fmt.Errorf("decode record: %w", err)
	}
	return r, nil
}
