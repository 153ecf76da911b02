package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
)

var (
	soak      = flag.Duration("soak", 0, "for how `long` TestClusterSoak goes from one seed to the next")
	chaosSeed = flag.Uint64("seed", 1, "of the faults that TestClusterChaos and the first round of TestClusterSoak inflict")
)

// chaosSize is how much happens in a round.
type chaosSize struct {
	jobs    int
	longest time.Duration // that the work of a task lasts on real nodes
	span    time.Duration // in which faults begin
	gap     time.Duration // the longest between two
	last    time.Duration // the longest fault
	rest    time.Duration // until all must have come to rest after it
	lease   bool          // the daemons stand for election
	often   []share       // of what the faults are
}

// share is how many of a hundred faults are what.
type share struct {
	what string
	n    int
}

// TestClusterChaos: whatever is killed, at whatever moment, costs time only.
func TestClusterChaos(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Nodes: 4, NodeGrace: 10 * time.Second, Audit: true})
	size := chaosSize{jobs: 30, span: 18 * time.Second, gap: 1500 * time.Millisecond, last: 4 * time.Second, rest: 3 * time.Minute, often: often()}
	newChaos(t, c, *chaosSeed, size).run()
}

// TestClusterSoak does the same for longer, and with other seeds.
func TestClusterSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("runs with -soak 30m alone")
	}
	c := cluster.Start(t, cluster.Options{Nodes: 4, NodeGrace: 10 * time.Second, Audit: true})
	soakFor(t, *soak, func(t *testing.T, seed uint64) *chaos {
		size := chaosSize{jobs: 45, span: 60 * time.Second, gap: 3 * time.Second, last: 10 * time.Second, rest: 4 * time.Minute, lease: seed%3 == 0, often: often()}
		if seed%4 == 0 {
			size.span, size.gap, size.last = 4*time.Minute, 20*time.Second, time.Minute
		}
		return newChaos(t, c, seed, size)
	})
}

// soakFor plays round after round until one finds something or the time is over.
func soakFor(t *testing.T, long time.Duration, round func(t *testing.T, seed uint64) *chaos) {
	end, did := time.Now().Add(long), []string{}
	defer func() { fmt.Printf("soak: %d rounds\n%s\n", len(did), strings.Join(did, "\n")) }()
	for seed := *chaosSeed; time.Now().Before(end) && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			x := round(t, seed)
			defer func() {
				found := "nothing was found"
				if t.Failed() {
					found = "SOMETHING WAS FOUND"
				}
				did = append(did, fmt.Sprintf("seed %d: %s: %s", seed, found, x.told()))
			}()
			x.run()
		})
	}
}

// fault is something that is inflicted at a time, and healed later.
type fault struct {
	what  string
	after time.Duration // since the fault before it
	lasts time.Duration
	n     int  // which of several is meant
	fresh bool // the next daemon knows nothing but the remote and the cluster
}

// chaos is one round: jobs, a daemon and faults, all of a seed.
type chaos struct {
	*onCluster
	seed    uint64
	size    chaosSize
	jobs    []*chaosJob
	faults  []fault
	seen    *witness
	d       *daemon
	began   time.Time
	trace   []string
	down    map[string]bool // components, nodes, the daemon and the remote
	heals   []heal
	outages []outage
	states  int
	counts  map[string]int
	unborn  map[string]int32 // by job: containers that were killed before their first line, and left an exit code
}

type heal struct {
	at   time.Time
	what string
	do   func()
}

// away is where the remote is when it is away.
const away = ".away"

func newChaos(t *testing.T, c *cluster.Cluster, seed uint64, size chaosSize) *chaos {
	return chaosOn(newOnCluster(t, c), seed, size)
}

func chaosOn(w *onCluster, seed uint64, size chaosSize) *chaos {
	x := &chaos{onCluster: w, seed: seed, size: size, down: map[string]bool{}, counts: map[string]int{}, unborn: map[string]int32{}}
	x.git(x.remote, "config", "gc.auto", "0") // branches stay files that the witness reads
	rng := rand.New(rand.NewPCG(seed, 0))
	if w.real == nil {
		x.jobs = x.chaosJobs(rng, size.jobs)
	} else {
		x.jobs = x.nodeJobs(rng, size)
	}
	x.faults = drawFaults(rng, size)
	x.seen = x.watchLives()
	return x
}

