package behaviour

import (
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
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
		w.later(time.Second)
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
		w.later(d)
		return
	case "edit":
		from, to, ok := strings.Cut(what, " => ")
		require.True(w.t, ok && strings.Contains(w.file, from), s)
		w.push(strings.Replace(w.file, from, to, 1))
		return
	}
	task, container, _ := strings.Cut(who, "/")
	f := fateOf(w, what)
	f.container = container
	require.True(w.t, w.scene.end(w, task, f), "%s does not run: %s", task, w.told())
}

// fate is how a pod ends.
type fate struct {
	how       string
	container string // that ends, "" for the main one; and with …
	code      int32
	reason    string // of the container
	said      string // its termination message
}

// What can happen to a pod.
const (
	exits     = "exits" // a container does
	evicted   = "evicted"
	preempted = "preempted"
	losesNode = "loses node"
	fails     = "fails"
	isDeleted = "is deleted"
	vanishes  = "vanishes"
)

func fateOf(w *world, what string) fate {
	w.t.Helper()
	how, said, _ := strings.Cut(what, " saying ")
	switch {
	case strings.HasPrefix(how, "exits "):
		f := fate{how: exits, code: number(w, strings.TrimPrefix(how, "exits ")), reason: "Error", said: said}
		if f.code == 0 {
			f.reason = "Completed"
		}
		return f
	case strings.HasPrefix(how, "cannot run "):
		return fate{how: exits, code: number(w, strings.TrimPrefix(how, "cannot run ")), reason: "ContainerCannotRun", said: said}
	case how == "OOMKilled":
		return fate{how: exits, code: 137, reason: how, said: said}
	}
	require.Contains(w.t, []string{evicted, preempted, losesNode, fails, isDeleted, vanishes}, how, "no such step")
	return fate{how: how}
}

func number(w *world, text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	require.NoError(w.t, err)
	return int32(n)
}
