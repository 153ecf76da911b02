package runner

import (
	"context"
	"fmt"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// A pod of a run that nobody here knows of is another daemon's, or was left by
// one whose records are lost. It may be ended and let go only if everything that
// is known was read after the pod was there.

// sight are the runs of all pods that can be seen now.
func (l *Loop) sight(ctx context.Context) map[string]bool {
	runs := map[string]bool{}
	keys, err := l.backend.Jobs(ctx)
	if err != nil {
		return runs
	}
	for _, key := range keys {
		pods, err := l.backend.Pods(ctx, key)
		if err != nil {
			continue
		}
		for i := range pods {
			if run, _, ok := repo.AttemptOf(&pods[i]); ok {
				runs[run] = true
			}
		}
	}
	return runs
}

// introduce finds out about runs that are not known: of the record, before it
// ends for the loss of its definition, and of pods. It is an *OvertakenError when
// only the ledger can tell of one.
func (l *Loop) introduce(ctx context.Context, e *entry, pods []Pod) error {
	l.mu.Lock()
	undefined := e.undefined()
	l.mu.Unlock()
	if undefined {
		if err := l.learn(ctx, e); err != nil {
			return err
		}
	}
	for i := range pods {
		run := pods[i].Run
		l.mu.Lock()
		known := l.sighted[run] || e.knows(run)
		l.mu.Unlock()
		if known {
			continue
		}
		if err := l.learn(ctx, e); err != nil {
			return err
		}
		l.mu.Lock()
		known = e.knows(run)
		l.mu.Unlock()
		if !known {
			return &OvertakenError{Job: e.key, What: fmt.Sprintf("pod %s of run %s has been started", pods[i].Name, run)}
		}
	}
	return nil
}

// learn takes up what another daemon has prepared meanwhile.
func (l *Loop) learn(ctx context.Context, e *entry) error {
	runs, err := l.backend.Runs(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range runs {
		if r.Job.Key == e.key && !e.defines(r.ID) && (e.goesOn(r.ID) || !e.knows(r.ID)) {
			e.runs = append(slices.Clip(e.runs), r)
		}
	}
	return nil
}

// undefined says that the record's run is about to end because nobody has its
// definition, as far as that is known here. l.mu is held.
func (e *entry) undefined() bool {
	run := e.record.Run
	if run == nil || run.FinishedAt != nil || e.defines(run.ID) || e.job != nil && e.job.Digest == run.Digest {
		return false
	}
	return run.Ending == nil || run.Ending.Reason != ReasonDefinitionLost
}

// goesOn says whether a run is the record's, and has not finished. l.mu is held.
func (e *entry) goesOn(run string) bool {
	r := e.record.Run
	return r != nil && r.ID == run && r.FinishedAt == nil
}

// defines says whether a run is prepared, as far as that is known here. l.mu is held.
func (e *entry) defines(run string) bool {
	return slices.ContainsFunc(e.runs, func(p repo.Run) bool { return p.ID == run })
}

// knows says whether a run is in the record, or prepared. l.mu is held.
func (e *entry) knows(run string) bool {
	r := &e.record
	for finished := range r.RunIDs() {
		if finished == run {
			return true
		}
	}
	return r.Run != nil && r.Run.ID == run || e.defines(run)
}
