package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
)

var lasting = flag.Duration("lasting", 0, "for how `long` TestNodeAbsence takes each part away, on a cluster of its own")

// TestNodeAbsence: each part goes away at some moment, while jobs start, run and
// end, and comes back. That costs time only. For longer absences every part has
// a cluster of its own, and all are away side by side; short ones follow each
// other on one cluster.
func TestNodeAbsence(t *testing.T) {
	t.Parallel()
	if *lasting == 0 {
		c, real := startNodes(t, 2)
		newAbsence(t, 2*time.Second, func(size chaosSize) *chaos { return newNodeChaos(t, c, real, *chaosSeed, size) }).
			without("kube-apiserver", "etcd", "daemon", "kubelet", "node")
		return
	}
	for i, of := range []struct {
		part  string
		nodes int
	}{{"kube-apiserver", 1}, {"etcd", 1}, {"daemon", 1}, {"kubelet", 2}, {"node", 2}, {"remote", 1}, {"containerd", 1}} {
		t.Run(of.part, func(t *testing.T) {
			t.Parallel()
			c, real := startNodes(t, of.nodes)
			newAbsence(t, *lasting, func(size chaosSize) *chaos {
				return newNodeChaos(t, c, real, *chaosSeed+uint64(i), size)
			}).without(of.part)
		})
	}
}

// absence is a round in which parts are away for a while each.
type absence struct {
	*chaos
	lasting time.Duration
}

func newAbsence(t *testing.T, lasting time.Duration, round func(chaosSize) *chaos) *absence {
	t.Helper()
	// A task of the longest that loses its node begins again.
	size := chaosSize{jobs: 9, longest: lasting / 2, rest: lasting + 4*time.Minute}
	return &absence{chaos: round(size), lasting: lasting}
}

// without plays the round. The first moment is counted from when the first
// container has started, on whichever node.
func (x *absence) without(parts ...string) {
	rng := rand.New(rand.NewPCG(x.seed, 1))
	x.begin()
	x.eventually("a container runs", func() bool { return len(x.stories()) > 0 })
	for _, part := range parts {
		pause := time.Duration(rng.IntN(int(min(x.lasting, 8*time.Second))))
		x.healUntil(time.Now().Add(pause))
		x.inflict(fault{what: part, lasts: x.lasting, n: rng.IntN(1000), fresh: rng.IntN(2) == 0})
		x.healUntil(time.Now().Add(x.lasting / 2))
		x.another(len(x.jobs))
		x.healUntil(time.Now().Add(x.lasting / 2))
		x.healAll()
	}
	x.finish()
}

// another job is pushed, if there is where to.
func (x *absence) another(n int) {
	if x.down["remote"] {
		return
	}
	j := &chaosJob{name: fmt.Sprintf("job-%02d", n), phase: repo.PhaseSucceeded}
	x.plainJob(j, func() string { return "3s" })
	x.jobs = append(x.jobs, j)
	x.write("jobs/"+j.name+".yaml", j.text)
	x.push("another job")
	x.say("%s is pushed", j.name)
}
