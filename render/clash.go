package render

import (
	"bytes"
	"fmt"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// spot is where an object would be on a backend.
type spot struct{ namespace, apiVersion, kind, name string }

// claim is an object of a job.
type claim struct {
	job *repo.Job
	raw []byte
}

// clashes are the jobs whose objects would be overwritten by those of other
// units, with the reasons. Units that bring the very same object, as of a base
// that they share, do each other no harm.
func clashes(jobs []repo.Job) map[repo.Key]repo.Invalid {
	claims := map[spot][]claim{}
	var spots []spot
	for i := range jobs {
		j := &jobs[i]
		for _, o := range j.Objects {
			p := spot{j.Namespace, o.APIVersion, o.Kind, o.Name}
			if claims[p] == nil {
				spots = append(spots, p)
			}
			claims[p] = append(claims[p], claim{j, o.Raw})
		}
	}
	bad := map[repo.Key]repo.Invalid{}
	for _, p := range spots {
		for _, c := range claims[p] {
			other := rival(claims[p], c)
			if other == nil {
				continue
			}
			invalid := bad[c.job.Key]
			invalid.Key, invalid.Source = c.job.Key, c.job.Source
			invalid.Errors = append(invalid.Errors, &repo.Error{
				File: c.job.Source.File, Line: c.job.Source.Line,
				Message: fmt.Sprintf("%s %q of namespace %s is brought by %s and, with other contents, by %s: one would overwrite the other; give one of them another name",
					p.kind, p.name, p.namespace, c.job.Source.Unit, other.Source.Unit),
			})
			bad[c.job.Key] = invalid
		}
	}
	return bad
}

// rival is a job of another unit, nil if all that claim an object agree.
func rival(all []claim, c claim) (other *repo.Job) {
	agree := true
	for _, o := range all {
		agree = agree && bytes.Equal(o.raw, all[0].raw)
		if o.job.Source.Unit != c.job.Source.Unit && (other == nil || !bytes.Equal(o.raw, c.raw)) {
			other = o.job
		}
	}
	if agree {
		return nil
	}
	return other
}
