package simulation

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// remote is the Git server.
type remote struct {
	head    *commit // of the status branch; nil for none
	weather weather
	refuses bool // takes no push
	// lost is what the branch held before somebody put an older state back, until
	// a daemon has put it right.
	lost     *commit
	restored bool // that has happened
}

// commit is a state of the status branch, which never changes.
type commit struct {
	number  int
	by      string
	parent  *commit
	records map[repo.Key]*repo.Record // with their histories
	tails   map[string]string         // that came with it
	notices []string
}

// token is what confirms a removal, as the dashboard tells it.
func (r *remote) token() string {
	if r.head == nil {
		return ""
	}
	for _, n := range r.head.notices {
		if _, rest, ok := strings.Cut(n, `removal: {confirm: "`); ok {
			token, _, _ := strings.Cut(rest, `"`)
			return token
		}
	}
	return ""
}

func (c *commit) id() int {
	if c == nil {
		return -1
	}
	return c.number
}

func (c *commit) record(key repo.Key) *repo.Record {
	if c == nil {
		return nil
	}
	return c.records[key]
}

// tail is a log tail on the branch.
func (c *commit) tail(path string) (string, bool) {
	for ; c != nil; c = c.parent {
		if text, ok := c.tails[path]; ok {
			return text, true
		}
	}
	return "", false
}

// with is the commit that a book makes on this one, nil if it changes nothing.
func (c *commit) with(by string, changes []repo.Change, book *runner.Book) *commit {
	next := &commit{by: by, parent: c, records: map[repo.Key]*repo.Record{}, notices: book.Notices}
	changed := c == nil && len(changes) > 0
	if c != nil {
		next.number = c.number + 1
		maps.Copy(next.records, c.records)
		changed = !slices.Equal(c.notices, book.Notices)
	}
	for i := range changes {
		rec := changes[i].Record
		key := rec.Key()
		there := c.record(key)
		rec.History, rec.Past = union(there, rec.History), repo.Past{} // a file has all of them
		if there == nil || !reflect.DeepEqual(*there, rec) {
			next.records[key], changed = &rec, true
		}
		for _, t := range changes[i].Tails {
			if next.tails == nil {
				next.tails = map[string]string{}
			}
			next.tails[tailPath(key, t.Path)] = t.Text
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return next
}

func tailPath(key repo.Key, path string) string { return key.Name + "/" + path }

// union is a history with what the branch has of it and we have not: lines are never dropped.
func union(there *repo.Record, history []repo.RunSummary) []repo.RunSummary {
	if there == nil || len(there.History) == 0 {
		return history
	}
	same := func(a, b repo.RunSummary) bool { return a.ID == b.ID }
	if n := len(there.History); len(history) >= n && slices.EqualFunc(history[:n], there.History, same) {
		return history
	}
	out := slices.Clip(there.History)
	for _, h := range history {
		if !slices.ContainsFunc(out, func(o repo.RunSummary) bool { return o.ID == h.ID }) {
			out = append(out, h)
		}
	}
	return out
}
