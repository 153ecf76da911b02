package runner

import (
	"cmp"
	"fmt"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// ReasonGangReleased is the reason of an attempt that was given up because
// only some of its gang found a place.
const ReasonGangReleased = "GangReleased"

// gangPatience is how long some pods of a gang may hold their places while
// others have none. A cluster that grows by itself has nodes by then.
const gangPatience = 10 * time.Minute

// gang is what is known of the pods of the present attempt's gang.
type gang struct {
	repo.Gang
	tasks   map[repo.Task]bool // that have had a pod in it
	waiting int                // pods without a place that are to start with the others
	placed  int                // pods that have one
	since   time.Time          // when the first of those got it
	why     string             // what one of the others waits for
}

// lacks is how many pods the gang is short of before it has started.
func (g *gang) lacks() int { return g.waiting + max(0, int(g.Size)-len(g.tasks)) }

// members are the pods of the present attempt that are of a gang.
func (d *decision) members(f func(p *Pod)) {
	for i := range d.in.Pods {
		p := &d.in.Pods[i]
		if p.Gang != nil && p.Run == d.rec.Run.ID && p.Attempt.RunAttempt == d.rec.Run.Attempt {
			f(p)
		}
	}
}

// presentGang is the gang of which pods are there now, nil if there is none:
// the pods themselves say which it is.
func (d *decision) presentGang() *gang {
	var g *gang
	goesOn := func(p *Pod) bool { return !p.Ended() && p.DeletedAt.IsZero() }
	d.members(func(p *Pod) {
		if goesOn(p) && (g == nil || g.Late && !p.Gang.Late) {
			g = &gang{Gang: *p.Gang, tasks: map[repo.Task]bool{}}
		}
	})
	if g == nil {
		return nil
	}
	d.members(func(p *Pod) {
		if p.Gang.Name != g.Name {
			return
		}
		g.tasks[p.Attempt.Task] = true
		switch {
		case !goesOn(p):
		case p.Node != "":
			g.placed++
			if at := p.placedAt(); g.since.IsZero() || at.Before(g.since) {
				g.since = at
			}
		case !p.Gang.Late:
			g.waiting, g.why = g.waiting+1, cmp.Or(g.why, p.Waiting)
		}
	})
	return g
}

func (p *Pod) placedAt() time.Time {
	if p.PlacedAt.IsZero() {
		return p.CreatedAt
	}
	return p.PlacedAt
}

// gangs says of each pod that is to be created with which others it starts, nil
// for none. A gang is joined as long as it waits for pods; then its retries are
// late, and other tasks start by themselves.
func (d *decision) gangs() func(repo.TaskAttempt) *repo.Gang {
	if !d.def.Job.Gang {
		return func(repo.TaskAttempt) *repo.Gang { return nil }
	}
	present := d.presentGang()
	if present == nil {
		fresh := d.newGang()
		return func(a repo.TaskAttempt) *repo.Gang { return d.ofGang(a, fresh) }
	}
	joins, late := present.Gang, present.Gang
	joins.Late, late.Late = false, true
	return func(a repo.TaskAttempt) *repo.Gang {
		switch known := present.tasks[a.Task]; {
		case len(present.tasks) < int(present.Size), known && present.waiting > 0:
			return d.ofGang(a, joins)
		case known:
			return d.ofGang(a, late)
		}
		return nil
	}
}

func (d *decision) ofGang(a repo.TaskAttempt, g repo.Gang) *repo.Gang {
	if role := d.def.Job.Role(a.Role); role == nil || !role.InGang() {
		return nil
	}
	return &g
}

// newGang is the one that the tasks form that are to go on now. Its number is
// how many task attempts were over before: no earlier gang has the same.
func (d *decision) newGang() repo.Gang {
	size, before := int32(0), int32(0)
	for i := range d.rec.Roles {
		r := &d.rec.Roles[i]
		role := d.def.Job.Role(r.Name)
		var goOn, running int32
		for j := range r.Tasks {
			t := &r.Tasks[j]
			before += nextAttempt(t)
			if live(t) != nil {
				running++
			}
			if t.Index < r.Replicas && !final(t) {
				goOn++
			}
		}
		before -= running
		switch {
		case role == nil || !role.InGang():
			continue
		case d.drains(role):
			goOn = min(goOn, running)
		case role.Parallelism > 0:
			goOn = min(goOn, role.Parallelism)
		}
		size += goOn
	}
	return repo.Gang{Name: d.def.GangName(d.rec.Run.Attempt, before), Size: max(1, size)}
}

// releaseGang gives up an attempt of which some pods have held their places for
// too long while others have none: two such runs could wait for each other for
// ever. While none has a place nothing is held, and the gang may wait.
func (d *decision) releaseGang() bool {
	if !d.def.Job.Gang || d.rec.Run.Ending != nil {
		return false
	}
	g := d.presentGang()
	if g == nil || g.placed == 0 || g.lacks() == 0 {
		return false
	}
	limit := gangPatience
	if own := d.def.Job.StartDeadline; own > 0 {
		limit = min(limit, own)
	}
	if !d.due(g.since.Add(limit)) && !d.lateToStart() {
		return false
	}
	message := fmt.Sprintf("%d of %d pods had a place, the others had none in time; all are released and start again later", g.placed, g.Size)
	if g.why != "" {
		message += ": " + g.why
	}
	d.rec.Run.Ending = &repo.Outcome{
		Result: repo.Failed, Class: repo.Transient, Free: true, Reason: ReasonGangReleased, Message: cut(message),
	}
	return true
}

// lateToStart says whether a task has waited as long as the job lets it.
func (d *decision) lateToStart() (late bool) {
	limit := d.def.Job.StartDeadline
	if limit <= 0 {
		return false
	}
	d.tasks(func(_ *repo.RoleRecord, t *repo.TaskRecord) {
		if a := live(t); a != nil && a.StartedAt == nil && a.Stop == "" && d.due(a.CreatedAt.Add(limit)) {
			late = true
		}
	})
	return late
}

// released says whether an attempt ended because its gang was given up. Such an
// attempt is tried again whatever the job's budget: nothing of it has run.
func released(o *repo.Outcome) bool { return o.Reason == ReasonGangReleased && o.Free && o.Task == "" }

// releaseWait is how long a gang that was given up leaves room to others: a
// span of each run's own, which grows with the attempts given up in a row.
func releaseWait(run string, attempt int32, before []repo.AttemptRecord) time.Duration {
	n := 0
	for i := len(before) - 1; i >= 0 && released(&before[i].Outcome); i-- {
		n++
	}
	span := 5 * time.Minute << min(n, 3)
	return 30*time.Second + time.Duration(fraction(run, ReasonGangReleased, fmt.Sprint(attempt))*float64(span))
}
