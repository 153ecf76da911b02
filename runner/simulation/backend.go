package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// weather is how requests fare on their way.
type weather int

const (
	fine  weather = iota
	rough         // requests and answers get lost
	away          // nothing gets through
)

// effect is a request on its way.
type effect struct {
	name  string
	by    string // a daemon
	write bool
	task  string // that it creates a pod of
	do    func() error
}

var errLost = errors.New("connection reset by peer")

// backend is the API server as one daemon sees it. What it has of pods is what
// it was told, in order, and late.
type backend struct {
	*daemon
	view  []seen
	inbox []seen
	uids  map[string]int // of what was prepared, by run
}

// seen is a pod as the server showed it; api is nil when it has gone.
type seen struct {
	name    string
	api     *corev1.Pod
	version int
}

func uid(n int) types.UID { return types.UID("u" + strconv.Itoa(n)) }

// call makes a request: the turn goes to others first, and then it fares as the
// weather has it.
func (b *backend) call(name string, write bool, weather weather, do func() error) error {
	return b.send(&effect{name: name, write: write, do: do}, weather)
}

func (b *backend) send(e *effect, weather weather) error {
	t := b.turn
	t.effect, e.by = e, b.name
	t.pause()
	t.effect = nil
	fate := 0
	switch weather {
	case rough:
		fate = b.below(8)
	case away:
		fate = 1
	}
	switch fate {
	case 1, 2:
		b.trace(e, "gets lost")
		return errLost
	case 3, 4:
		if !e.write {
			return errLost
		}
		b.trace(e, "is done, its answer gets lost:")
		_ = b.perform(e)
		return errLost
	case 5:
		if !e.write {
			return errLost
		}
		b.trace(e, "gets delayed")
		b.late = append(b.late, e)
		return errLost
	}
	return b.perform(e)
}

func (b *backend) trace(e *effect, what string) {
	if b.tracing() {
		b.say("%s: %s %s", b.name, e.name, what)
	}
}

// perform does what a request asks for.
func (w *world) perform(e *effect) error {
	if e.task != "" {
		w.overtake(e)
	}
	err := e.do()
	if w.tracing() {
		if err != nil {
			w.say("%s: %s: %v", e.by, e.name, err)
		} else {
			w.say("%s: %s", e.by, e.name)
		}
	}
	return err
}

// overtake settles what becomes of delayed creations of a task when the next one
// arrives: no request is older than that.
func (w *world) overtake(e *effect) {
	for i := 0; i < len(w.late); i++ {
		l := w.late[i]
		if l.task != e.task || l == e {
			continue
		}
		w.late = append(w.late[:i:i], w.late[i+1:]...)
		i--
		if l.name == e.name && w.chance(50) {
			w.deliverLate(l)
		}
	}
}

// settleLate settles what becomes of delayed creations: no request is older than
// the start of a daemon.
func (w *world) settleLate() {
	late := w.late
	w.late = nil
	for _, e := range late {
		switch {
		case e.task == "":
			w.late = append(w.late, e)
		case w.chance(50):
			w.deliverLate(e)
		}
	}
}

// deliverLate lets a request arrive that nobody waits for any more. One that
// creates a pod is not that old that its pod has come and gone meanwhile.
func (w *world) deliverLate(e *effect) {
	if e.task != "" && w.laws.fates[strings.TrimPrefix(e.name, "create ")] != nil {
		return
	}
	was := w.arriving
	w.arriving = true
	w.say("late arrives: %s", e.name)
	_ = w.perform(e)
	w.arriving = was
}

// tell lets every daemon know of a pod's change, sooner or later.
func (w *world) tell(name string, p *pod) {
	s := seen{name: name}
	if p != nil {
		s.api, s.version = p.api, p.version
	}
	for _, d := range w.daemons {
		if d.alive && d.backend.uids != nil {
			d.backend.inbox = append(d.backend.inbox, s)
			if w.prompt {
				d.backend.deliver(1)
			}
		}
	}
}

