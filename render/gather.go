package render

import (
	"cmp"
	"fmt"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// gather puts the outcomes of all units together, in the order of keys. A key
// that two of them claim is nobody's: neither may run anew. So are objects.
func gather(defs *repo.Definitions, results []rendered) {
	jobs := map[repo.Key][]repo.Job{}
	bad := map[repo.Key][]repo.Invalid{}
	var guessed []repo.Invalid
	for _, r := range results {
		defs.Problems = append(defs.Problems, r.outcome.problems...)
		for _, j := range r.outcome.jobs {
			jobs[j.Key] = append(jobs[j.Key], j)
		}
		for _, i := range r.outcome.invalid {
			if i.guessed {
				guessed = append(guessed, i.Invalid)
			} else {
				bad[i.Key] = append(bad[i.Key], i.Invalid)
			}
		}
	}
	for key, same := range jobs {
		if len(same)+len(bad[key]) == 1 {
			defs.Jobs = append(defs.Jobs, same[0])
		} else if len(same) > 0 {
			bad[key] = append(bad[key], duplicates(key, same, bad[key])...)
		}
	}
	for _, same := range bad {
		defs.Invalid = append(defs.Invalid, one(same))
	}
	byKey := func(a, b repo.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	taken := func(key repo.Key) bool { return len(jobs[key])+len(bad[key]) > 0 }
	for _, i := range guessed {
		base := i.Name
		for n := 2; taken(i.Key); n++ {
			i.Name = fmt.Sprintf("%s-%d", base[:min(len(base), 55)], n)
		}
		bad[i.Key] = append(bad[i.Key], i)
		defs.Invalid = append(defs.Invalid, i)
	}
	slices.SortFunc(defs.Jobs, func(a, b repo.Job) int { return byKey(a.Key, b.Key) })
	clashing := clashes(defs.Jobs)
	for _, i := range clashing {
		defs.Invalid = append(defs.Invalid, i)
	}
	defs.Jobs = slices.DeleteFunc(defs.Jobs, func(j repo.Job) bool { _, yes := clashing[j.Key]; return yes })
	slices.SortFunc(defs.Invalid, func(a, b repo.Invalid) int { return byKey(a.Key, b.Key) })
	defs.Problems = repo.SortErrors(defs.Problems)
}

// duplicates are jobs of the same key as errors, each of which names another
// place: that of a good job or of a bad one.
func duplicates(key repo.Key, same []repo.Job, bad []repo.Invalid) []repo.Invalid {
	var places []repo.Source
	for _, j := range same {
		places = append(places, j.Source)
	}
	for _, i := range bad {
		places = append(places, i.Source)
	}
	var all []repo.Invalid
	for n, j := range same {
		other := places[(n+1)%len(places)]
		where := other.File
		if other.Line > 0 {
			where = fmt.Sprintf("%s:%d", other.File, other.Line)
		}
		all = append(all, repo.Invalid{Key: key, Source: j.Source, Errors: []*repo.Error{{
			File: j.Source.File, Line: j.Source.Line, Field: "metadata.name",
			Message: fmt.Sprintf("job %s is defined twice: here and at %s; neither is run until one is renamed or removed", key, where),
		}}})
	}
	return all
}

// one is all that is wrong with a key.
func one(same []repo.Invalid) repo.Invalid {
	slices.SortStableFunc(same, func(a, b repo.Invalid) int {
		return cmp.Or(cmp.Compare(a.Source.File, b.Source.File), cmp.Compare(a.Source.Line, b.Source.Line))
	})
	first := same[0]
	first.Errors = nil
	for _, i := range same {
		first.Errors = append(first.Errors, i.Errors...)
	}
	first.Errors = repo.SortErrors(first.Errors)
	return first
}
