package runner

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
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
		e.failures = 0
		return
	}
	e.failures++
	if ctx.Err() == nil {
		l.opts.Log.Warn().Err(err).Stringer("job", key).Msg("job waits, and is tried again")
	}
	l.queue.add(key, now.Add(passBackoff(e.failures)))
}

// passBackoff is how long to wait after that many passes in a row met an error.
func passBackoff(failures int) time.Duration {
	return min(time.Minute, 250*time.Millisecond<<min(failures, 10))
}

func (l *Loop) pass(ctx context.Context, now time.Time, e *entry) error {
	pods, err := l.pods(ctx, e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	in := Input{
		Now: now, Environment: l.opts.Environment, Revision: l.revision, Key: e.key, Job: e.job, Invalid: e.invalid, Withheld: e.withheld,
		Record: e.record, Published: e.published, Runs: e.runs, Pods: pods, Refused: e.refused, Troubles: e.troubles,
	}
	l.mu.Unlock()
	if in.Job != nil && l.opts.Forbidden != nil {
		in.Forbidden = l.opts.Forbidden(in.Job)
	}
	out := Decide(in)
	l.keep(e, in, out)
	if !out.At.IsZero() {
		l.queue.add(e.key, out.At)
	}
	return l.perform(ctx, now, e, out)
}

// pods reads the job's pods, with the end of the log of those that failed and
// whose outcome is not in the record yet.
func (l *Loop) pods(ctx context.Context, e *entry) ([]Pod, error) {
	all, err := l.backend.Pods(ctx, e.key)
	if err != nil {
		return nil, err
	}
	pods := make([]Pod, 0, len(all))
	for i := range all {
		p, ok := podFacts(&all[i])
		if !ok {
			continue
		}
		if p.State == PodFailed && p.Held && !hasTail(&e.record, p.Name) {
			p.Tail = l.tail(ctx, e, all[i].Namespace, p.Name)
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// hasTail says whether a pod's outcome is in the record already.
func hasTail(rec *repo.Record, pod string) bool {
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			for _, a := range t.Attempts {
				if a.Pod == pod {
					return a.Outcome != nil
				}
			}
		}
	}
	return false
}

// tailBytes of a log are read for failure rules and for the record.
const tailBytes = 64 << 10

// tail reads the end of a pod's log once, and keeps it until it is pushed. A
// log that cannot be read is no reason to keep the outcome back.
func (l *Loop) tail(ctx context.Context, e *entry, namespace, name string) string {
	l.mu.Lock()
	text, ok := e.tails[name]
	l.mu.Unlock()
	if ok {
		return text
	}
	r, err := l.backend.Log(ctx, namespace, name, "", tailBytes, false)
	if err == nil {
		var b []byte
		b, err = io.ReadAll(io.LimitReader(r, tailBytes))
		text = string(b)
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		l.opts.Log.Warn().Err(err).Str("pod", name).Msg("the end of the log cannot be read")
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.tails[name] = text
	return text
}

// keep takes over what Decide made of the record, and logs runs that began or ended.
func (l *Loop) keep(e *entry, in Input, out Output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.settled = out.Settled
	if reflect.DeepEqual(in.Record, out.Record) {
		poke(l.progress)
		return
	}
	l.report(&in.Record, &out.Record)
	e.record = out.Record
	e.version++
	l.changed()
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
		for _, o := range newOutcomes(old, now) {
			l.opts.Hooks.Ended(o)
		}
	}
}

// newOutcomes are those of task attempts that ended between two records.
func newOutcomes(old, now *repo.Record) []repo.Outcome {
	known := map[string]bool{}
	collect := func(r *repo.Record, f func(pod string, o repo.Outcome)) {
		for _, role := range r.Roles {
			for _, t := range role.Tasks {
				for _, a := range t.Attempts {
					if a.Outcome != nil {
						f(a.Pod, *a.Outcome)
					}
				}
			}
		}
	}
	collect(old, func(pod string, _ repo.Outcome) { known[pod] = true })
	var out []repo.Outcome
	collect(now, func(pod string, o repo.Outcome) {
		if !known[pod] {
			out = append(out, o)
		}
	})
	return out
}

// perform carries out actions: creations side by side, the rest in order. All
// are tried; the first error is returned.
func (l *Loop) perform(ctx context.Context, now time.Time, e *entry, out Output) error {
	var group errgroup.Group
	group.SetLimit(l.opts.Parallel)
	var first error
	for _, a := range out.Actions {
		if a.Kind == Create {
			addr, err := l.prepare(ctx, e, out.Run, a.Attempt.RunAttempt)
			if err != nil {
				return err
			}
			if l.opts.Parallel == 1 {
				first = errors.Join(first, l.create(ctx, now, e, out.Run, a, addr))
				continue
			}
			group.Go(func() error { return l.create(ctx, now, e, out.Run, a, addr) })
			continue
		}
		if err := l.do(ctx, e, a); err != nil && first == nil {
			first = err
		}
	}
	if err := group.Wait(); err != nil && first == nil {
		first = err
	}
	return first
}

// prepare makes what an attempt needs, once for each process and each change of its run.
func (l *Loop) prepare(ctx context.Context, e *entry, run *repo.Run, attempt int32) (repo.Addresses, error) {
	id := repo.PodName(run.ID+run.Job.Digest, repo.TaskAttempt{RunAttempt: attempt})
	l.mu.Lock()
	addr := e.prepared[id]
	l.mu.Unlock()
	if addr != nil {
		return addr, nil
	}
	addr, err := l.backend.Prepare(ctx, run, attempt)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.prepared = map[string]repo.Addresses{id: addr}
	e.runs = slices.DeleteFunc(slices.Clone(e.runs), func(r repo.Run) bool { return r.ID == run.ID })
	e.runs = append(e.runs, *run)
	return addr, nil
}

func (l *Loop) create(ctx context.Context, now time.Time, e *entry, run *repo.Run, a Action, addr repo.Addresses) error {
	pod, err := run.Pod(a.Attempt, addr)
	if err == nil {
		err = l.backend.Create(ctx, pod)
	} else {
		err = apierrors.NewBadRequest(err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		if l.opts.Hooks.Created != nil {
			l.opts.Hooks.Created()
		}
	case apierrors.IsAlreadyExists(err):
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsForbidden(err) && !isQuota(err):
		e.refused[a.Pod] = refusal(err)
		l.queue.add(e.key, now)
		return nil
	default:
		e.troubles[a.Pod] = err.Error()
		return err
	}
	delete(e.troubles, a.Pod)
	return nil
}

// do performs an action that is no creation.
func (l *Loop) do(ctx context.Context, e *entry, a Action) error {
	switch a.Kind {
	case Delete:
		var grace *int64
		if a.Force {
			grace = new(int64)
		}
		return l.backend.Delete(ctx, e.key.Namespace, a.Pod, a.UID, grace)
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
