package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// logless is a backend that has no log of any pod.
type logless struct {
	*memory
	err   error
	asked int
}

func (b *logless) Log(context.Context, string, string, string, int64, bool) (io.ReadCloser, error) {
	b.asked++
	return nil, b.err
}

// TestLogsThatCannotBeRead: an outcome waits neither for a node that does not
// answer, pod after pod, nor for a right that the daemon does not have.
func TestLogsThatCannotBeRead(t *testing.T) {
	for _, row := range []struct {
		what         string
		err          error
		asked, lines int
	}{
		{"no answer", context.DeadlineExceeded, 1, 1},
		{"no connection", apierrors.NewInternalError(errors.New("dial tcp 10.0.0.7:10250: i/o timeout")), 1, 1},
		{"forbidden", apierrors.NewForbidden(pods, "p", errors.New("no")), 6, 1},
		{"of this pod", apierrors.NewNotFound(pods, "p"), 6, 6},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				b := &logless{memory: newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 1 }), err: row.err}
				l := New(b, newLedger(), Options{Environment: "default", Log: zerolog.New(&out).Level(zerolog.WarnLevel)})
				require.NoError(t, l.Load(t.Context()))
				job := trainJob("a", "d1", 6, 0)
				l.Define(time.Now(), definitions(job))
				l.Reconcile(t.Context(), time.Now(), job.Key)
				sleep(t.Context(), 2*time.Second, nil)
				b.memory.ending.Wait()
				l.Reconcile(t.Context(), time.Now(), job.Key)
				require.Equal(t, row.asked, b.asked)
				require.Equal(t, row.lines, strings.Count(out.String(), "\n"), out.String())
				require.NotNil(t, l.Records()[0].Roles[0].Tasks[0].Attempts[0].Outcome)
			})
		})
	}
}

// TestLogsThatGoWithTheirPods: a pod that ended by itself, and was asked to end
// before anybody had seen that it had, leaves the end of its log in the record.
func TestLogsThatGoWithTheirPods(t *testing.T) {
	for _, row := range []struct {
		what   string
		happen func(end func(code int32), ask func())
		result repo.Result
		log    string
	}{
		{"its pod stays", func(end func(int32), _ func()) { end(0) }, repo.Succeeded, ""},
		{"succeeded, and was asked to end", func(end func(int32), ask func()) { end(0); ask() }, repo.Succeeded, "step 20/20"},
		{"failed, and was asked to end", func(end func(int32), ask func()) { end(1); ask() }, repo.Failed, "step 20/20"},
		{"was asked to end, and did", func(end func(int32), ask func()) { ask(); end(0) }, repo.Stopped, ""},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
				m.log = "step 20/20"
				l := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
				require.NoError(t, l.Load(t.Context()))
				job := trainJob("a", "d1", 1, 0)
				l.Define(time.Now(), definitions(job))
				l.Reconcile(t.Context(), time.Now(), job.Key)
				pod := m.names()[0]
				then := func() { require.True(t, sleep(t.Context(), 2*time.Second, nil)) }
				row.happen(func(code int32) { m.end(pod, code); then() }, func() {
					require.NoError(t, unreachable{m}.Delete(t.Context(), job.Key.Namespace, pod, "", nil))
					then()
				})
				job.Stop = true // which is why it was asked
				l.Define(time.Now(), definitions(job))
				l.Reconcile(t.Context(), time.Now(), job.Key)
				_, err := l.Publish(t.Context(), time.Now())
				require.NoError(t, err)
				c := led.books[0].Changes[0]
				a := c.Record.Roles[0].Tasks[0].Attempts[0]
				require.Equal(t, row.result, a.Result)
				if row.log == "" {
					require.Empty(t, a.Log)
					require.Empty(t, c.Tails)
				} else {
					require.Equal(t, []repo.Tail{{Path: a.Log, Text: row.log}}, c.Tails)
				}
			})
		})
	}
}
