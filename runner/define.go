package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Define takes over what a revision of the repository asks for, and looks at
// the jobs that it changes.
func (l *Loop) Define(now time.Time, defs *repo.Definitions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.defined
	l.defined, l.revision = true, defs.Revision
	next := l.definitions(defs)
	notices := append(l.damaged(), texts(defs.Problems)...)
	if why := l.withhold(next, defs.Settings.Removal); why != "" {
		notices = append([]string{why}, notices...)
	}
	if !slices.Equal(notices, l.notices) {
		for _, n := range notices {
			l.opts.Log.Warn().Msg(n)
		}
		l.notices = notices
		l.changed()
	}
	for key, n := range next {
		e := l.entry(key)
		same := n.withheld == e.withheld && reflect.DeepEqual(n.job, e.job) && reflect.DeepEqual(n.invalid, e.invalid)
		e.job, e.invalid, e.withheld = n.job, n.invalid, n.withheld
		if !same || first {
			l.queue.add(key, now)
		}
	}
	poke(l.dirty)
	poke(l.progress)
}

// definition is what a revision says of a job.
type definition struct {
	job      *repo.Job
	invalid  *repo.Invalid
	withheld string
}

// definitions are those of every job that is known or defined.
func (l *Loop) definitions(defs *repo.Definitions) map[repo.Key]*definition {
	next := make(map[repo.Key]*definition, len(l.jobs)+len(defs.Jobs))
	for key := range l.jobs {
		next[key] = &definition{}
	}
	for i := range defs.Jobs {
		next[defs.Jobs[i].Key] = &definition{job: &defs.Jobs[i]}
	}
	for i := range defs.Invalid {
		inv := &defs.Invalid[i]
		claimed := false
		for key, e := range l.jobs { // what a bad unit defined before stays as it was
			if n := next[key]; n.job == nil && e.record.Definition.Unit == inv.Source.Unit && inv.Source.Unit != "" && e.record.Phase != repo.PhaseRemoved && n.invalid == nil {
				n.invalid, claimed = inv, true
			}
		}
		if n := next[inv.Key]; n != nil {
			if n.job == nil {
				n.invalid = inv
			}
		} else if !claimed {
			next[inv.Key] = &definition{invalid: inv}
		}
	}
	return next
}

// withhold keeps jobs going that vanished all at once, which is a mistake more
// often than a wish, and says how to confirm it.
func (l *Loop) withhold(next map[repo.Key]*definition, rule repo.Removal) string {
	var vanished []string
	total := 0
	for key, n := range next {
		e := l.jobs[key]
		if e == nil || e.record.Phase == repo.PhaseRemoved || (e.record.Phase == repo.PhaseInvalid && e.record.Run == nil) {
			continue
		}
		total++
		if n.job == nil && n.invalid == nil {
			vanished = append(vanished, key.String())
		}
	}
	share := rule.MaxShare
	if share <= 0 {
		share = repo.DefaultMaxShare
	}
	all := len(vanished) == total
	many := len(vanished) >= repo.RemovalFloor && float64(len(vanished)) > share*float64(total)
	if len(vanished) == 0 || (!all && !many) {
		return ""
	}
	slices.Sort(vanished)
	sum := sha256.Sum256([]byte(strings.Join(vanished, "\n")))
	token := hex.EncodeToString(sum[:5])
	if rule.Confirm == token {
		return ""
	}
	why := fmt.Sprintf("%d of %d jobs have vanished from the repository at revision %.12s; nothing is stopped. If they are meant to go, commit this to %s: removal: {confirm: %q}",
		len(vanished), total, l.revision, repo.SettingsFile, token)
	for _, n := range next {
		if n.job == nil && n.invalid == nil {
			n.withheld = why
		}
	}
	return why
}
