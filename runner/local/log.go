package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// logPoll is how often a followed log is looked at.
const logPoll = 100 * time.Millisecond

// Log returns the last tail bytes of a container's output (all that is kept
// when tail is not positive): of the pod's first container when none is named.
// With follow it goes on until the pod has ended or ctx ends.
func (b *Backend) Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error) {
	e, err := b.find(namespace, name, "")
	if err != nil {
		return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
	}
	if e == nil {
		return nil, apierrors.NewNotFound(podResource, name)
	}
	if container == "" {
		container = e.pod.Spec.Containers[0].Name
	}
	if (&source{pod: e.pod}).container(container) == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no container %q", name, container))
	}
	if tail <= 0 {
		tail = 1 << 40
	}
	path := logPath(e.dir, container)
	if !follow {
		return io.NopCloser(bytes.NewReader(tailOf(path, tail))), nil
	}
	f := &follower{ctx: ctx, dir: e.dir, path: path}
	// What is read first ends where the open file is read on from.
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
	}
	if f.file == nil {
		return f, nil
	}
	info, err := f.file.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
	}
	from := max(0, info.Size()-tail)
	f.first = lastBytes(previous(path), tail-(info.Size()-from))
	if _, err := f.file.Seek(from, io.SeekStart); err != nil {
		f.Close()
		return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
	}
	return f, nil
}

// follower reads a log while it grows.
type follower struct {
	ctx       context.Context
	dir, path string
	first     []byte
	file      *os.File
}

func (f *follower) open() error {
	file, err := os.Open(f.path)
	if err == nil {
		f.file = file
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}

func (f *follower) Read(p []byte) (int, error) {
	if len(f.first) > 0 {
		n := copy(p, f.first)
		f.first = f.first[n:]
		return n, nil
	}
	for {
		if err := f.ctx.Err(); err != nil {
			return 0, err
		}
		// Asked before the look: what was written before the end is then read.
		ended := !exists(f.dir) || exists(filepath.Join(f.dir, outcomeFile))
		turned := f.turned()
		if f.file != nil {
			if n, err := f.file.Read(p); n > 0 || !errors.Is(err, io.EOF) {
				return n, err
			}
		}
		if f.file == nil || turned {
			f.Close()
			if err := f.open(); err != nil {
				return 0, err
			}
			if f.file != nil {
				continue
			}
		}
		if ended {
			return 0, io.EOF
		}
		wait := time.NewTimer(logPoll)
		select {
		case <-f.ctx.Done():
			wait.Stop()
		case <-wait.C:
		}
	}
}

// turned says whether the log went on in another file.
func (f *follower) turned() bool {
	now, err := os.Stat(f.path)
	if err != nil || f.file == nil {
		return false
	}
	open, err := f.file.Stat()
	return err == nil && !os.SameFile(now, open)
}

// Close ends the reading.
func (f *follower) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
