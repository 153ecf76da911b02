package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/repo-layout/crash"
)

// Reconcile looks at one job once: reads its pods, decides, and performs what
// was decided. Two calls for one job must not overlap.
func (l *Loop) Reconcile(ctx context.Context, now time.Time, key repo.Key) {
	l.mu.Lock()
	e := l.jobs[key]
	ready := l.loaded && l.defined && e != nil
	if ready && e.damaged != "" {
		e.settled, ready = true, false
		poke(l.progress)
	}
	l.mu.Unlock()
	if !ready {
		return
	}
	err := l.pass(ctx, now, e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.recovered(now, e)
		return
	}
	var overtaken *OvertakenError
	if errors.As(err, &overtaken) {
		l.overtaken = err
		return
	}
	if e.failures++; e.failures == 1 {
		l.failing++
	}
	if ctx.Err() == nil {
		l.complain(now, e, err)
	}
	wait := Backoff(e.failures)
	if l.failing > many && e.failures > 5 {
		wait = time.Minute // one of them is soon to find out for all
	}
	l.queue.add(key, now.Add(wait))
}

// many jobs that wait for the same are looked at less often, each.
const many = 100

// recovered notes a pass without an error. What others waited for may be over
// too: they are looked at now. l.mu is held.
func (l *Loop) recovered(now time.Time, e *entry) {
	if e.failures == 0 {
		return
	}
	l.failing--
	e.failures, e.cause = 0, ""
	l.again(now, "")
}

// again looks at once at the jobs that wait for a cause that is gone, or for any:
// their own next tries may be a minute away. l.mu is held.
func (l *Loop) again(now time.Time, cause string) {
	for key, e := range l.jobs {
		if e.failures > 0 && (cause == "" || e.cause == cause) {
			l.queue.add(key, now)
		}
	}
}

// complaints of one cause are logged so often at most.
const complaints = time.Minute

// complain logs why a job waits: once for each cause in a row, and of many jobs
// that wait for the same, as when the backend is away, one now and then. l.mu is held.
func (l *Loop) complain(now time.Time, e *entry, err error) {
	cause := rootOf(err).Error()
	if e.failures > 1 && e.cause == cause {
		return
	}
	e.cause = cause
	maps.DeleteFunc(l.said, func(_ string, at time.Time) bool { return now.Sub(at) >= complaints })
	if _, lately := l.said[cause]; lately {
		return
	}
	l.said[cause] = now
	line := l.opts.Log.Warn()
	if ours := (*mistake)(nil); errors.As(err, &ours) {
		line = l.opts.Log.Error().Bytes("stack", ours.stack)
	}
	line.Err(err).Stringer("job", e.key).Msg("job waits, and is tried again")
}

// rootOf is what is left of an error without what was said of the request that
// met it.
func rootOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// resync is how long a job with pods is left alone at most: a backend that
// forgot to tell of a change delays it by no more than that.
const resync = 5 * time.Minute

// longestWait is how long anything that met errors in a row is left alone: ten
// seconds after a fault has ended all is to work again.
const longestWait = 8 * time.Second

// Backoff is how long to wait after that many tries in a row met an error.
func Backoff(failures int) time.Duration {
	return min(longestWait, 250*time.Millisecond<<min(failures, 10))
}

func (l *Loop) pass(ctx context.Context, now time.Time, e *entry) error {
	began := l.opts.Clock()
	pods, err := l.pods(ctx, e)
	if err == nil {
		err = l.introduce(ctx, e, pods)
	}
	now = now.Add(l.opts.Clock().Sub(began)) // what was seen may be that much younger than the pass
	l.mu.Lock()
	if err != nil {
		// What was decided before may not hold any more. What we may not look at is
		// somebody else's to bring to its end.
		if e.settled = apierrors.IsForbidden(err); e.settled {
			poke(l.progress)
		}
		l.mu.Unlock()
		return err
	}
	in := Input{
		Now: now, Environment: l.opts.Environment, Revision: l.revision, Key: e.key, Job: e.job, Invalid: e.invalid, Withheld: e.withheld,
		Record: e.record, Published: e.published, Runs: e.runs, Pods: pods, Refused: e.refused, Troubles: e.troubles, Asked: e.unseen(),
	}
	l.mu.Unlock()
	if in.Job != nil {
		in.Forbidden = l.forbidden(in.Job)
	}
	out, err := tryDecide(in)
	if err != nil {
		l.mu.Lock()
		e.settled = false
		l.mu.Unlock()
		return err
	}
	l.announce(ctx, e.key.Namespace, l.keep(e, in, out))
	crash.At(crash.Decide, crash.After)
	if !out.At.IsZero() {
		l.queue.add(e.key, out.At)
	}
	if !out.Settled || len(pods) > 0 {
		l.queue.add(e.key, now.Add(resync))
	}
	return l.perform(ctx, now, e, out)
}

