package replicaspec

import (
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// TerminationPolicy says whose end is the job's.
type TerminationPolicy struct {
	Chief *Chief `json:"chief"`
}

// Chief is one replica.
type Chief struct {
	ReplicaName  string `json:"replicaName"`
	ReplicaIndex int32  `json:"replicaIndex"`
}

// SetChief makes one replica of a job the one that decides, the first of a type
// unless the policy says otherwise. list is the path of the replica specs.
func SetChief(o *manifest.Object, job *repo.Job, list string, p *TerminationPolicy, otherwise string, types ...string) {
	const at = "spec.terminationPolicy"
	name, index, field := otherwise, int32(0), list
	if p != nil {
		if p.Chief == nil {
			o.Errorf(at, "invalid termination policy: chief is required")
			return
		}
		name, index, field = p.Chief.ReplicaName, p.Chief.ReplicaIndex, at+".chief.replicaName"
	}
	role := job.Role(RoleName(name))
	if role == nil || !slices.Contains(types, name) {
		o.Errorf(field, "Missing ReplicaSpec for chief: %s", name)
		return
	}
	if index < 0 || index >= role.Replicas {
		if p == nil {
			o.Errorf(list, "%s has no replica 0, whose end is the job's", name)
			return
		}
		o.Errorf(at+".chief.replicaIndex", "%s has no replica %d: it has %d replicas", name, index, role.Replicas)
	}
	role.Daemon, role.MinSucceeded, role.MinFailed, role.Chief = false, 1, 1, &index
}
