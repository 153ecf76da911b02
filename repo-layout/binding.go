package repo

import (
	"crypto/sha256"
	"path"
	"strings"
)

// BindingFile of an environment's directory on the status branch says whose the
// pods of the environment are. It is there when they share a cluster with
// others.
const BindingFile = "environment.yaml"

// BindingKind is the kind of BindingFile.
const BindingKind = "Environment"

// LabelRepository of everything on a cluster says which repository it is of, as
// its BindingFile does.
const LabelRepository = "trainyard.dev/repository"

// Binding is what BindingFile says.
type Binding struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Repository is the identity of the repository: it is derived once, by
	// RepositoryID, and stays the same wherever the repository moves.
	Repository string `json:"repository"`
	// Cluster is the identity of the cluster that the environment runs on, "" if
	// it is not known.
	Cluster string `json:"cluster,omitempty"`
}

// Binding is where an environment's BindingFile lies.
func (l Layout) Binding(environment string) string {
	return path.Join(l.EnvironmentDir(environment), BindingFile)
}

// RepositoryID derives the identity of a repository from the place where it was
// first seen, and of what comes behind a NUL byte: the last part of the place,
// cut to fit, and 10 letters of a hash. It is the value of a label.
func RepositoryID(place string) string {
	h := sha256.Sum256([]byte(place))
	where, _, _ := strings.Cut(place, "\x00")
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, strings.TrimSuffix(path.Base(where), ".git"))
	name = strings.Trim(name[:min(len(name), 52)], "-")
	if name == "" {
		name = "repository"
	}
	return name + "-" + lowerBase32.EncodeToString(h[:])[:10]
}

// IsRepositoryID says whether a text can be the identity of a repository.
func IsRepositoryID(id string) bool {
	return id != "" && len(id) <= 63 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && id[0] != '-' && id[len(id)-1] != '-'
}