// deliver takes news from the inbox.
func (b *backend) deliver(n int) {
	for range min(n, len(b.inbox)) {
		s := b.inbox[0]
		b.inbox = b.inbox[1:]
		b.take(s)
	}
}

func (b *backend) take(s seen) {
	i := b.index(s.name)
	key := repo.Key{}
	switch {
	case i >= 0:
		key = jobOf(b.view[i].api)
	case s.api != nil:
		key = jobOf(s.api)
	default:
		return
	}
	switch {
	case s.api == nil:
		b.view = append(b.view[:i:i], b.view[i+1:]...)
	case i >= 0:
		b.view[i] = s
	default:
		b.view = append(b.view, s)
	}
	if b.loaded {
		b.loop.Changed(key)
		b.wake()
	}
}

// relist drops what has not been told yet and looks at all pods.
func (b *backend) relist() {
	b.inbox = nil
	for _, s := range append([]seen(nil), b.view...) {
		if b.cluster.find(s.name) == nil {
			b.take(seen{name: s.name})
		}
	}
	for _, p := range b.cluster.pods {
		if i := b.index(p.name); i < 0 || b.view[i].version != p.version {
			b.take(seen{name: p.name, api: p.api, version: p.version})
		}
	}
}

func (b *backend) index(name string) int {
	for i := range b.view {
		if b.view[i].name == name {
			return i
		}
	}
	return -1
}

func jobOf(api *corev1.Pod) repo.Key {
	return repo.Key{Namespace: api.Namespace, Name: api.Labels[repo.LabelJob]}
}

// Prepare implements runner.Backend.
func (b *backend) Prepare(_ context.Context, run *repo.Run, attempt int32) (repo.Addresses, error) {
	term := b.ledger.term
	err := b.call("prepare "+run.ID, true, b.api, func() error {
		b.laws.overlap(b.world, term)
		there := b.cluster.run(run.ID)
		if there == nil {
			b.cluster.uids++
			there = &prepared{uid: b.cluster.uids, late: b.arriving}
			b.cluster.runs = append(b.cluster.runs, there)
		}
		there.run = *run
		delete(b.laws.missing, run.ID)
		b.uids[run.ID] = there.uid
		return nil
	})
	return func(repo.Task) repo.Address { return repo.Address{} }, err
}

// Runs implements runner.Backend. With the first of them the pods are listed.
func (b *backend) Runs(context.Context) (out []repo.Run, err error) {
	err = b.call("list", false, b.api, func() error {
		b.settleLate()
		out = nil
		first := b.uids == nil
		b.uids = map[string]int{}
		for _, r := range b.cluster.runs {
			out = append(out, r.run)
			b.uids[r.run.ID] = r.uid
		}
		if !first {
			return nil
		}
		b.view, b.inbox = nil, nil
		for _, p := range b.cluster.pods {
			b.view = append(b.view, seen{p.name, p.api, p.version})
		}
		return nil
	})
	return out, err
}

// Jobs implements runner.Backend.
func (b *backend) Jobs(context.Context) (out []repo.Key, _ error) {
	for i := range b.view {
		out = append(out, jobOf(b.view[i].api))
	}
	for _, r := range b.cluster.runs {
		out = append(out, r.run.Job.Key)
	}
	return out, nil
}

// Pods implements runner.Backend.
func (b *backend) Pods(_ context.Context, key repo.Key) ([]corev1.Pod, error) {
	if b.api == away && b.chance(50) {
		return nil, errLost
	}
	out := make([]corev1.Pod, 0, len(b.view))
	for i := range b.view {
		if jobOf(b.view[i].api) == key {
			b.laws.shown(b.view[i].api)
			out = append(out, *b.view[i].api)
		}
	}
	return out, nil
}

