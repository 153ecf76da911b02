package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/status"
	"github.com/trainyard/trainyard/sync"
)

// A cluster is shared: by other repositories, which may have an environment of
// the same name, and by other clusters, on which somebody may have started a
// daemon for the same environment. So an environment's first daemon writes down
// on the status branch, before it starts anything, by which identity it marks
// its pods and which cluster they are on. Every later one keeps to that.

// sharing is a backend on which other repositories' pods run too.
type sharing interface {
	// Cluster is the identity of where the backend runs pods, "" if it cannot be known.
	Cluster(ctx context.Context) (string, error)
	// Own says of which repository the pods are that all else is about.
	Own(ctx context.Context, repository string) error
}

// elsewhereError says that an environment is bound to another cluster, or to none of ours.
type elsewhereError struct {
	file, branch, environment string
	theirs, ours              string // clusters; ours "" is this machine
}

func (e *elsewhereError) Error() string {
	here := "on this machine"
	if e.ours != "" {
		here = "on this one, " + e.ours
	}
	return fmt.Sprintf("environment %s runs on cluster %s, and nothing of it is started %s: name another environment, or if it is to move here, or that cluster was built anew, end its other daemon and delete the line \"cluster:\" of %s on branch %s",
		e.environment, e.theirs, here, e.file, e.branch)
}

// bind brings an environment and its backend together, whatever the branch says
// of it so far, and says whether it had to write to the branch. It is called
// before anything else is asked of the backend.
func (l *ledger) bind(ctx context.Context, tip fs.FS) (settled bool, err error) {
	there, err := l.binding(tip)
	if err != nil {
		return false, err
	}
	shares, ok := l.backend.(sharing)
	if !ok {
		if there.Cluster != "" {
			return false, l.elsewhere(there.Cluster, "")
		}
		return false, nil
	}
	cluster, err := shares.Cluster(ctx)
	if err != nil {
		return false, err
	}
	bound, err := l.agree(there, cluster)
	if err != nil {
		return false, err
	}
	if bound != there {
		settled = true
		if bound, err = l.settle(ctx, cluster); err != nil {
			return false, err
		}
	}
	l.bound = &bound
	return settled, shares.Own(ctx, bound.Repository)
}

// binding is what the tip of the branch says; the zero value is nothing.
func (l *ledger) binding(tip fs.FS) (repo.Binding, error) {
	if tip == nil {
		return repo.Binding{}, nil
	}
	b, err := status.ReadBinding(tip, l.shared.get(), l.environment)
	if err != nil {
		return b, fmt.Errorf("branch %s: %w", l.branch, err)
	}
	return b, nil
}

// agree is what a binding has to be, given what there is and where we are. What
// is not said is filled in; a cluster that is not ours is an error.
func (l *ledger) agree(there repo.Binding, cluster string) (repo.Binding, error) {
	if there.Cluster != "" && cluster != "" && there.Cluster != cluster {
		return there, l.elsewhere(there.Cluster, cluster)
	}
	return repo.Binding{
		APIVersion: repo.APIVersion, Kind: repo.BindingKind,
		Repository: cmp.Or(there.Repository, l.repository), Cluster: cmp.Or(there.Cluster, cluster),
	}, nil
}

func (l *ledger) elsewhere(theirs, ours string) error {
	return &elsewhereError{file: l.shared.get().Binding(l.environment), branch: l.branch, environment: l.environment, theirs: theirs, ours: ours}
}

// settle pushes the binding, and returns the one that is there in the end: of
// two daemons that begin at once, the second keeps to what the first has said.
func (l *ledger) settle(ctx context.Context, cluster string) (bound repo.Binding, err error) {
	_, err = l.mirror.Publish(ctx, gitsync.PublishRequest{
		Branch: l.branch, Author: l.author, When: time.Now(),
		Build: func(tip *gitsync.Snapshot) (map[string][]byte, string, error) {
			there, err := l.binding(tree(tip))
			if err != nil {
				return nil, "", err
			}
			if bound, err = l.agree(there, cluster); err != nil || bound == there {
				return nil, "", err
			}
			file, err := status.EncodeBinding(bound)
			return map[string][]byte{l.shared.get().Binding(l.environment): file}, status.BindingMessage(l.environment), err
		},
	})
	var elsewhere *elsewhereError
	switch {
	case errors.As(err, &elsewhere):
		return bound, elsewhere
	case err != nil:
		return bound, fmt.Errorf("write down where environment %s runs: %w", l.environment, err)
	}
	return bound, nil
}

// reboundError says that an environment is not ours any more.
type reboundError struct{ error }

func (e *reboundError) Unwrap() error { return e.error }

// rebound says why records must not be written under the binding that the tip
// has now, nil if they may. One that is not there any more is written again.
func (l *ledger) rebound(tip *gitsync.Snapshot) error {
	if l.bound == nil || tip == nil {
		return nil
	}
	there, err := l.binding(tip)
	if err == nil {
		_, err = l.agree(there, l.bound.Cluster)
	}
	if err == nil && there.Repository != "" && there.Repository != l.bound.Repository {
		err = fmt.Errorf("%s on branch %s says repository %s, and this daemon has begun as %s", l.shared.get().Binding(l.environment), l.branch, there.Repository, l.bound.Repository)
	}
	if err != nil {
		return &reboundError{err}
	}
	return nil
}

// isOvertaken says whether an error means that all has to be read again.
func isOvertaken(err error) bool {
	var newer *runner.OvertakenError
	var rebound *reboundError
	return errors.As(err, &newer) || errors.As(err, &rebound)
}

// tree is a snapshot as a file system; nil is none, and not a nil within one.
func tree(tip *gitsync.Snapshot) fs.FS {
	if tip == nil {
		return nil
	}
	return tip
}
