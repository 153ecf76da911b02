package simulation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
)

// laws are what must hold in every history, and what has to be known for that.
type laws struct {
	broken    string           // the first violation
	loose     bool             // two daemons act at once, or one that lives and the last push of a dead one: only what holds all the same is asked for
	jumped    bool             // a clock was moved: nothing that needs one is asked for
	forgiven  bool             // somebody destroyed what nobody else had: nothing can be promised any more
	fates     map[string]*fate // every pod that ever was, by name
	finished  map[string]bool  // runs of which the branch ever said so
	covered   map[string]bool  // runs that a finished one answered for
	outcomes  map[string]published
	mute      map[string]bool // pods whose log could not be read when it was asked for
	missing   map[string]lost // runs whose definition was deleted by hand, and is in the repository alone
	undefined map[string]bool // those of which it was not even there: nobody may have the rules any more by which failures are judged
}

// lost is the definition of a run that was deleted by hand.
type lost struct {
	job    repo.Key
	digest string
}

// published is an outcome as the branch first had it.
type published struct {
	repo.Outcome
	known bool // the pod had been seen
}

func (l *laws) begin() {
	l.fates, l.finished, l.covered, l.outcomes, l.mute = map[string]*fate{}, map[string]bool{}, map[string]bool{}, map[string]published{}, map[string]bool{}
	l.missing, l.undefined = map[string]lost{}, map[string]bool{}
}

func (l *laws) breaks(format string, args ...any) {
	if l.broken == "" && !l.forgiven {
		l.broken = fmt.Sprintf(format, args...)
	}
}

// overlap: something that a dead daemon asked for is done when the next one has
// read the branch, and did not hear of it. It is as if both had acted at once.
func (l *laws) overlap(w *world, term int) { l.loose = l.loose || term < w.readings }

// redefined: something was pushed to the repository, or is missed beside it.
func (l *laws) redefined(w *world) {
	for run, def := range l.missing {
		if !slices.ContainsFunc(w.repository.defs.Jobs, func(j repo.Job) bool { return j.Key == def.job && j.Digest == def.digest }) {
			l.undefined[run] = true
		}
	}
}

// born: a task attempt is started at most once, no two attempts of a task live
// at a time, and a finished run never runs again.
func (l *laws) born(w *world, api *corev1.Pod, run string, attempt repo.TaskAttempt) *fate {
	f := &fate{name: api.Name, key: jobOf(api), run: run, attempt: attempt}
	if l.fates[f.name] != nil && !l.loose {
		l.breaks("pod %s is started a second time", f.name)
	}
	l.fates[f.name] = f
	if l.finished[run] && !w.arriving && !l.loose {
		l.breaks("pod %s is started, and its run has finished", f.name)
	}
	for _, p := range w.cluster.pods {
		switch {
		case l.loose || p.ended() || p.key != f.key || p.attempt.Task != attempt.Task:
		case p.run == run:
			l.breaks("pod %s is started beside %s", f.name, p.name)
		case !outlives(p.api) && !w.arriving && !p.late:
			l.breaks("pod %s is started beside %s of another run", f.name, p.name)
		}
	}
	f.late = w.arriving
	l.patient(w, f)
	return f
}

// outlives says whether a pod may go on when its run has finished.
func outlives(api *corev1.Pod) bool { return api.Annotations[repo.AnnotationAddress] != "" }

// released: a pod is let go only when the branch has its outcome.
func (l *laws) released(w *world, p *pod) {
	if !p.done {
		l.breaks("pod %s is released while it runs", p.name)
	}
	if _, ok := l.outcomes[p.name]; ok {
		return
	}
	rec := w.remote.head.record(p.key)
	if rec == nil {
		if w.remote.lost == nil {
			l.breaks("pod %s is released, and the branch has no record of its job", p.name)
		}
		return
	}
	over := rec.Run != nil && rec.Run.ID == p.run && (rec.Run.Attempt > p.attempt.RunAttempt || beyond(rec, p.attempt))
	if !over && !l.finished[p.run] && !l.covered[p.run] && !p.late && w.remote.lost == nil {
		l.breaks("pod %s is released, and the branch does not have its outcome", p.name)
	}
}

