package behaviour

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes"

	"github.com/trainyard/trainyard/e2e/cluster"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/runner/kubernetes"
)

// TestMain lets more rows run side by side than there are cores, unless it is
// said otherwise: they mostly wait for the API server.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(cluster.Main(m))
}

// server is the real loop and the real backend on a real API server. The test
// plays the scheduler and the nodes, and looks at all that comes of it.
type server struct {
	t         *testing.T
	ctx       context.Context
	client    client.Interface
	namespace string
	backend   *inStep
	ledger    *ledger
	loop      *runner.Loop
	troubles  *troubles
	key       repo.Key
	mains     map[string]string     // main containers of roles that name one
	born      map[string]types.UID  // every pod that ever was, by name
	held      map[string]corev1.Pod // that were when we last looked
	passes    int
	exempt    map[string]bool // pods that somebody else let go
}

func newServer(t *testing.T) *server {
	c := stage(t)
	s := &server{
		t: t, ctx: t.Context(), client: c.Client(), ledger: newLedger(), troubles: &troubles{},
		mains: map[string]string{}, born: map[string]types.UID{}, held: map[string]corev1.Pod{}, exempt: map[string]bool{},
	}
	return s
}

// open makes the namespace, and a daemon of its own. What is refused is known.
func (s *server) open(w *world) {
	made, err := s.client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "row-", Labels: map[string]string{rowLabel: "true"},
		Annotations: map[string]string{refuseAnnotation: "," + strings.Join(slices.Collect(maps.Keys(w.refuse)), ",") + ","},
	}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.namespace = made.Name
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err = s.client.CoreV1().ServiceAccounts(s.namespace).Create(s.ctx, account, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		require.NoError(s.t, err)
	}
	s.key = repo.Key{Namespace: s.namespace, Name: w.job.Name}
	s.ledger.keep(repo.Record{Metadata: repo.RecordMeta{Namespace: s.namespace, Name: "keeper"}, Phase: repo.PhaseSucceeded})
	log := zerolog.New(s.troubles)
	real, err := kubernetes.New(kubernetes.Options{Config: stage(s.t).Config(), Environment: "default", Namespaces: []string{s.namespace}, Log: log})
	require.NoError(s.t, err)
	s.backend = &inStep{Backend: real, now: &w.now, first: map[string]time.Time{}}
	s.t.Cleanup(func() {
		assert.NoError(s.t, s.backend.Close())
		if s.t.Failed() {
			s.t.Logf("%s: the loop said:\n%s", s.namespace, s.troubles.text.String())
		}
	})
	s.start(w)
}

// start is a new daemon's loop: it knows what the ledger and the server know.
func (s *server) start(w *world) {
	s.loop = runner.New(s.backend, s.ledger, runner.Options{Environment: "default", Log: zerolog.New(s.troubles)})
	require.NoError(s.t, s.loop.Load(s.ctx))
	s.define(w)
}

// define tells the loop of the job, and of one that is there for ever: else the
// removal of the other would be taken for a mistake.
func (s *server) define(w *world) {
	if s.loop == nil {
		return
	}
	keeper := repo.Job{Key: repo.Key{Namespace: s.namespace, Name: "keeper"}}
	defs := &repo.Definitions{Revision: fmt.Sprintf("r%d", w.revision), Jobs: []repo.Job{keeper}}
	if w.job != nil {
		w.job.Namespace = s.namespace
		for _, r := range w.job.Roles {
			s.mains[r.Name] = r.MainContainer
		}
		defs.Jobs = append(defs.Jobs, *w.job)
	}
	s.loop.Define(w.now, defs)
}

func (s *server) pass(w *world) (idle bool) {
	s.t.Helper()
	if s.loop == nil {
		s.open(w)
	}
	before, said := s.versions(), s.troubles.count.Load()
	s.loop.Reconcile(s.ctx, w.now, s.key)
	pods := s.look()
	if s.passes++; s.passes%4 == 3 { // a daemon is killed before it has pushed what it has done
		s.start(w)
		s.loop.Reconcile(s.ctx, w.now, s.key)
		pods = s.look()
	}
	pushed, err := s.loop.Publish(s.ctx, w.now)
	require.NoError(s.t, err)
	if s.nodes(w, pods) {
		pods = s.pods()
	}
	s.caughtUp(pods)
	was := w.record
	for _, r := range s.loop.Records() {
		if r.Key() == s.key {
			w.record = r
		}
	}
	return !pushed && said == s.troubles.count.Load() && maps.Equal(before, s.versions()) && reflect.DeepEqual(was, w.record)
}