func often() []share {
	return []share{
		{"daemon", 22}, {"pod", 20}, {"pod by force", 8}, {"edit", 10}, {"kube-apiserver", 10}, {"etcd", 8}, {"remote", 7},
		{"kwok", 4}, {"kube-scheduler", 4}, {"kube-controller-manager", 4}, {"node", 3},
	}
}

func drawFaults(rng *rand.Rand, size chaosSize) (out []fault) {
	draw := func(most time.Duration) time.Duration { // short ones more often than long ones
		return 100*time.Millisecond + time.Duration(float64(most)*rng.Float64()*rng.Float64())
	}
	total := 0
	for _, o := range size.often {
		total += o.n
	}
	for at := time.Duration(0); at < size.span; {
		f := fault{after: draw(size.gap), lasts: draw(size.last), n: rng.IntN(1000), fresh: rng.IntN(3) == 0}
		pick := rng.IntN(total)
		for _, o := range size.often {
			if pick -= o.n; pick < 0 {
				f.what = o.what
				break
			}
		}
		if f.what == "node" {
			f.lasts += 12 * time.Second // so that it is noticed
		}
		at += f.after
		out = append(out, f)
	}
	return out
}

func (x *chaos) say(format string, args ...any) {
	x.trace = append(x.trace, fmt.Sprintf("%7.2fs  %s", time.Since(x.began).Seconds(), fmt.Sprintf(format, args...)))
}

// told is the round in a line.
func (x *chaos) told() string {
	what := make([]string, 0, len(x.counts))
	for _, name := range slices.Sorted(maps.Keys(x.counts)) {
		what = append(what, fmt.Sprintf("%d %s", x.counts[name], name))
	}
	return fmt.Sprintf("%d jobs, %d pods, in %.0fs; %s", len(x.jobs), len(x.seen.all()), time.Since(x.began).Seconds(), strings.Join(what, ", "))
}

func (x *chaos) run() {
	x.begin()
	for _, f := range x.faults {
		x.healUntil(time.Now().Add(f.after))
		x.inflict(f)
	}
	x.finish()
}

// begin pushes the jobs, and starts the first daemon.
func (x *chaos) begin() {
	x.began = time.Now()
	x.t.Cleanup(func() {
		if x.t.Failed() {
			x.t.Logf("again with -seed %d; what was done:\n%s", x.seed, strings.Join(x.trace, "\n"))
		}
	})
	for _, j := range x.jobs {
		x.write("jobs/"+j.name+".yaml", j.text)
	}
	x.push("jobs")
	x.startDaemon(false)
}

// finish mends all, waits until all has come to rest, and asks what became of it.
func (x *chaos) finish() {
	x.healAll()
	for _, part := range x.c.Revive(x.t) {
		x.say("%s had ended by itself", part)
	}
	x.finishEdits()
	x.settle()
	x.t.Logf("seed %d: %s", x.seed, x.told())
	x.laws()
	x.removeAll()
	require.NoError(x.t, x.d.end(x.t, os.Interrupt)) // its last push ends before the remote is deleted
}

// healUntil lets time pass, and heals what is due in it.
func (x *chaos) healUntil(end time.Time) {
	for {
		now := time.Now()
		i := slices.IndexFunc(x.heals, func(h heal) bool { return !h.at.After(now) && x.canHeal(h.what) })
		if i >= 0 {
			x.healOne(i)
			continue
		}
		if !now.Before(end) {
			return
		}
		pause(x.t.Context(), min(20*time.Millisecond, end.Sub(now)))
	}
}

func (x *chaos) healOne(i int) {
	h := x.heals[i]
	x.heals = slices.Delete(x.heals, i, i+1)
	x.say("… %s is healed", h.what)
	h.do()
	delete(x.down, h.what)
}

func (x *chaos) healAll() {
	for len(x.heals) > 0 {
		for i := range x.heals {
			if x.canHeal(x.heals[i].what) {
				x.healOne(i)
				break
			}
		}
	}
}