// beyond says whether a record keeps only later attempts of a task, or no such task.
func beyond(rec *repo.Record, a repo.TaskAttempt) bool {
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			if r.Name == a.Role && t.Index == a.Index {
				return len(t.Attempts) > 0 && t.Attempts[0].Attempt > a.Attempt
			}
		}
	}
	return true
}

// unread notes that nobody could read a pod's log.
func (l *laws) unread(pod string) { l.mute[pod] = true }

// shown: a daemon reads a pod.
func (l *laws) shown(api *corev1.Pod) {
	if f := l.fates[api.Name]; f != nil && api.DeletionTimestamp == nil {
		f.seen = f.seen || api.Status.Phase == corev1.PodSucceeded || api.Status.Phase == corev1.PodFailed
	}
}

// pushed holds a commit against the one before it, and against what really happened.
func (l *laws) pushed(w *world, c *commit) {
	for n := range w.repository.defined {
		old, rec := c.parent.record(keyOf(n)), c.record(keyOf(n))
		if old == rec {
			continue
		}
		if w.tracing() {
			w.say("    %s", inShort(rec))
		}
		if err := rec.Check(); err != nil {
			l.breaks("the record of %s cannot be: %s", rec.Key(), err)
		}
		l.history(old, rec)
		if run := rec.Run; run != nil {
			if run.FinishedAt == nil && l.finished[run.ID] {
				l.breaks("run %s has finished, and goes on", run.ID)
			}
			if run.Attempt != run.Retries.Total {
				l.breaks("run %s is in attempt %d after %d retries", run.ID, run.Attempt, run.Retries.Total)
			}
			l.budgets(w, rec)
			l.tasks(w, c, rec)
		}
		for i := range rec.History {
			h := &rec.History[i]
			if !l.finished[h.ID] && rec.Run != nil && rec.Run.ID == h.ID {
				l.judged(w, old, rec, h)
			}
			l.finished[h.ID] = true
			for _, id := range h.Covers {
				l.covered[id] = true
			}
		}
	}
}

// inShort is what a record says, in a line.
func inShort(rec *repo.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", rec.Key().Name, rec.Phase)
	if run := rec.Run; run != nil {
		fmt.Fprintf(&b, " %s/%d %+v", run.ID, run.Attempt, run.Retries)
	}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			fmt.Fprintf(&b, " %s:", t.Name)
			for _, a := range t.Attempts {
				switch {
				case a.Outcome != nil:
					fmt.Fprintf(&b, " %d=%s(%s)", a.Attempt, a.Result, a.Reason)
				case a.UID != "":
					fmt.Fprintf(&b, " %d", a.Attempt)
				default:
					fmt.Fprintf(&b, " %d?", a.Attempt)
				}
				if a.Stop != "" && a.Outcome == nil {
					fmt.Fprintf(&b, " stop:%s", a.Stop)
				}
			}
		}
	}
	return b.String()
}

// history only grows, and names no run twice.
func (l *laws) history(old, now *repo.Record) {
	if old != nil && (len(now.History) < len(old.History) || !slices.EqualFunc(old.History, now.History[:len(old.History)], func(a, b repo.RunSummary) bool { return a.ID == b.ID })) {
		l.breaks("the history of %s was rewritten", now.Key())
	}
	for i, h := range now.History {
		for _, other := range now.History[:i] {
			if other.ID == h.ID {
				l.breaks("run %s is in the history twice", h.ID)
			}
		}
	}
}

// budgets are never exceeded, as the run's own definition has them.
func (l *laws) budgets(w *world, rec *repo.Record) {
	job := w.repository.version(rec.Key(), rec.Run.Digest)
	if job == nil || l.loose {
		return
	}
	if r := job.Retry; r.Limit >= 0 && rec.Run.Retries.Accountable > r.Limit {
		l.breaks("run %s used %d of %d retries", rec.Run.ID, rec.Run.Retries.Accountable, r.Limit)
	}
	l.attempts(rec, job)
	failures := int32(0)
	for i := range rec.Roles {
		role := job.Role(rec.Roles[i].Name)
		for _, t := range rec.Roles[i].Tasks {
			failures += t.Retries.Accountable
			if role != nil && role.Retry.Limit >= 0 && t.Retries.Accountable > role.Retry.Limit {
				l.breaks("%s of run %s used %d of %d retries", t.Name, rec.Run.ID, t.Retries.Accountable, role.Retry.Limit)
			}
		}
	}
	if b := job.FailureBudget; b != nil && failures > *b {
		l.breaks("run %s retried %d failures of %d", rec.Run.ID, failures, *b)
	}
}