// versions are the pods as the backend knows them.
func (s *server) versions() map[string]string {
	pods, err := s.backend.Pods(s.ctx, s.key)
	require.NoError(s.t, err)
	out := map[string]string{}
	for _, p := range pods {
		out[p.Name] = p.ResourceVersion
	}
	return out
}

// caughtUp waits until the backend knows what the server does.
func (s *server) caughtUp(pods []corev1.Pod) {
	s.t.Helper()
	want := map[string]string{}
	for _, p := range pods {
		want[p.Name] = p.ResourceVersion
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !maps.Equal(want, s.versions()) {
		select {
		case <-tick.C:
		case <-deadline:
			require.Fail(s.t, "the backend does not see the server's pods", "%v\n%v", want, s.versions())
		}
	}
}

func (s *server) pods() []corev1.Pod {
	list, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	return list.Items
}

// look holds what the server has to the promises: no name is used twice, and
// no pod goes whose outcome is not in the published record.
func (s *server) look() []corev1.Pod {
	s.t.Helper()
	pods, held := s.pods(), map[string]corev1.Pod{}
	for _, p := range pods {
		if uid, ok := s.born[p.Name]; ok {
			require.Equal(s.t, uid, p.UID, "pod %s was made twice", p.Name)
		} else {
			require.Contains(s.t, p.Finalizers, repo.Finalizer, "pod %s was born without it", p.Name)
		}
		s.born[p.Name] = p.UID
		if slices.Contains(p.Finalizers, repo.Finalizer) {
			held[p.Name] = p
		}
	}
	for name, was := range s.held {
		if _, still := held[name]; !still && !s.exempt[name] {
			require.True(s.t, s.ledger.knows(&was), "pod %s was let go before its outcome was published", name)
		}
	}
	s.held = held
	return pods
}

func (s *server) left(*world) []string {
	out := []string{}
	for _, p := range s.pods() {
		name := taskOf(&p)
		if !over(&p) {
			name += " running"
		}
		out = append(out, name)
	}
	return out
}

// remove removes the job's file, after which nothing may be left.
func (s *server) remove(w *world) {
	if s.t.Failed() || s.loop == nil {
		return
	}
	w.job = nil
	w.revision++
	s.define(w)
	w.settle()
	assert.Empty(s.t, s.left(w), "pods are left")
	assert.Equal(s.t, repo.PhaseRemoved, w.record.Phase)
	core := s.client.CoreV1()
	var left []string
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left = nil
		maps, err := core.ConfigMaps(s.namespace).List(s.ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		for _, o := range maps.Items {
			if o.Name != "kube-root-ca.crt" {
				left = append(left, "config map "+o.Name)
			}
		}
		services, err := core.Services(s.namespace).List(s.ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		for _, o := range services.Items {
			left = append(left, "service "+o.Name)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			require.Empty(s.t, left, "something is left")
		}
		<-tick.C
	}
}

// ledger is a remote that takes every record.
type ledger struct {
	records map[repo.Key][]byte
	ended   map[string]bool // pods, attempts of runs and runs whose outcome was ever published
}

func newLedger() *ledger { return &ledger{records: map[repo.Key][]byte{}, ended: map[string]bool{}} }

// knows says whether a pod's outcome was published: its own, or the one of the
// attempt or the run that it was a part of. Of these not every task is kept.
func (l *ledger) knows(p *corev1.Pod) bool {
	run := p.Labels[repo.LabelRun]
	return l.ended[p.Name] || l.ended[run+"/"+p.Labels[repo.LabelRunAttempt]] || l.ended[run]
}

func (l *ledger) Load(context.Context) (out []repo.Record, err error) {
	for _, text := range l.records {
		var r repo.Record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (l *ledger) keep(r repo.Record) {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // records are plain data
	}
	l.records[r.Key()] = text
}

func (l *ledger) Publish(_ context.Context, book runner.Book) (bool, error) {
	for _, c := range book.Changes {
		l.keep(c.Record)
		note := func(tasks []repo.TaskRecord) {
			for _, t := range tasks {
				for _, a := range t.Attempts {
					if a.Outcome != nil {
						l.ended[a.Pod] = true
					}
				}
			}
		}
		for _, r := range c.Record.Roles {
			note(r.Tasks)
		}
		for _, a := range c.Record.Attempts {
			l.ended[fmt.Sprintf("%s/%d", c.Record.Run.ID, a.Attempt)] = true
		}
		for _, h := range c.Record.History {
			l.ended[h.ID] = true
		}
	}
	return len(book.Changes) > 0, nil
}

// troubles collects what is logged, and counts passes that met an error.
type troubles struct {
	text  bytes.Buffer
	count atomic.Int32
}

func (t *troubles) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("job waits")) {
		t.count.Add(1)
	}
	return t.text.Write(line)
}
