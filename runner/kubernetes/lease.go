package kubernetes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Times of a lease. Who could not renew it for leaseRenewal does not lead any
// more; who stands by takes it when it was not renewed for leaseTime: between
// the two nobody leads, whatever the clocks of two machines say.
const (
	leaseTime    = 15 * time.Second
	leaseRenewal = 10 * time.Second
	leaseRetry   = 2 * time.Second
)

// LeaseOptions say which daemons stand for election.
type LeaseOptions struct {
	Config      *rest.Config
	Namespace   string // of the lease
	Environment string // one daemon leads in each
	// Once lets Hold return with the server's error when it cannot even ask for
	// the lease, instead of trying again.
	Once bool
	// Hastened is told when a daemon that stands by asks this one, which leads, to
	// look at the repository. It may be nil, and must not wait.
	Hastened func()
	Log      zerolog.Logger
}

// Lease lets one daemon of an environment lead.
type Lease struct {
	options LeaseOptions
	lock    *resourcelock.LeaseLock
	refused chan error // has room for one

	mu      sync.Mutex
	trouble error  // why the lease cannot be had, as it was logged last
	leader  string // as it was last read
}

// NewLease prepares a lease on a cluster that may be away.
func NewLease(o LeaseOptions) (*Lease, error) {
	name := manager + "-" + o.Environment
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return nil, fmt.Errorf("lease %s: %s", name, strings.Join(wrong, "; "))
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = -1, -1
	config.UserAgent = "trainyard/" + o.Environment
	config.Timeout = leaseRenewal / 2 // a request that hangs leaves time for another one
	client, err := coordination.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", name, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("lease %s: name of this machine: %w", name, err)
	}
	return &Lease{options: o, refused: make(chan error, 1), lock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + rand.Text()[:8]},
		Labels:     map[string]string{repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: o.Environment},
	}}, nil
}

// Leader is the identity of who leads as far as it is known, this daemon's too.
func (l *Lease) Leader() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// Healthy says why the lease can neither be read nor renewed, nil when it can.
func (l *Lease) Healthy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// String names the lease.
func (l *Lease) String() string { return l.lock.Describe() }

// Hold calls lead whenever the lease is ours, with a context that ends with it,
// until lead returns by itself; its error is Hold's. When ctx ends, lead is to
// return soon: the lease is renewed until it has, and given back then, so that
// the next daemon need not wait for its end.
//
// A daemon that loses the lease stands for election again and does not exit:
// the usual reason is that the server is away, for everybody, and a process
// that exits each time is started again more and more slowly by its kubelet.
func (l *Lease) Hold(ctx context.Context, lead func(term context.Context) error) error {
	for ctx.Err() == nil {
		lost, err := l.term(ctx, lead)
		if !lost {
			return err
		}
		l.options.Log.Warn().Err(err).Msgf("lease %s is lost; this daemon stands by", l)
	}
	return nil
}

// term stands for election once, and leads to the end of the term.
func (l *Lease) term(ctx context.Context, lead func(context.Context) error) (lost bool, err error) {
	// The election goes on when ctx ends, until the work has ended too. What the
	// library has to say goes through observed instead of its own log.
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer stop()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &observed{l}, Name: l.String(), LeaseDuration: leaseTime, RenewDeadline: leaseRenewal, RetryPeriod: leaseRetry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { elected <- term },
			OnStoppedLeading: func() {},
		},
		// Not the library's release: after a loss it asks the server for another
		// ten seconds before it tells that the lease is lost.
		ReleaseOnCancel: false,
	})
	if err != nil {
		return false, fmt.Errorf("lease %s: %w", l, err)
	}
	var election sync.WaitGroup
	election.Go(func() { elector.Run(electing) })
	select {
	case <-ctx.Done():
	case err = <-l.refused:
		err = fmt.Errorf("lease %s cannot be had: %w", l, err)
	case term := <-elected:
		l.options.Log.Info().Msgf("lease %s is held; this daemon leads", l)
		err = lead(term)
		lost = term.Err() != nil
	}
	stop()
	election.Wait()
	if !lost && elector.IsLeader() {
		l.release(ctx)
	}
	return lost, err
}

// annotationHastened of a lease is when a daemon that stands by last had news.
const annotationHastened = "trainyard.dev/hastened"

// Hasten asks whoever leads to look at the repository soon: it finds that
// somebody has written its lease when it renews that.
func (l *Lease) Hasten(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenewal/2)
	defer cancel()
	leases := l.lock.Client.Leases(l.lock.LeaseMeta.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, l.lock.LeaseMeta.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationHastened, time.Now().UTC().Format(time.RFC3339Nano))
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
	if err != nil {
		return fmt.Errorf("hasten by lease %s: %w", l, err)
	}
	return nil
}

// release gives the lease back. If that fails it runs out by itself.
func (l *Lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenewal/2)
	defer cancel()
	record, _, err := l.lock.Get(ctx) // which takes the version that Update needs
	if err == nil && record.HolderIdentity == l.lock.Identity() {
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		err = l.lock.Update(ctx, *record)
	}
	if err != nil {
		l.options.Log.Warn().Err(err).Msgf("lease %s cannot be given back; it runs out in %s", l, leaseTime)
	}
}

// observed is the lock as the election uses it. It tells what the library only
// has a log line of its own for: who leads, and why the lease cannot be had.
type observed struct{ *Lease }

func (o *observed) Identity() string   { return o.lock.Identity() }
func (o *observed) Describe() string   { return o.lock.Describe() }
func (o *observed) RecordEvent(string) {}

func (o *observed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.lock.Get(ctx)
	if err == nil {
		o.read(record.HolderIdentity)
	}
	if apierrors.IsNotFound(err) {
		return record, raw, err // nobody has led yet
	}
	return record, raw, o.tell(ctx, err)
}

func (o *observed) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return o.written(ctx, record, o.lock.Create(ctx, record))
}

func (o *observed) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return o.written(ctx, record, o.lock.Update(ctx, record))
}

func (o *observed) written(ctx context.Context, record resourcelock.LeaderElectionRecord, err error) error {
	switch {
	case err == nil:
		o.read(record.HolderIdentity)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // another daemon was first
		if o.options.Hastened != nil && o.Leader() == o.Identity() {
			o.options.Hastened()
		}
		return err
	}
	return o.tell(ctx, err)
}

// read takes note of who leads. Between two leaders the last one is named.
func (o *observed) read(leader string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if leader == "" || leader == o.leader {
		return
	}
	o.leader = leader
	if leader != o.lock.Identity() {
		o.options.Log.Info().Msgf("lease %s: %s leads; this daemon stands by", o.lock.Describe(), leader)
	}
}

// tell logs an error of another cause than the last, and passes it on.
func (o *observed) tell(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return err // we were asked to end
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	news := err != nil && (o.trouble == nil || cause(o.trouble) != cause(err))
	o.trouble = err
	if err == nil {
		return nil
	}
	if o.options.Once && o.leader == "" {
		select {
		case o.refused <- err:
		default:
		}
	} else if news {
		o.options.Log.Warn().Err(err).Msgf("lease %s cannot be had or renewed", o.lock.Describe())
	}
	return err
}

// cause is what an error says without the request that met it: the election
// asks in turns for different things, and meets the same.
func cause(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err.Error()
	}
	return err.Error()
}
