package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// digestVersion is part of every digest. A new one runs every job of everybody
// again, so it changes only if a digest came to mean something else.
const digestVersion = "v1:"

// identity is what a digest is made of: the built document and what surrounds
// it, never the job that was read from it, which a new version of Trainyard
// may fill with other defaults.
type identity struct {
	Document map[string]any             `json:"document"`
	Objects  []json.RawMessage          `json:"objects,omitempty"`
	Pods     map[string]json.RawMessage `json:"pods,omitempty"` // what the overlay changed, by role
	// Renamed are resources of the document that the settings have other names
	// for: under its old name none of them could be had.
	Renamed map[string]string `json:"renamed,omitempty"`
}

// digests are the identity of what would run, and that without replica counts.
func digests(document map[string]any, f *manifest.Format, objects []repo.Object, pods map[string]json.RawMessage, renamed map[string]string) (digest, shape string, err error) {
	text, err := encode(document)
	if err != nil {
		return "", "", err
	}
	var copied map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&copied); err != nil {
		return "", "", err
	}
	id := identity{Document: copied, Pods: pods, Renamed: renamed}
	for _, o := range objects {
		id.Objects = append(id.Objects, o.Raw)
	}
	// Name and namespace are part of the run's identity already; labels and
	// annotations say nothing of what runs.
	delete(copied, "metadata")
	for _, path := range f.Neutral {
		remove(copied, strings.Split(path, "."))
	}
	if digest, err = sum(id); err != nil {
		return "", "", err
	}
	for _, path := range f.Replicas {
		remove(copied, strings.Split(path, "."))
	}
	shape, err = sum(id)
	return digest, shape, err
}

func sum(id identity) (string, error) {
	text, err := encode(id)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return digestVersion + hex.EncodeToString(h[:]), nil
}

// remove takes away what is at a path like spec.roles[*].replicas, and maps
// that have become empty by it.
func remove(m map[string]any, path []string) {
	key, list := strings.CutSuffix(path[0], "[*]")
	v, ok := m[key]
	switch {
	case !ok:
	case len(path) == 1 && !list:
		delete(m, key)
	case list:
		items, _ := v.([]any)
		for _, item := range items {
			if below, ok := item.(map[string]any); ok && len(path) > 1 {
				remove(below, path[1:])
			}
		}
	default:
		if below, ok := v.(map[string]any); ok {
			if remove(below, path[1:]); len(below) == 0 {
				delete(m, key)
			}
		}
	}
}

// mergePatch is what leads from one value to another; nil when they are equal.
func mergePatch(from, to any) (json.RawMessage, error) {
	a, err := encode(from)
	if err != nil {
		return nil, err
	}
	b, err := encode(to)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(a, b)
	if err != nil || bytes.Equal(patch, []byte("{}")) {
		return nil, err
	}
	return patch, nil
}
