package repo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is asked of the finished runs is answered as if all of them were kept
// whole, also by copies of the record that were made on the way and go on by themselves.
func TestHistoryForgetsNoRun(t *testing.T) {
	var r Record
	var all []RunSummary
	type copied struct {
		record Record
		runs   int
	}
	var copies []copied
	const runs = 12 * KeptRuns
	for i := range runs {
		if i%7 == 0 {
			copies = append(copies, copied{r, i})
		}
		s := RunSummary{
			ID: fmt.Sprint("run-", i), Digest: fmt.Sprint("digest-", i%3), GPUSeconds: int64(i),
			FinishedAt: metav1.NewTime(time.Unix(int64(i)*60, 0).UTC()),
		}
		switch i % 5 {
		case 0:
			s.Trigger = Trigger{Kind: TriggerRerun, Value: fmt.Sprint("again-", i)}
		case 1:
			s.Covers = []string{fmt.Sprint("covered-", i), fmt.Sprint("covered-too-", i)}
		case 2:
			s.Trigger = Trigger{Kind: TriggerCron, Value: fmt.Sprint("time-", i)}
		}
		r.Finish(s)
		all = append(all, s)
		if i%(2*KeptRuns) != 3 { // that one is not pushed
			r.Fold(len(all))
		}
	}
	for _, c := range slices.Backward(copies) {
		for range 2 * KeptRuns {
			c.record.Finish(RunSummary{ID: "of another copy", Covers: []string{"covered by it"}, Trigger: Trigger{Kind: TriggerRerun, Value: "its own"}})
			c.record.Fold(c.record.Runs())
		}
	}
	holds(t, &r, all)
	require.Less(t, len(r.History), 2*KeptRuns)
	for i := range copies {
		holds(t, &copies[i].record, all[:copies[i].runs])
	}
}

// holds compares a record with the whole of its history.
func holds(t require.TestingT, r *Record, all []RunSummary) {
	require.Equal(t, len(all), r.Runs())
	require.GreaterOrEqual(t, len(r.History), min(len(all), KeptRuns))
	if n := len(r.History); n > 0 {
		require.Equal(t, all[len(all)-n:], r.History)
	}
	var ids, reruns, told []string
	seconds := r.Past.GPUSeconds
	for i := range r.History {
		seconds += r.History[i].GPUSeconds
	}
	for i := range all {
		s := &all[i]
		seconds -= s.GPUSeconds
		ids = append(ids, s.ID)
		for _, id := range append([]string{s.ID}, s.Covers...) {
			at, ok := r.Finished(id)
			require.True(t, ok, id)
			require.True(t, at.Equal(s.FinishedAt.Time), "%s at %s", id, at)
		}
		if s.Trigger.Kind == TriggerRerun {
			reruns = append(reruns, s.Trigger.Value+" of "+s.Digest)
		}
	}
	require.Zero(t, seconds)
	require.Equal(t, ids, slices.Collect(r.RunIDs()))
	r.AnyRerun(func(value, digest string) bool {
		told = append(told, value+" of "+digest)
		return false
	})
	require.ElementsMatch(t, reruns, told)
	for _, unknown := range []string{"", "run-", "of another copy", "covered by it", fmt.Sprint("run-", len(all))} {
		_, ok := r.Finished(unknown)
		require.False(t, ok, unknown)
	}
}

// What nobody else has is kept, however long the remote is away.
func TestHistoryKeepsWhatWasNotPushed(t *testing.T) {
	var r Record
	for i := range 5 * KeptRuns {
		r.Finish(RunSummary{ID: fmt.Sprint(i)})
		r.Fold(0)
	}
	require.Len(t, r.History, 5*KeptRuns)
	r.Fold(KeptRuns + 3)
	require.Len(t, r.History, 4*KeptRuns-3)
	r.Fold(5 * KeptRuns)
	require.Len(t, r.History, KeptRuns)
	require.Equal(t, 5*KeptRuns, r.Runs())
}