// Find implements runner.Finder.
func (b *backend) Find(_ context.Context, _, name string) (api *corev1.Pod, err error) {
	err = b.call("get "+name, false, b.api, func() error {
		b.overtake(&effect{name: "create " + name, task: taskOf(name)})
		p := b.cluster.find(name)
		if p == nil {
			return apierrors.NewNotFound(pods, name)
		}
		api = p.api
		b.laws.shown(api)
		return nil
	})
	return api, err
}

// taskOf is a pod's name without the numbers of its attempts.
func taskOf(pod string) string {
	for range 2 {
		pod = pod[:strings.LastIndexByte(pod, '-')]
	}
	return pod
}

var pods = corev1.Resource("pods")

// Create implements runner.Backend.
func (b *backend) Create(_ context.Context, api *corev1.Pod) error {
	b.laws.wanted(b.daemon, api)
	run := api.Labels[repo.LabelRun]
	owner := b.uids[run]
	return b.send(&effect{name: "create " + api.Name, write: true, task: taskOf(api.Name), do: func() error {
		r := b.cluster.run(run)
		switch {
		case b.cluster.find(api.Name) != nil:
			return apierrors.NewAlreadyExists(pods, api.Name)
		case r == nil && !b.chance(20), r != nil && r.uid != owner && !b.chance(20): // it is not looked for each time
			return apierrors.NewNotFound(pods, api.Name)
		case b.cluster.quota:
			return apierrors.NewForbidden(pods, api.Name, errors.New("exceeded quota: gpus"))
		}
		b.world.create(api, owner)
		return nil
	}}, b.api)
}

// Delete implements runner.Backend.
func (b *backend) Delete(_ context.Context, _, name, uid string, seconds *int64) error {
	known, force := -1, seconds != nil && *seconds == 0
	if i := b.index(name); i >= 0 && string(b.view[i].api.UID) == uid && len(b.view[i].api.Finalizers) > 0 {
		known = b.view[i].version
	} else if i < 0 && !force {
		if err := b.call("get "+name, false, b.api, func() error {
			if p := b.cluster.find(name); p != nil && p.held() {
				known = p.version
			}
			return nil
		}); err != nil {
			return err
		}
	}
	what := "delete "
	if force {
		what = "give up "
	}
	return b.call(what+name, true, b.api, func() error {
		p := b.cluster.find(name)
		switch {
		case p == nil || string(p.api.UID) != uid:
			return nil
		case force:
			p.byUs = true
			b.giveUp(p)
			return nil
		case p.ended() && p.held() && !p.deleting(), known >= 0 && known != p.version:
			return apierrors.NewConflict(pods, name, errors.New("it has changed"))
		}
		b.laws.kept(b.world, p)
		p.byUs = true
		b.askToEnd(p)
		return nil
	})
}

// Release implements runner.Backend.
func (b *backend) Release(_ context.Context, _, name, uid string) error {
	return b.call("release "+name, true, b.api, func() error {
		if p := b.cluster.find(name); p != nil && string(p.api.UID) == uid {
			b.release(p)
		}
		return nil
	})
}

// Forget implements runner.Backend.
func (b *backend) Forget(_ context.Context, run, _ string) error {
	uid := b.uids[run]
	return b.call("forget "+run, true, b.api, func() error {
		if r := b.cluster.run(run); r != nil && r.uid == uid {
			b.world.forget(r)
		}
		return nil
	})
}

// Watch implements runner.Backend. Nobody calls it: news is delivered by deliver.
func (b *backend) Watch(context.Context, func(repo.Key)) error { return errLost }

// Log implements runner.Backend.
func (b *backend) Log(_ context.Context, _, name, _ string, _ int64, _ bool) (io.ReadCloser, error) {
	err := b.call("log "+name, false, b.api, func() error {
		if p := b.cluster.find(name); p == nil || p.node > 0 && b.cluster.nodes[p.node-1].silent {
			return errLost
		}
		return nil
	})
	if err != nil {
		b.laws.unread(name)
		return nil, err
	}
	return io.NopCloser(strings.NewReader(logOf(name))), nil
}

func logOf(pod string) string { return fmt.Sprintf("the last words of %s", pod) }