// canHeal says whether something starts now: most need the API server, and that its store.
func (x *chaos) canHeal(what string) bool {
	switch what {
	case "daemon", "remote", "etcd":
		return true
	case "kube-apiserver":
		return !x.down["etcd"]
	}
	program, node, ok := strings.Cut(what, " of ")
	if !ok {
		return x.serves()
	}
	return x.serves() && !x.down[node] && (program == "containerd" || !x.down["containerd of "+node])
}

func (x *chaos) serves() bool { return !x.down["etcd"] && !x.down["kube-apiserver"] }

func (x *chaos) later(f fault, what string, do func()) {
	x.down[what] = true
	x.heals = append(x.heals, heal{time.Now().Add(f.lasts), what, do})
	x.say("%s is lost for %.1fs", what, f.lasts.Seconds())
}

func (x *chaos) inflict(f fault) {
	x.counts[f.what]++
	if x.down[f.what] {
		return
	}
	switch f.what {
	case "daemon":
		x.d.kill()
		x.later(f, f.what, func() { x.startDaemon(f.fresh) })
	case "remote":
		require.NoError(x.t, os.Rename(x.remote, x.remote+away))
		x.later(f, f.what, func() { require.NoError(x.t, os.Rename(x.remote+away, x.remote)) })
	case "edit":
		x.edit(f.n)
	case "pod", "pod by force":
		if x.serves() {
			x.say("%s is deleted: %s", f.what, x.seen.delete(f.n, f.what != "pod"))
		}
	case "node":
		x.loseNode(f)
	case "kubelet", "containerd":
		x.loseProgram(f)
	default:
		x.c.Kill(x.t, f.what)
		x.later(f, f.what, func() { x.c.Restart(x.t, f.what) })
	}
}

func (x *chaos) loseNode(f fault) {
	if x.real != nil {
		x.loseRealNode(f)
		return
	}
	node := fmt.Sprintf("node-%d", f.n%4)
	if x.serves() && !x.down["kwok"] && !x.down[node] {
		x.c.SetNode(x.t, node, false)
		x.later(f, node, func() { x.c.SetNode(x.t, node, true) })
	}
}

func (x *chaos) startDaemon(fresh bool) {
	if fresh {
		x.states++
		x.state = filepath.Join(filepath.Dir(x.remote), fmt.Sprintf("state-%d", x.states))
	}
	x.say("a daemon starts in %s", filepath.Base(x.state))
	if x.size.lease {
		x.d = x.start(x.flags()...)
	} else {
		x.d = x.start(x.unleased()...)
	}
}

// edit changes or removes the file of one of the jobs of which that is expected.
func (x *chaos) edit(n int) {
	todo := slices.DeleteFunc(slices.Clone(x.jobs), func(j *chaosJob) bool { return j.edit == "" && !j.goes })
	if len(todo) == 0 || x.down["remote"] {
		return
	}
	j := todo[n%len(todo)]
	file := "jobs/" + j.name + ".yaml"
	if j.edit != "" {
		x.write(file, j.edit)
	} else {
		require.NoError(x.t, os.Remove(filepath.Join(x.checkout, file)))
	}
	j.edit, j.goes = "", false
	x.push("edit " + j.name)
	x.say("the file of %s is changed", j.name)
}

func (x *chaos) finishEdits() {
	for slices.ContainsFunc(x.jobs, func(j *chaosJob) bool { return j.edit != "" || j.goes }) {
		x.edit(0)
	}
}

