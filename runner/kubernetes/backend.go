package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/changes"
)

// Options of a Backend.
type Options struct {
	// Config says how the API server is reached. Its limits of requests are
	// taken off: the server's own priority and fairness decides.
	Config      *rest.Config
	Environment string
	// Repository is the identity of the one whose environment this is, if it is
	// known from the start: else Own says it. Without it the pods of all
	// repositories with this environment are meant.
	Repository string
	// Namespaces that pods may run in; none is all of them, which needs a ClusterRole.
	Namespaces []string
	// Gang is how all pods of a run start or none; "" is what fits the job and
	// the cluster best. GangScheduler is the scheduler with the coscheduling plugin.
	Gang          Gang
	GangScheduler string
	Log           zerolog.Logger
}

// namespaces are those to look into, each once.
func (o *Options) namespaces() []string {
	if len(o.Namespaces) == 0 {
		return []string{corev1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
}

const (
	// inFlight bounds the writes that the server is asked for at once.
	inFlight = 32
	// patience is how long an answer is waited for.
	patience = 30 * time.Second
	// manager is the name under which fields of objects are owned.
	manager = "trainyard"
)

var podResource = schema.GroupResource{Resource: "pods"}

// Backend holds the pods of one environment on a cluster.
type Backend struct {
	options Options
	client  kubernetes.Interface
	dynamic dynamic.Interface

	writes  chan struct{} // a place for each write that is under way
	news    chan announcement
	bare    chan struct{} // has room for one: a run was prepared without its service
	changes changes.Feed  // of pods
	gangs   gangs
	work    context.Context // of what goes on until Close
	cancel  context.CancelFunc
	done    sync.WaitGroup

	owning sync.Mutex            // held while it is settled whose pods are watched
	owned  atomic.Pointer[owned] // nil before that

	denied  sync.Map  // what was logged as forbidden, once
	packers sync.Pool // of gzip writers

	mu      sync.Mutex         // everything below
	trouble map[string]trouble // by namespace that cannot be watched
	runs    map[string]knownRun
	output  map[types.UID]time.Time // last output of pods whose run asks for progress
	stuck   map[types.UID]string    // what events say of pods that do not start
	forced  map[types.UID]time.Time // when pods were first seen to be deleted by force
}

// knownRun is what is remembered of a run that was prepared.
type knownRun struct {
	key      repo.Key
	owner    types.UID // of its config map
	checked  time.Time // when that was seen last
	progress time.Duration
	gang     *party // of a job whose pods start together
	prepared time.Time
	attempt  int32  // that its service is to lead to
	bare     bool   // its service is to be made
	trouble  string // what keeps it from being
}

// New prepares a backend for a cluster that may be away: only Own and Runs wait
// for it. The backend works until Close.
func New(o Options) (*Backend, error) {
	if o.Environment == "" {
		return nil, errors.New("kubernetes runner: no environment")
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = -1, -1
	config.UserAgent = "trainyard/" + o.Environment
	// Resources of other vendors have no protobuf form.
	anything, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes runner: %w", err)
	}
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes runner: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Backend{
		options: o, client: client, dynamic: anything, work: ctx, cancel: cancel,
		writes: make(chan struct{}, inFlight), news: make(chan announcement, 1024), bare: make(chan struct{}, 1), gangs: newGangs(),
		trouble: map[string]trouble{}, runs: map[string]knownRun{}, output: map[types.UID]time.Time{}, stuck: map[types.UID]string{}, forced: map[types.UID]time.Time{},
	}
	b.done.Go(func() { b.inquire(ctx) })
	b.done.Go(func() { b.tend(ctx) })
	b.done.Go(func() { b.announceAll(ctx) })
	return b, nil
}

// Close ends the backend's own work. Pods run on.
func (b *Backend) Close() error {
	b.cancel()
	b.done.Wait()
	return nil
}

// Healthy says why the cluster's pods are not known, nil when they are.
func (b *Backend) Healthy() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(b.trouble)) {
		if t := b.trouble[n]; time.Since(t.at) <= stale {
			return t.err
		}
	}
	return nil
}

// degrades logs, once for each kind of thing, that the server does not let us
// do what jobs can do without, and says whether that is what err means.
func (b *Backend) degrades(what string, err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	if _, told := b.denied.LoadOrStore(what, struct{}{}); !told {
		b.options.Log.Warn().Err(err).Msg(what + "; jobs run on without")
	}
	return true
}

// write waits for a place among the writes, and for the answer no longer than
// patience. Its caller calls free.
func (b *Backend) write(ctx context.Context) (inner context.Context, free func(), err error) {
	select {
	case b.writes <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	inner, cancel := context.WithTimeout(ctx, patience)
	return inner, func() {
		cancel()
		<-b.writes
	}, nil
}
