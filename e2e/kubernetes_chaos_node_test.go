package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/trainyard/trainyard/e2e/cluster"
	"github.com/trainyard/trainyard/e2e/cluster/node"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// realNodes run containers, which write down themselves what becomes of them.
type realNodes struct {
	nodes []*node.Node
	told  string // the directory in which they do, on the host
}

const shellImage = "localhost/shell:1"

// startNodes makes a cluster of real nodes alone.
func startNodes(t *testing.T, count int) (*cluster.Cluster, *realNodes) {
	t.Helper()
	node.Require(t)
	c := cluster.Start(t, cluster.Options{Nodes: -1, NodeGrace: 10 * time.Second, Audit: true})
	r := &realNodes{told: t.TempDir()}
	for range count {
		n := node.Start(t, c, node.Options{})
		n.LoadShell(t, shellImage)
		r.nodes = append(r.nodes, n)
	}
	return c, r
}

// newNodeChaos is a round on real nodes.
func newNodeChaos(t *testing.T, c *cluster.Cluster, real *realNodes, seed uint64, size chaosSize) *chaos {
	w := newOnCluster(t, c)
	w.real = &realNodes{nodes: real.nodes, told: filepath.Join(real.told, w.namespace)}
	require.NoError(t, os.Mkdir(w.real.told, 0o777))
	return chaosOn(w, seed, size)
}

func nodeSize() chaosSize {
	return chaosSize{
		jobs: 9, span: 20 * time.Second, gap: 2500 * time.Millisecond, last: 5 * time.Second, rest: 3 * time.Minute,
		often: []share{
			{"daemon", 16}, {"pod", 14}, {"pod by force", 5}, {"edit", 9}, {"kube-apiserver", 9}, {"etcd", 7}, {"remote", 7},
			{"kube-scheduler", 3}, {"kube-controller-manager", 3}, {"kubelet", 11}, {"containerd", 9}, {"node", 7},
		},
	}
}

// TestNodeChaos: as TestClusterChaos, with containers that really run, and
// kubelets, containerds and whole nodes that are killed under them.
func TestNodeChaos(t *testing.T) {
	t.Parallel()
	c, real := startNodes(t, 2)
	newNodeChaos(t, c, real, *chaosSeed, nodeSize()).run()
}

// TestNodeSoak does the same for longer, and with other seeds.
func TestNodeSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("runs with -soak 30m alone")
	}
	c, real := startNodes(t, 2)
	soakFor(t, *soak, func(t *testing.T, seed uint64) *chaos {
		size := nodeSize()
		size.jobs, size.span, size.last, size.lease = 15, time.Minute, 10*time.Second, seed%3 == 0
		if seed%4 == 0 {
			size.span, size.gap, size.last = 3*time.Minute, 15*time.Second, 45*time.Second
		}
		return newNodeChaos(t, c, real, seed, size)
	})
}

// beat is how often a container says that it lives.
const beat = 500 * time.Millisecond

// podSpec of a task that exits with a code after a time, or never with a
// negative one. Whoever is started twice writes a second line to its .start,
// and what it wrote last to .beat is how long it has lived, however it ended.
func (r *realNodes) podSpec(code int, runFor string) string {
	beats := -1
	if d, err := time.ParseDuration(runFor); err == nil && code >= 0 {
		beats = int(d / beat)
	}
	script := fmt.Sprintf("trap 'exit 143' TERM; cd /told; echo >> $POD.start; i=%d; "+
		"while [ $i -ne 0 ]; do echo >> $POD.beat; sleep %.1f; let i=i-1; done; echo %d >> $POD.end; exit %d", beats, beat.Seconds(), code, code)
	return strings.Replace(podSpec, "  containers: [{name: tensorflow, image: example/train:1, command: [train]}]\n", fmt.Sprintf(`  restartPolicy: Never
  volumes: [{name: told, hostPath: {path: %s}}]
  containers:
  - name: tensorflow
    image: %s
    command: [sh, -c, %q]
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: told, mountPath: /told}]
`, r.told, shellImage, script), 1)
}

// nodeJobs are some of the kinds that a node can tell apart. Of those that
// succeed every other one runs for up to size.longest.
func (w *onCluster) nodeJobs(rng *rand.Rand, size chaosSize) []*chaosJob {
	kinds := []func(j *chaosJob, runFor func() string){
		w.plainJob, w.overlapJob, w.budgetJob, w.daemonRoleJob, w.removedJob, w.frameworkJob, w.againJob, w.editedJob("Restart"),
		w.ownFormatJob("  cleanup: {pods: None}\n"), w.permanentJob, w.gangJob, w.failingFrameworkJob,
	}
	jobs := make([]*chaosJob, size.jobs)
	for i := range jobs {
		j := &chaosJob{name: fmt.Sprintf("job-%02d", i), phase: repo.PhaseSucceeded}
		short, long := 500+rng.IntN(6000), 500+rng.IntN(int(size.longest/time.Millisecond)+1)
		make := func(ms int) { kinds[i%len(kinds)](j, func() string { return fmt.Sprintf("%dms", ms) }) }
		make(short)
		if i%2 == 0 && j.phase == repo.PhaseSucceeded && size.longest > 0 {
			make(long)
		}
		jobs[i] = j
	}
	return jobs
}

// outage is that a node was off, with all that ran on it, or a program of it alone.
type outage struct {
	node, program string // kubelet or containerd, "" for all of the node
	from, to      time.Time
}

