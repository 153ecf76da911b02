package kubernetes

import (
	"context"
	"errors"
	"io"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Options of a Backend.
type Options struct {
	// Config says how the API server is reached. Its limits of requests are
	// taken off: the server's own priority and fairness decides.
	Config      *rest.Config
	Environment string
	// Namespaces that pods may run in; none is all of them, which needs a ClusterRole.
	Namespaces []string
	Log        zerolog.Logger
}

// Backend holds the pods of one environment on a cluster.
type Backend struct{ options Options }

// New connects to a cluster that may be away: only Runs waits for it. Close ends it.
func New(o Options) (*Backend, error) { return &Backend{options: o}, nil }

var errNothing = errors.New("kubernetes runner: not there")

// Close ends the backend's own work. Pods run on.
func (b *Backend) Close() error { return nil }

// Prepare implements runner.Backend.
func (b *Backend) Prepare(context.Context, *repo.Run, int32) (repo.Addresses, error) {
	return nil, errNothing
}

// Runs implements runner.Backend.
func (b *Backend) Runs(context.Context) ([]repo.Run, error) { return nil, errNothing }

// Jobs implements runner.Backend.
func (b *Backend) Jobs(context.Context) ([]repo.Key, error) { return nil, errNothing }

// Pods implements runner.Backend.
func (b *Backend) Pods(context.Context, repo.Key) ([]corev1.Pod, error) { return nil, errNothing }

// Create implements runner.Backend.
func (b *Backend) Create(context.Context, *corev1.Pod) error { return errNothing }

// Delete implements runner.Backend.
func (b *Backend) Delete(ctx context.Context, namespace, name, uid string, grace *int64) error {
	return errNothing
}

// Release implements runner.Backend.
func (b *Backend) Release(ctx context.Context, namespace, name, uid string) error { return errNothing }

// Forget implements runner.Backend.
func (b *Backend) Forget(ctx context.Context, run, namespace string) error { return errNothing }

// Watch implements runner.Backend.
func (b *Backend) Watch(ctx context.Context, changed func(repo.Key)) error { return errNothing }

// Log implements runner.Backend.
func (b *Backend) Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error) {
	return nil, errNothing
}
