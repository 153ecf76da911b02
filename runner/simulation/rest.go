package simulation

import (
	"slices"
	"strings"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// patience is how many steps a world may take to come to rest.
const patience = 6000

// rest lets nothing go wrong any more until everything has come to rest: every
// pod succeeds, every request arrives, nobody pushes.
func (w *world) rest() {
	w.say("from here on all goes well")
	w.api, w.remote.weather, w.remote.refuses, w.cluster.quota = fine, fine, false, false
	for i := range w.cluster.nodes {
		w.cluster.nodes[i].silent = false
	}
	r := &w.repository
	clear(r.broken)
	w.push()
	w.heal()
	w.keepTime()
	for i, job := range r.defined {
		if job != nil && (job.Suspend || job.Schedule != nil) {
			w.change(i, func(j *repo.Job) { j.Suspend, j.Schedule = false, nil })
		}
	}
	w.push()
	w.heal()
	for limit := w.steps + patience; w.laws.broken == "" && w.steps < limit; {
		if !w.settle() {
			return
		}
	}
	w.laws.breaks("it does not come to rest: %s", w.restless())
}

// heal lets everything arrive that is on its way, puts the clocks right, and has
// all daemons learn of the last push before they go on.
func (w *world) heal() {
	for len(w.late) > 0 {
		w.arrive()
	}
	for _, d := range w.daemons {
		d.skew = 0
		for _, t := range d.threads {
			t.asleep = false
		}
	}
	if w.leader() == nil {
		w.daemons[0].begin()
	}
}

// settle lets all go on that can without a wait, or else time pass. It says
// whether there was anything to do.
func (w *world) settle() bool {
	moved := false
	w.now = w.now.Add(50 * time.Millisecond)
	w.rounds++
	for i, d := range w.daemons {
		if w.rounds%8 == 0 && len(w.daemons) > 1 && w.rounds/8%len(w.daemons) == i {
			moved = true
			continue // in step for ever, one could always come first
		}
		for i := 0; i < len(d.threads); i++ {
			if d.runnable(d.threads[i]) {
				w.steps++
				d.resume(d.threads[i])
				moved = true
			}
		}
		if d.alive && len(d.backend.inbox) > 0 {
			w.steps++
			d.backend.deliver(len(d.backend.inbox))
			moved = true
		}
	}
	if len(w.overtaken) > 0 {
		w.restartOvertaken()
		moved = true
	}
	if moved {
		return true
	}
	for _, p := range slices.Clone(w.cluster.pods) {
		if !p.ended() && (!p.cutOff || p.deleting()) { // or somebody has to give it up
			w.steps++
			w.finish(p)
			moved = true
		}
	}
	if moved {
		return true
	}
	if token := w.remote.token(); token != "" && token != w.repository.removal.Confirm {
		w.say("push: removal is confirmed by %s", token)
		w.repository.removal.Confirm = token
		w.push()
	}
	return w.wait()
}

// finish takes a pod one step closer to its end.
func (w *world) finish(p *pod) {
	switch {
	case p.deleting():
		w.end(p, exitAsked)
	case p.node == 0:
		w.place(p, 1)
	case !p.running():
		w.start(p)
	default:
		w.end(p, 0)
	}
}

// wait lets time pass up to when somebody has something to do, and says whether
// there is anybody. A poll that will find nothing new is nothing to do.
func (w *world) wait() bool {
	least := time.Duration(0)
	for _, d := range w.daemons {
		for _, t := range d.threads {
			if t.until.IsZero() || t.name == "poll" && d.upToDate() {
				continue
			}
			if wait := max(t.until.Sub(d.clock()), time.Nanosecond); least == 0 || wait < least {
				least = wait
			}
		}
	}
	w.now = w.now.Add(least)
	return least > 0
}

// upToDate says whether a poll would bring nothing new.
func (d *daemon) upToDate() bool {
	return d.loaded && d.defined == d.repository.revision && !d.ledger.moved()
}

// restless says what goes on in a world that should be at rest.
func (w *world) restless() string {
	var out []string
	for _, p := range w.cluster.pods {
		out = append(out, "pod "+p.name)
	}
	for _, d := range w.daemons {
		for _, t := range d.threads {
			if !t.asleep {
				out = append(out, d.name+"'s "+t.name)
			}
		}
	}
	return strings.Join(out, ", ")
}

// atRest: nothing is left behind, every run has ended, every task attempt that
// was started has its outcome, and the counters are right.
func (l *laws) atRest(w *world) {
	for _, p := range w.cluster.pods {
		if !p.ended() && outlives(p.api) {
			continue
		}
		l.breaks("pod %s is left", p.name)
	}
	for _, r := range w.cluster.runs {
		// What a dead daemon's last request left is found by the next one's start.
		if !r.late && !l.loose && (!l.finished[r.run.ID] || !w.serves(r.run.ID)) {
			l.breaks("what was prepared for run %s is left", r.run.ID)
		}
	}
	if w.remote.head == nil {
		if len(l.fates) > 0 {
			l.breaks("nothing was ever published")
		}
		return
	}
	for n := range w.repository.defined {
		key, rec := keyOf(n), w.remote.head.record(keyOf(n))
		if rec == nil {
			continue
		}
		if rec.Run != nil && rec.Run.FinishedAt == nil {
			l.breaks("run %s of %s does not end: %s: %s", rec.Run.ID, key.Name, rec.Phase, rec.Message)
		}
		l.counters(w, rec)
	}
	l.tails(w)
	for _, f := range l.fates {
		if !l.loose && !l.accounted(w, f) {
			l.breaks("pod %s was started, and nobody knows of it: %+v", f.name, *f)
		}
	}
}

// tails: whatever failed by itself left the end of its log, if that could be
// read; and so did what succeeded, if its log went with it before it was seen.
func (l *laws) tails(w *world) {
	if w.remote.restored { // an older state has no newer tails
		return
	}
	for _, f := range l.fates {
		if f.asked || f.code < 0 || f.code == 0 && (f.seen || !f.leaving) || f.late || f.unclear || l.loose || l.mute[f.name] {
			continue
		}
		path := tailPath(f.key, repo.TailPath(f.run, f.attempt))
		if text, ok := w.remote.head.tail(path); !ok || text != logOf(f.name) {
			l.breaks("pod %s ended with %d, and the end of its log is not on the branch", f.name, f.code)
		}
	}
}

// serves says whether something goes on that outlives a run.
func (w *world) serves(run string) bool {
	return slices.ContainsFunc(w.cluster.pods, func(p *pod) bool { return p.run == run })
}

// accounted says whether the branch knows of a task attempt: by itself, or as
// one of an earlier attempt of its run, or as one of more than a record keeps.
func (l *laws) accounted(w *world, f *fate) bool {
	if _, told := l.outcomes[f.name]; told || f.late || !f.done {
		return true
	}
	rec := w.remote.head.record(f.key)
	if rec == nil {
		return false
	}
	for _, h := range rec.History {
		if h.ID == f.run {
			over := rec.Run.ID != f.run || rec.Run.Attempt > f.attempt.RunAttempt || beyond(rec, f.attempt)
			return h.Attempts > f.attempt.RunAttempt && over
		}
	}
	return false
}

// counters equal what really happened in the attempt that a record shows.
func (l *laws) counters(w *world, rec *repo.Record) {
	if rec.Run == nil || l.loose || l.undefined[rec.Run.ID] {
		return
	}
	job := w.repository.version(rec.Key(), rec.Run.Digest)
	for i := range rec.Roles {
		r := &rec.Roles[i]
		for j := range r.Tasks {
			if t := &r.Tasks[j]; t.FirstAttempt == 0 && len(t.Attempts) > 0 && t.Attempts[0].Attempt == 0 {
				l.retries(job, rec.Run, r, t)
			}
		}
	}
}

func (l *laws) retries(job *repo.Job, run *repo.RunRecord, r *repo.RoleRecord, t *repo.TaskRecord) {
	total, accountable := int32(0), int32(0)
	for k := range t.Attempts[:len(t.Attempts)-1] {
		a := &t.Attempts[k]
		if a.Outcome == nil || a.Result == repo.Stopped {
			continue
		}
		total++
		if !a.Free {
			accountable++
		}
	}
	if t.Retries.Total != total {
		l.breaks("%s of run %s: %d retries are counted, %d happened", t.Name, run.ID, t.Retries.Total, total)
	}
	if job == nil {
		return
	}
	role := job.Role(r.Name)
	if role != nil && role.Retry.Mode == repo.ByFault && t.Retries.Accountable != accountable {
		l.breaks("%s of run %s: %d retries used the budget, %d should", t.Name, run.ID, t.Retries.Accountable, accountable)
	}
}
