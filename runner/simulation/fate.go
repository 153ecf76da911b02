package simulation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// fate is what really happened to a task attempt, whatever anybody wrote about it.
type fate struct {
	name     string
	key      repo.Key
	run      string
	attempt  repo.TaskAttempt
	done     bool
	code     int32 // -1 when no container told one
	asked    bool  // it ended after its deletion was asked for
	byUs     bool  // a daemon asked
	byOthers bool  // somebody else did
	taken    bool  // by the cluster: preempted, evicted, its node lost
	endedAt  time.Time
	unclear  bool // it was deleted so soon after its end that nobody can tell what came first
	cutOff   bool // it lost its sandbox before it had started, and never starts
	late     bool // it was asked for by a request that nobody waited for any more
	seen     bool // a daemon saw that it had ended when nobody had asked it to yet
	leaving  bool // it was asked to end, before or after it had
}

func (f *fate) end(code int32, asked bool) { f.done, f.code, f.asked = true, code, asked }

// live lets a pod go on: it gets its place, runs, or ends.
func (w *world) live() {
	pods := w.cluster.pods
	if len(pods) == 0 {
		w.work()
		return
	}
	p := pods[w.below(len(pods))]
	switch {
	case p.ended():
		w.work()
	case p.node > 0 && w.cluster.nodes[p.node-1].silent:
		w.work()
	case p.deleting():
		if !p.stubborn {
			w.end(p, oneOf[int32](&w.choices, exitAsked, 0, exitKilled))
		} else if w.now.After(p.api.DeletionTimestamp.Time) {
			w.end(p, exitKilled)
		}
	case p.node == 0:
		if n := w.below(nodes + 1); n > 0 && !w.cluster.nodes[n-1].silent {
			w.place(p, n)
		}
	case p.cutOff:
		w.pass()
	case !p.running():
		w.start(p)
	default:
		w.end(p, oneOf[int32](&w.choices, 0, 0, 0, exitUnknown, exitUnknown, exitPermanent, exitFree, exitConflict))
	}
}

// disturb lets something go wrong, or be put right.
func (w *world) disturb() {
	switch w.below(16) {
	case 0, 1:
		w.edit()
	case 2, 3:
		w.killOrStart()
	case 4:
		w.api = oneOf(&w.choices, fine, rough, away)
		w.say("the way to the API server: %d", w.api)
	case 5:
		w.remote.weather = oneOf(&w.choices, fine, rough, away)
		w.say("the way to the Git server: %d", w.remote.weather)
	case 6:
		w.remote.refuses = w.chance(30)
		w.say("the Git server refuses pushes: %v", w.remote.refuses)
	case 7:
		w.restore()
	case 8:
		w.jump()
	case 9:
		if d := w.daemons[w.below(len(w.daemons))]; d.alive && d.backend.uids != nil {
			w.say("daemon %s lists its pods anew", d.name)
			d.backend.relist()
		}
	case 10:
		w.arrive()
	case 11:
		n := &w.cluster.nodes[w.below(nodes)]
		n.silent = !n.silent
		w.say("nodes are silent: %v", w.cluster.nodes)
	case 12:
		w.cluster.quota = w.chance(30)
		w.say("the quota is used up: %v", w.cluster.quota)
	default:
		w.harm()
	}
}

// killOrStart ends a daemon, or starts one that is not there. Where a leader is
// elected, the other one takes the lead.
func (w *world) killOrStart() {
	d := w.daemons[w.below(len(w.daemons))]
	switch {
	case !d.alive && w.elect && w.leader() != nil:
		w.say("the lead passes from %s to %s", w.leader().name, d.name)
		w.leader().kill()
		d.begin()
	case !d.alive:
		d.begin()
	default:
		w.say("daemon %s is killed", d.name)
		d.kill()
		if w.chance(60) {
			d.begin()
		}
	}
}

// leader is the first daemon that runs, nil for none.
func (w *world) leader() *daemon {
	for _, d := range w.daemons {
		if d.alive {
			return d
		}
	}
	return nil
}

// arrive lets a delayed request arrive.
func (w *world) arrive() {
	if len(w.late) == 0 {
		w.work()
		return
	}
	i := w.below(len(w.late))
	e := w.late[i]
	w.late = append(w.late[:i:i], w.late[i+1:]...)
	w.deliverLate(e)
}

// jump moves a daemon's clock.
func (w *world) jump() {
	d := w.daemons[w.below(len(w.daemons))]
	w.laws.jumped = true
	d.skew = oneOf(&w.choices, 0, time.Second, -time.Second, time.Minute, -time.Minute, time.Hour, -time.Hour)
	w.say("the clock of daemon %s is off by %s", d.name, d.skew)
	d.wake()
}

// restore puts an older state of the status branch back, while a daemon is there
// that knows better.
func (w *world) restore() {
	d := w.daemons[0]
	if len(w.daemons) > 1 || !d.alive || !d.loaded || w.remote.head == nil || w.remote.head.parent == nil || w.remote.lost != nil || d.ledger.seen != w.remote.head {
		w.work()
		return
	}
	w.remote.lost, w.remote.restored = w.remote.head, true
	w.late = slices.DeleteFunc(w.late, func(e *effect) bool { return e.name == "push" }) // they would land on a state from before
	for range 1 + w.below(3) {
		if w.remote.head.parent != nil {
			w.remote.head = w.remote.head.parent
		}
	}
	w.say("the status branch is put back to commit %d", w.remote.head.number)
}

// harm lets something happen to a pod that is nobody's wish.
func (w *world) harm() {
	pods := w.cluster.pods
	if len(pods) == 0 {
		w.work()
		return
	}
	p := pods[w.below(len(pods))]
	switch kind := w.below(5); {
	case p.ended():
		w.work()
	case kind == 0:
		w.say("pod %s is deleted by hand", p.name)
		p.byOthers = true
		w.askToEnd(p)
	case kind == 1 && p.running():
		w.say("pod %s is evicted", p.name)
		w.disrupt(p, "EvictionByEvictionAPI")
		w.end(p, exitKilled)
	case kind == 1 && p.node > 0 && !p.deleting() && !outlives(p.api):
		w.say("pod %s loses its sandbox before it has started", p.name)
		w.cutOff(p)
	case kind == 2 && p.node > 0:
		w.say("pod %s is preempted", p.name)
		w.disrupt(p, "PreemptionByScheduler")
		w.askToEnd(p)
	case kind == 3 && p.node > 0 && w.cluster.nodes[p.node-1].silent:
		w.say("pod %s is taken from its silent node", p.name)
		w.disrupt(p, "DeletionByTaintManager")
		w.askToEnd(p)
	case kind == 4 && w.chance(10):
		// Before the branch has heard of a run, nobody else knows of it.
		if r, rec := w.cluster.run(p.run), w.remote.head.record(p.key); r != nil && rec != nil && rec.Run != nil && rec.Run.ID == p.run {
			w.say("what was prepared for run %s is deleted by hand", p.run)
			w.laws.missing[p.run] = lost{p.key, rec.Run.Digest}
			w.laws.redefined(w)
			w.forget(r)
		}
	default:
		if w.live(); p.running() {
			p.api = withOutput(p.api, w.now)
		}
	}
}

// withOutput is a pod that has written something.
func withOutput(api *corev1.Pod, at time.Time) *corev1.Pod {
	out := *api
	out.Annotations = map[string]string{}
	for k, v := range api.Annotations {
		out.Annotations[k] = v
	}
	out.Annotations[repo.AnnotationOutput] = at.UTC().Format(time.RFC3339Nano)
	return &out
}