// harmed takes down that something is lost, and returns what tells that it is back.
func (x *chaos) harmed(node, program string) (healed func()) {
	i := len(x.outages)
	x.outages = append(x.outages, outage{node: node, program: program, from: time.Now()})
	return func() { x.outages[i].to = time.Now() }
}

func (x *chaos) loseRealNode(f fault) {
	n := x.real.nodes[f.n%len(x.real.nodes)]
	if x.down[n.Name] {
		return
	}
	healed := x.harmed(n.Name, "")
	n.Kill(x.t)
	x.later(f, n.Name, func() {
		n.Boot(x.t)
		healed()
	})
}

// loseProgram kills a kubelet or a containerd, which whose containers survive.
func (x *chaos) loseProgram(f fault) {
	n := x.real.nodes[f.n%len(x.real.nodes)]
	what := f.what + " of " + n.Name
	switch {
	case x.down[n.Name] || x.down[what]:
	case f.what == "kubelet":
		healed := x.harmed(n.Name, f.what)
		n.KillKubelet(x.t)
		x.later(f, what, func() {
			n.RestartKubelet(x.t)
			healed()
		})
	default:
		healed := x.harmed(n.Name, f.what)
		n.KillContainerd(x.t)
		x.later(f, what, func() {
			n.RestartContainerd(x.t)
			healed()
		})
	}
}

// wentWithNode says whether a pod was on a node when that was lost, or a program
// of it alone: any if the pod was starting, and containerd if its container has
// ended, or was taken for ended, when that was killed and started again. What
// ends in that moment is an exit with 255 to it, as on a lost node.
func (x *chaos) wentWithNode(l *life, starting bool) bool {
	return slices.ContainsFunc(x.outages, func(h outage) bool {
		counts := h.program == "" || starting || h.program == "containerd" && l.ended.Before(h.to.Add(2*time.Second))
		return h.node == l.node && counts && l.created.Before(h.to) && (l.ended.IsZero() || !l.ended.Before(h.from.Truncate(time.Second)))
	})
}

// wasUnborn says whether a pod's container was killed with its node, or under a
// program of it, before its first line. The runtime's own process, which was to
// become the container, may leave an exit code then that says nothing of that.
func (x *chaos) wasUnborn(l *life) bool {
	return x.real != nil && x.stories()[l.name].starts == 0 && x.wentWithNode(l, true)
}

// story is what a pod's container has written.
type story struct {
	starts      int
	first, last time.Time // of its signs of life, since its latest start
	code        string    // with which it was about to exit, "" if it was killed before
}

// containersTell what the API server does not: that none was started twice, none
// ran beside another one of its task, and that those that are said to have
// succeeded did their work to the end.
func (x *chaos) containersTell(branch map[string]*told) {
	stories := x.stories()
	tasks, overlap := map[string][]*life{}, map[string]bool{}
	for _, j := range x.jobs {
		overlap[j.name] = j.overlap
	}
	for _, l := range x.seen.all() {
		s := stories[l.name]
		if said := branch[l.job]; said != nil && said.ends[l.name].Outcome != nil && said.ends[l.name].Result == repo.Succeeded {
			assert.Equal(x.t, "0", s.code, "%s has succeeded by its record, and not by its own word", l.name)
		}
		if s.starts > 0 {
			task := l.run + " " + l.attempt.Task.String()
			tasks[task] = append(tasks[task], l)
		}
		delete(stories, l.name)
		may := 1
		if x.startedWithoutWitness(l, s) {
			may += int(l.restarts)
		}
		assert.LessOrEqual(x.t, s.starts, may, "the container of %s, made %s on %s, was started %d times, last %s, and by its kubelet %d times again",
			l.name, l.created, l.node, s.starts, s.first, l.restarts)
	}
	assert.Empty(x.t, stories, "containers of pods that nobody saw")
	stories = x.stories()
	for _, lives := range tasks {
		slices.SortFunc(lives, func(a, b *life) int { return stories[a.name].first.Compare(stories[b.name].first) })
		for i, l := range lives[1:] {
			before := lives[i]
			if !overlap[l.job] && !before.byForce {
				assert.False(x.t, stories[l.name].first.Before(stories[before.name].last), "%s started when %s lived", l.name, before.name)
			}
		}
	}
}

// startedWithoutWitness says whether containerd was killed after the pod was made
// and before its container started for the last time. One that has started
// a container and is killed before it has written that down does not know of that
// afterwards, and of a container that was made or is unknown a kubelet always
// starts another one in the same pod. Nobody outside of the node can prevent that.
func (x *chaos) startedWithoutWitness(l *life, s story) bool {
	return slices.ContainsFunc(x.outages, func(h outage) bool {
		return h.node == l.node && h.program == "containerd" && !h.from.Before(l.created) && h.from.Before(s.first)
	})
}

// stories are those of all pods that ran, by name.
func (w *onCluster) stories() map[string]story {
	files, err := os.ReadDir(w.real.told)
	require.NoError(w.t, err)
	out := map[string]story{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(w.real.told, f.Name()))
		require.NoError(w.t, err)
		info, err := f.Info()
		require.NoError(w.t, err)
		ext := filepath.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), ext)
		s := out[name]
		switch ext {
		case ".start":
			s.starts, s.first = bytes.Count(text, []byte("\n")), info.ModTime()
		case ".end":
			s.code = strings.TrimSpace(string(text))
		}
		if info.ModTime().After(s.last) {
			s.last = info.ModTime()
		}
		out[name] = s
	}
	return out
}