// version is a job's definition of a digest.
func (r *repository) version(key repo.Key, digest string) *repo.Job {
	n := int(key.Name[0] - 'a')
	if n < 0 || n >= len(r.versions) {
		return nil
	}
	for _, v := range r.versions[n] {
		if v.Digest == digest {
			return v
		}
	}
	return nil
}

func (l *laws) tasks(w *world, c *commit, rec *repo.Record) {
	for i := range rec.Roles {
		for j := range rec.Roles[i].Tasks {
			t := &rec.Roles[i].Tasks[j]
			for k := range t.Attempts {
				if a := &t.Attempts[k]; a.Outcome != nil {
					l.outcome(c, rec, a)
				} else if k < len(t.Attempts)-1 {
					l.breaks("%s goes on twice at once", a.Pod)
				}
			}
		}
	}
}

// outcome: it is told once, and as it really was.
func (l *laws) outcome(c *commit, rec *repo.Record, a *repo.TaskAttemptRecord) {
	first, told := l.outcomes[a.Pod]
	if told && first.known && !(l.loose && first.Reason == runner.ReasonPodLost) && (first.Result != a.Result || first.Reason != a.Reason || first.Class != a.Class) {
		l.breaks("pod %s was %s (%s), and is %s (%s)", a.Pod, first.Result, first.Reason, a.Result, a.Reason)
	}
	if told && first.known {
		return
	}
	l.outcomes[a.Pod] = published{*a.Outcome, a.UID != ""}
	f := l.fates[a.Pod]
	switch {
	case a.UID == "":
		if f != nil && !f.late && !l.loose {
			l.breaks("pod %s was started, and its record does not know it", a.Pod)
		}
		return
	case f == nil:
		l.breaks("pod %s has an outcome, and never was", a.Pod)
		return
	case !f.done:
		l.breaks("pod %s is %s (%s), and goes on", a.Pod, a.Result, a.Reason)
		return
	}
	l.truth(a, f)
	if a.Result == repo.Failed && !l.mute[a.Pod] && !f.unclear && !l.loose && (a.Log != "" || !f.asked) {
		if text, ok := c.tail(tailPath(rec.Key(), a.Log)); !ok || text != logOf(a.Pod) {
			l.breaks("pod %s has failed, and the end of its log is lost", a.Pod)
		}
	}
}

// truth holds an outcome against the fate of its pod.
func (l *laws) truth(a *repo.TaskAttemptRecord, f *fate) {
	wrong := func(why string) {
		l.breaks("pod %s is %s (%s, %s): %s: %+v", a.Pod, a.Result, a.Reason, a.Class, why, *f)
	}
	switch {
	case f.unclear:
	case a.Reason == runner.ReasonPodLost && l.loose:
	case a.Reason == runner.ReasonPodLost:
		wrong("its outcome was there")
	case !f.asked && f.code == 0 && a.Result != repo.Succeeded:
		wrong("it had succeeded")
	case a.Result == repo.Succeeded && (f.code != 0 || f.asked):
		wrong("it had not succeeded")
	case a.Result == repo.Stopped && !f.asked:
		wrong("it had ended by itself")
	case a.Result == repo.Failed && !f.asked && a.ExitCode != nil && *a.ExitCode != f.code:
		wrong("another exit code")
	case a.Reason == runner.ReasonCutOff && (!f.cutOff || !a.Free):
		wrong("it could have started, or its end counts")
	case l.undefined[f.run]:
	case a.Reason == runner.ReasonStartDeadline: // it was to be given up anyhow
	case a.Result == repo.Failed && f.asked && f.byOthers && !f.byUs && !f.taken && (a.Class != repo.Transient || !a.Free):
		wrong("it was deleted by hand, which is nobody's fault")
	case a.Result == repo.Failed && f.taken && !f.byUs && !a.Free:
		wrong("the cluster took it, which is nobody's fault")
	}
}
