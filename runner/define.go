package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		e.removed = n.gone() && n.withheld == ""
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

func (n *definition) gone() bool { return n.job == nil && n.invalid == nil }

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
// often than a wish, and says how to confirm it. What is held back stays so,
// whatever is pushed next, until it is there again or confirmed. The words name
// no revision: with each they would change, and every change is a commit.
func (l *Loop) withhold(next map[repo.Key]*definition, rule repo.Removal) string {
	var vanished []string
	total, held := 0, false
	for key, n := range next {
		e := l.jobs[key]
		if e == nil || e.leaving() {
			continue
		}
		total++
		if n.gone() {
			vanished, held = append(vanished, key.String()), held || e.heldBack()
		}
	}
	share := rule.MaxShare
	if share <= 0 {
		share = repo.DefaultMaxShare
	}
	all := len(vanished) == total
	many := len(vanished) >= repo.RemovalFloor && float64(len(vanished)) > share*float64(total)
	if len(vanished) == 0 || (!all && !many && !held) {
		return ""
	}
	slices.Sort(vanished)
	sum := sha256.Sum256([]byte(strings.Join(vanished, "\n")))
	token := hex.EncodeToString(sum[:5])
	if rule.Confirm == token {
		return ""
	}
	why := fmt.Sprintf("%d of %d jobs have vanished from the repository; nothing is stopped. If they are meant to go, commit this to %s: removal: {confirm: %q}",
		len(vanished), total, repo.SettingsFile, token)
	for key, n := range next {
		if e := l.jobs[key]; n.gone() && (e == nil || !e.leaving()) {
			n.withheld = why
		}
	}
	return why
}

// leaving says that a job is on its way out already, or never was more than a
// broken file: it is none that can vanish.
func (e *entry) leaving() bool {
	r := &e.record
	stopping := r.Run != nil && r.Run.Stopping && r.Run.Ending != nil && r.Run.Ending.Reason == ReasonRemoved
	return e.removed || stopping || r.Phase == repo.PhaseRemoved || (r.Phase == repo.PhaseInvalid && r.Run == nil && len(e.runs) == 0)
}

// heldBack says that a job's removal waits to be confirmed, perhaps since an
// earlier daemon.
func (e *entry) heldBack() bool {
	return e.withheld != "" || slices.ContainsFunc(e.record.Conditions, func(c metav1.Condition) bool {
		return c.Type == conditionValid && c.Reason == reasonWithheld
	})
}
