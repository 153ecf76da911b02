package runner

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Backend runs pods. Every call may be repeated; what it returns is what has
// really happened, also to calls whose answer was lost. Errors are classified
// by k8s.io/apimachinery/pkg/api/errors.
type Backend interface {
	// Prepare makes what one attempt of a run needs around its pods, durably:
	// the run's own definition, its objects, an address for each task.
	Prepare(ctx context.Context, run *repo.Run, attempt int32) (repo.Addresses, error)
	// Runs are those that Prepare has seen and Forget has not.
	Runs(ctx context.Context) ([]repo.Run, error)
	// Jobs that have pods.
	Jobs(ctx context.Context) ([]repo.Key, error)
	// Pods of a job, in any state. Forbidden: they may be there, but this backend
	// does not look into their namespace.
	Pods(ctx context.Context, key repo.Key) ([]corev1.Pod, error)
	// Create starts a pod. A second one of the same name is AlreadyExists; one
	// that can never run is Invalid, BadRequest, RequestEntityTooLarge or
	// Forbidden, unless that is about a quota, the namespace or the daemon's
	// own rights, which may pass; NotFound, when what Prepare made is gone.
	// Errors keep the server's own words.
	Create(ctx context.Context, pod *corev1.Pod) error
	// Delete asks a pod to end, within grace seconds if that is not nil, and
	// removes it when it has ended and is not held. A grace of 0 gives it up: it
	// has ended then, as Failed, even if its node does not answer. One that has ended by itself
	// and is held is a Conflict, without a grace of 0: nobody may think of it
	// as stopped, and its log stays.
	Delete(ctx context.Context, namespace, name, uid string, grace *int64) error
	// Release takes the record's finalizer off.
	Release(ctx context.Context, namespace, name, uid string) error
	// Forget removes what Prepare made, when the run's pods are gone.
	Forget(ctx context.Context, run, namespace string) error
	// Watch reports jobs whose pods changed, also before it was called when nobody
	// else watched, until ctx ends. A key without a name says that the backend is
	// back after it was away.
	Watch(ctx context.Context, changed func(repo.Key)) error
	// Log is the end of a container's log, of all containers if it is "".
	Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error)
}

// Rehearser is a Backend that can tell of pods, without starting any, whether
// it would take them: nil, or the error of the first that it would not, or
// could not be asked about. Names that are taken do not matter.
type Rehearser interface {
	Rehearse(ctx context.Context, pods []*corev1.Pod) error
}

// Finder is a Backend whose Pods may be behind. Find is a pod as it is now, whoever
// has heard of it; NotFound if there is none of that name that is ours.
type Finder interface {
	Find(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// Announcer is a Backend that shows at a pod what was decided about it. reason
// is one word in CamelCase. It never waits, and may forget.
type Announcer interface {
	Announce(ctx context.Context, namespace, pod, uid, reason, message string, warning bool)
}

// Source tells what should run, as far as it is known.
type Source interface {
	// Poll returns the definitions if they changed since the last call, else nil.
	// It does not wait.
	Poll() *repo.Definitions
}

// Ledger keeps records where they outlive everything else.
type Ledger interface {
	// Load reads all records of the environment, with their histories.
	Load(ctx context.Context) ([]repo.Record, error)
	// Publish brings changes to the remote. Without an error they are there;
	// pushed is false if they were there before.
	Publish(ctx context.Context, book Book) (pushed bool, err error)
}
