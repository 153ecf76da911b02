package behaviour

import (
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/runner"
)

// play does one step after another, a second apart; what is joined by " & "
// happens at once, in this order.
//
//	worker-0 exits 137           its main container, without a termination message
//	worker-0 exits 1 saying bad  with one
//	worker-0/proxy exits 1       another container; the pod ends with it
//	worker-0 OOMKilled           137, and the kernel did it
//	worker-0 cannot run 127      the command is not there
//	worker-0 evicted, preempted, loses node, fails (no container says why),
//	worker-0 is deleted (by somebody), vanishes
//	refuse worker-0              the backend takes no pod of it; before anything runs
//	wait 10s
//	edit OLD => NEW              a push that changes the file
func (w *world) play(script string) {
	w.t.Helper()
	steps := strings.Split(script, ";")
	for len(steps) > 0 && strings.HasPrefix(strings.TrimSpace(steps[0]), "refuse ") {
		w.refuse[strings.TrimPrefix(strings.TrimSpace(steps[0]), "refuse ")] = true
		steps = steps[1:]
	}
	w.settle()
	for _, s := range steps {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		w.now = w.now.Add(time.Second)
		for part := range strings.SplitSeq(s, " & ") {
			w.step(part)
		}
		w.settle()
	}
}

func (w *world) step(s string) {
	w.t.Helper()
	who, what, _ := strings.Cut(s, " ")
	switch who {
	case "wait":
		d, err := time.ParseDuration(what)
		require.NoError(w.t, err, s)
		w.now = w.now.Add(d)
		return
	case "edit":
		from, to, ok := strings.Cut(what, " => ")
		require.True(w.t, ok && strings.Contains(w.file, from), s)
		w.push(strings.Replace(w.file, from, to, 1))
		return
	}
	task, container, _ := strings.Cut(who, "/")
	p := w.running(task)
	how, said, _ := strings.Cut(what, " saying ")
	killed := runner.End{Container: container, ExitCode: 137, Reason: "Error"}
	switch {
	case strings.HasPrefix(how, "exits "):
		code := number(w, strings.TrimPrefix(how, "exits "))
		reason := "Error"
		if code == 0 {
			reason = "Completed"
		}
		w.end(p, runner.End{Container: container, ExitCode: code, Reason: reason, Message: said})
	case strings.HasPrefix(how, "cannot run "):
		w.end(p, runner.End{Container: container, ExitCode: number(w, strings.TrimPrefix(how, "cannot run ")), Reason: "ContainerCannotRun", Message: said})
	case how == "OOMKilled":
		killed.Reason, killed.Message = how, said
		w.end(p, killed)
	case how == "evicted":
		w.taken(p, killed, "Evicted")
		p.Failure.Message = "The node was low on resource: memory."
	case how == "preempted":
		w.taken(p, killed, "DisruptionTarget", "PreemptionByScheduler")
	case how == "loses node":
		w.taken(p, runner.End{ExitCode: 137, Reason: "ContainerStatusUnknown"}, "NodeLost")
	case how == "fails":
		w.end(p)
		p.State = runner.PodFailed
	case how == "is deleted":
		p.DeletedAt = w.now
		killed.ExitCode = 143
		w.end(p, killed)
	case how == "vanishes":
		w.remove(p)
	default:
		require.Fail(w.t, "no such step", s)
	}
}

// taken ends a pod that the cluster took away.
func (w *world) taken(p *runner.Pod, e runner.End, reasons ...string) {
	w.end(p, e)
	p.Failure.Reasons = reasons
}

func number(w *world, text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	require.NoError(w.t, err)
	return int32(n)
}