// mistake is one of ours, met while a job was decided on.
type mistake struct {
	what  any
	stack []byte
}

func (m *mistake) Error() string {
	return fmt.Sprintf("nothing can be decided on this job, by a mistake of Trainyard's own: %v", m.what)
}

// tryDecide is Decide; a panic in it is an error: what is wrong with one job must
// not bring down what looks after all of them.
func tryDecide(in Input) (out Output, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = &mistake{what, debug.Stack()}
		}
	}()
	return Decide(in), nil
}

// pods reads the job's pods, with the end of the log of those that failed, or
// go with their log, and whose outcome is not in the record yet.
func (l *Loop) pods(ctx context.Context, e *entry) ([]Pod, error) {
	all, err := l.backend.Pods(ctx, e.key)
	if apierrors.IsForbidden(err) && !goesOn(&e.record) {
		return nil, nil // there is none to look for
	}
	if err == nil {
		all, err = l.found(ctx, e, all)
	}
	if err != nil {
		return nil, err
	}
	pods := make([]Pod, 0, len(all))
	mute := map[string]bool{} // nodes that do not answer, of which many pods may have failed
	for i := range all {
		p, ok := podFacts(&all[i])
		if !ok {
			continue
		}
		if (p.State == PodFailed || p.LosesLog()) && p.Held && !hasEnded(&e.record, &p) && !mute[p.Node] {
			if p.Tail, err = l.tail(ctx, e, all[i].Namespace, p.Name); isMute(err) {
				mute[p.Node] = true
			}
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// goesOn says whether a record knows of a run, or a task, that has not ended.
func goesOn(rec *repo.Record) bool {
	if rec.Run == nil {
		return false
	}
	return rec.Run.FinishedAt == nil || slices.ContainsFunc(rec.Roles, func(r repo.RoleRecord) bool {
		return slices.ContainsFunc(r.Tasks, func(t repo.TaskRecord) bool { return live(&t) != nil })
	})
}

// hasEnded says whether a pod's outcome is in the record already, so that
// nobody asks for its log any more.
func hasEnded(rec *repo.Record, p *Pod) bool {
	if rec.Run == nil || rec.Run.ID != p.Run {
		return finishedIn(rec, p.Run) != nil
	}
	if p.Attempt.RunAttempt != rec.Run.Attempt {
		return p.Attempt.RunAttempt < rec.Run.Attempt
	}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			if r.Name == p.Attempt.Role && t.Index == p.Attempt.Index {
				return hasOutcome(t.Attempts, p.Attempt.Attempt)
			}
		}
	}
	return false
}

// tailBytes of a log are read for failure rules and for the record.
const tailBytes = 64 << 10

// tail reads the end of a pod's log once, and keeps it until it is pushed. A
// log that cannot be read is no reason to keep the outcome back.
func (l *Loop) tail(ctx context.Context, e *entry, namespace, name string) (string, error) {
	l.mu.Lock()
	text, ok := e.tails[name]
	l.mu.Unlock()
	if ok {
		return text, nil
	}
	r, err := l.backend.Log(ctx, namespace, name, "", tailBytes, false)
	if err == nil {
		var b []byte
		b, err = io.ReadAll(io.LimitReader(r, tailBytes))
		text = string(b)
		err = errors.Join(err, r.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		e.tails[name] = text
		return text, nil
	}
	if denied := apierrors.IsForbidden(err); !denied || !l.logless {
		l.logless = l.logless || denied // which it is for all pods: said once
		l.opts.Log.Warn().Err(err).Str("pod", name).Msg("the end of the log cannot be read")
	}
	return "", err
}

// isMute says whether an error means that the node of a pod does not answer.
func isMute(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || statusCode(err) >= http.StatusInternalServerError
}

// keep takes over what Decide made of the record, and logs runs that began or
// ended. It returns the task attempts that ended.
func (l *Loop) keep(e *entry, in Input, out Output) []ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer e.tidy()
	e.keepLate(out)
	e.settled = out.Settled
	defer l.look(in.Now, e)
	if reflect.DeepEqual(in.Record, out.Record) {
		poke(l.progress)
		return nil
	}
	l.report(&in.Record, &out.Record)
	e.record = out.Record
	if e.published != nil {
		e.record.Fold(e.published.Runs())
	}
	e.version++
	l.changed()
	return newEndings(&in.Record, &out.Record)
}

// keepLate keeps the tails that the record now has no room for any more: the
// next attempt or run came before a push did. Their pods wait for the run's end
// alone, and nobody could read them again.
func (e *entry) keepLate(out Output) {
	if len(e.tails) == 0 {
		return
	}
	paths := map[string]string{}
	maps.Copy(paths, out.Logs)
	e.attempts(func(a *repo.TaskAttemptRecord) {
		if a.Log != "" {
			paths[a.Pod] = a.Log
		}
	})
	after := entry{record: out.Record}
	after.attempts(func(a *repo.TaskAttemptRecord) { delete(paths, a.Pod) })
	for _, pod := range slices.Sorted(maps.Keys(paths)) {
		if text := e.tails[pod]; text != "" {
			e.late = append(e.late, repo.Tail{Path: paths[pod], Text: text})
		}
	}
}

// tidy drops what was noted of pods that the record does not ask for any more.
func (e *entry) tidy() {
	if len(e.tails)+len(e.refused)+len(e.troubles)+len(e.asked) == 0 {
		return
	}
	named, told := map[string]bool{}, map[string]bool{}
	e.attempts(func(a *repo.TaskAttemptRecord) {
		named[a.Pod] = true
		told[a.Pod] = a.Outcome == nil || a.Log != ""
	})
	maps.DeleteFunc(e.tails, func(pod, _ string) bool { return !told[pod] })
	maps.DeleteFunc(e.refused, func(pod, _ string) bool { return !named[pod] })
	maps.DeleteFunc(e.troubles, func(pod, _ string) bool { return !named[pod] })
	maps.DeleteFunc(e.asked, func(pod string, _ time.Time) bool { return !named[pod] })
}

// attempts calls f for every task attempt in the record.
func (e *entry) attempts(f func(*repo.TaskAttemptRecord)) {
	each := func(tasks []repo.TaskRecord) {
		for i := range tasks {
			for j := range tasks[i].Attempts {
				f(&tasks[i].Attempts[j])
			}
		}
	}
	for i := range e.record.Roles {
		each(e.record.Roles[i].Tasks)
	}
	for i := range e.record.Attempts {
		each(e.record.Attempts[i].Tasks)
	}
}

// report logs a line when a run began or ended.
func (l *Loop) report(old, now *repo.Record) {
	run := now.Run
	if run == nil {
		return
	}
	began := old.Run == nil || old.Run.ID != run.ID
	ended := run.FinishedAt != nil && (began || old.Run.FinishedAt == nil)
	if began {
		l.opts.Log.Info().Stringer("job", now.Key()).Str("run", run.ID).Str("trigger", string(run.Trigger.Kind)).Msg("run started")
	}
	if ended {
		l.opts.Log.Info().Stringer("job", now.Key()).Str("run", run.ID).Str("result", string(run.Outcome.Result)).
			Str("reason", run.Outcome.Reason).Int32("attempts", run.Attempt+1).Msg("run ended")
	}
	if l.opts.Hooks.Ended != nil {
		for _, end := range newEndings(old, now) {
			l.opts.Hooks.Ended(*end.attempt.Outcome)
		}
	}
}

// perform carries out actions: creations side by side, after the rest in order.
// All are tried; the first error is returned.
func (l *Loop) perform(ctx context.Context, now time.Time, e *entry, out Output) (first error) {
	var creations []Action
	for _, a := range out.Actions {
		if a.Kind == Create {
			creations = append(creations, a)
		} else if err := l.do(ctx, now, e, a); err != nil && first == nil {
			first = err
		}
	}
	if creations = l.unanswered(now, e, creations); len(creations) == 0 {
		return first
	}
	if err := l.createAll(ctx, now, e, out.Run, creations); err != nil && first == nil {
		first = err
	}
	return first
}

// do performs an action that is no creation.
func (l *Loop) do(ctx context.Context, now time.Time, e *entry, a Action) error {
	switch a.Kind {
	case Delete:
		var grace *int64
		if a.Force {
			grace = new(int64)
		}
		err := l.backend.Delete(ctx, e.key.Namespace, a.Pod, a.UID, grace)
		if apierrors.IsConflict(err) { // the pod is not what Decide saw: look again
			l.queue.add(e.key, now.Add(Backoff(0)))
			return nil
		}
		return err
	case Release:
		return l.backend.Release(ctx, e.key.Namespace, a.Pod, a.UID)
	case Forget:
		if err := l.backend.Forget(ctx, a.Run, e.key.Namespace); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		e.runs = slices.DeleteFunc(slices.Clone(e.runs), func(r repo.Run) bool { return r.ID == a.Run })
		e.prepared, e.refused, e.troubles = map[string]repo.Addresses{}, map[string]string{}, map[string]string{}
	}
	return nil
}