// settle waits until every job is what it has to become, and nothing moves any more.
func (x *chaos) settle() {
	x.t.Helper()
	x.say("all is healed")
	deadline := time.Now().Add(x.size.rest)
	open := slices.Clone(x.jobs)
	for len(open) > 0 {
		open = slices.DeleteFunc(open, func(j *chaosJob) bool {
			rec, ok := x.clusterRecord(j.name)
			return rec.Phase == j.phase && upToDate(&rec) || !ok && j.phase == repo.PhaseRemoved
		})
		if time.Now().After(deadline) {
			for _, j := range open {
				rec, _ := x.clusterRecord(j.name)
				x.say("%s is %s (%s: %s), and should be %s", j.name, rec.Phase, rec.Reason, rec.Message, j.phase)
			}
			x.t.Errorf("%d jobs have not come to rest", len(open))
			x.diagnose()
			x.t.FailNow()
		}
		pause(x.t.Context(), 200*time.Millisecond)
	}
	x.say("every job is what it has to be")
	x.eventually("every pod is released", func() bool {
		return !slices.ContainsFunc(x.seen.all(), func(l *life) bool { return l.held })
	})
	still, since := x.tip(), time.Now()
	x.eventually("nothing is pushed for two seconds", func() bool {
		if tip := x.tip(); tip != still {
			still, since = tip, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
}

// diagnose tells what there is, for whoever looks into a round that does not end.
func (x *chaos) diagnose() {
	left, err := x.left()
	x.say("there are %v %s", err, strings.Join(left, "; "))
	x.diagnoseWaiting()
	if x.real != nil {
		for pod, s := range x.stories() {
			x.say("%s says: %d starts, lives from %s to %s, exits %q", pod, s.starts, s.first, s.last, s.code)
		}
	}
}

// diagnoseWaiting tells all that the server knows of pods that have not started.
func (x *chaos) diagnoseWaiting() {
	core := x.c.Client().CoreV1()
	pods, err := core.Pods(x.namespace).List(x.t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Pending"})
	if err != nil {
		x.t.Logf("pods: %v", err)
		return
	}
	for _, p := range pods.Items {
		status, _ := json.Marshal(p.Status)
		x.say("%s waits: %s", p.Name, status)
		events, err := core.Events(x.namespace).List(x.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
		if err != nil {
			x.t.Logf("events: %v", err)
			return
		}
		for _, e := range events.Items {
			x.say("%s: %s %s: %s (%d times)", p.Name, e.LastTimestamp.Format(time.TimeOnly), e.Reason, e.Message, e.Count)
		}
	}
}

func upToDate(rec *repo.Record) bool {
	return rec.Phase == repo.PhaseRemoved || slices.ContainsFunc(rec.Conditions, func(c metav1.Condition) bool {
		return c.Type == "UpToDate" && c.Status == metav1.ConditionTrue
	})
}

// removeAll takes every file away, confirms that it is meant, and finds nothing left.
func (x *chaos) removeAll() {
	x.git(x.checkout, "rm", "-q", "-r", "jobs")
	x.push("all is removed")
	token := ""
	x.eventually("the daemon asks whether that is meant", func() bool {
		_, rest, ok := strings.Cut(x.d.out.String(), "removal: {confirm: ")
		if ok {
			token = strings.Trim(strings.FieldsFunc(rest, func(r rune) bool { return r == '}' })[0], `\"`)
		}
		return ok
	})
	x.write("trainyard.yaml", "removal: {confirm: \""+token+"\"}\n")
	x.push("it is")
	var left []string
	defer func() {
		if len(left) > 0 {
			x.t.Logf("left are %s", strings.Join(left, "; "))
		}
	}()
	x.eventually("nothing is left", func() bool {
		var err error
		left, err = x.left()
		return err == nil && len(left) == 0
	})
}

// left is what there still is of ours in the namespace.
func (x *chaos) left() (out []string, err error) {
	of := metav1.ListOptions{LabelSelector: repo.LabelManagedBy + "=" + repo.ManagedBy}
	core := x.c.Client().CoreV1()
	pods, err := core.Pods(x.namespace).List(x.t.Context(), of)
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		out = append(out, fmt.Sprintf("pod %s on %s, %s, deleted %v, held by %v", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Finalizers))
	}
	maps, err := core.ConfigMaps(x.namespace).List(x.t.Context(), of)
	if err != nil {
		return nil, err
	}
	for _, m := range maps.Items {
		out = append(out, fmt.Sprintf("config map %s, deleted %v", m.Name, m.DeletionTimestamp))
	}
	services, err := core.Services(x.namespace).List(x.t.Context(), of)
	if err != nil {
		return nil, err
	}
	for _, s := range services.Items {
		out = append(out, fmt.Sprintf("service %s, deleted %v, owned by %v", s.Name, s.DeletionTimestamp, s.OwnerReferences))
	}
	return out, nil
}
