package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// find is the pod of that name and UID ("" is any), or nil.
func (b *Backend) find(namespace, name, uid string) (*entry, error) {
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	e, err := b.entry(b.podDir(namespace, name))
	if err != nil || e == nil || uid != "" && string(e.pod.UID) != uid {
		return nil, err
	}
	return e, nil
}

// Delete asks a pod to end: it is told to, and killed when its grace period is
// over. A second Delete can only shorten the period. A pod that has ended is
// removed with its files; while the finalizer holds it, that is a Conflict
// unless override is 0. That the pod, or that very pod, is not there is what
// was asked for.
func (b *Backend) Delete(ctx context.Context, namespace, name, uid string, override *int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := b.find(namespace, name, uid)
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	if e == nil {
		return nil
	}
	if e.outcome != nil && e.held() && e.deletion == nil && (override == nil || *override > 0) {
		return apierrors.NewConflict(podResource, name, errors.New("it has ended by itself, and its record is not written yet"))
	}
	crash.At(crash.PodDelete, crash.Before)
	r := request{At: time.Now(), Grace: grace(e.pod, override)}
	if old := e.deletion; old == nil || r.deadline().Before(old.deadline()) {
		if err := writeDurable(filepath.Join(e.dir, deleteFile), r); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
		}
		crash.At(crash.PodDelete, crash.Half)
		// The shim looks at the file by itself, too; this only makes it prompt.
		if s, err := e.shim(); err == nil {
			_ = s.signal(unix.SIGUSR1)
		}
		e.deletion = &r
	}
	if err := b.removeDone(e); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	crash.At(crash.PodDelete, crash.After)
	b.wake()
	return nil
}

// Release removes the finalizer. A pod that is being deleted and has ended goes with it.
func (b *Backend) Release(ctx context.Context, namespace, name, uid string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := b.find(namespace, name, uid)
	if err != nil {
		return fmt.Errorf("release pod %s/%s: %w", namespace, name, err)
	}
	if e == nil {
		return nil
	}
	crash.At(crash.PodRelease, crash.Before)
	if e.held() {
		if err := writeDurable(filepath.Join(e.dir, releasedFile), time.Now()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("release pod %s/%s: %w", namespace, name, err)
		}
	}
	if err := b.removeDone(e); err != nil {
		return fmt.Errorf("release pod %s/%s: %w", namespace, name, err)
	}
	crash.At(crash.PodRelease, crash.After)
	b.wake()
	return nil
}

// removeDone removes a pod that has ended, was asked to go, and that nothing holds.
func (b *Backend) removeDone(e *entry) error {
	if e.outcome == nil || e.held() || e.deletion == nil {
		return nil
	}
	if err := discardMemory(e.pod.UID); err != nil {
		return err
	}
	if err := discard(e.dir, crash.PodRemove); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, e.dir)
	delete(b.dropped, e.dir)
	delete(b.waiting, e.dir)
	b.changes.Tell(keyOf(e.pod))
	return nil
}
