package repo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Objects are those of the run's job as a backend is to apply them: where
// Expand is set, the values of a ConfigMap's data are filled in for an attempt
// of the run. The same run, attempt and addresses give the same bytes.
func (r *Run) Objects(runAttempt int32, addr Addresses) ([]Object, error) {
	out := slices.Clone(r.Job.Objects)
	for i := range out {
		if !out[i].Expand {
			continue
		}
		raw, err := r.expandObject(out[i].Raw, stamper{run: r, attempt: TaskAttempt{RunAttempt: runAttempt}, addr: addr})
		if err != nil {
			return nil, fmt.Errorf("expand %s %s: %w", out[i].Kind, out[i].Name, err)
		}
		out[i].Raw, out[i].Expand = raw, false
	}
	return out, nil
}

func (r *Run) expandObject(raw json.RawMessage, s stamper) (json.RawMessage, error) {
	var m corev1.ConfigMap
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		value, err := s.expand(m.Data[key])
		if err != nil {
			return nil, fmt.Errorf("data %s: %w", key, err)
		}
		m.Data[key] = value
	}
	return json.Marshal(m)
}
