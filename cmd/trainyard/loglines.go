package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// copyLog prints one pod's log, each line with its task before it when there
// are several.
func copyLog(ctx context.Context, out *lines, backend pods, pod *corev1.Pod, several bool, o logsOptions) error {
	skip, err := skipped(ctx, backend, pod, o)
	if err != nil {
		return fmt.Errorf("log of %s: %w", pod.Name, err)
	}
	log, err := backend.Log(ctx, pod.Namespace, pod.Name, o.Container, wholeLog, o.Follow)
	if err != nil {
		return fmt.Errorf("log of %s: %w", pod.Name, err)
	}
	defer log.Close()
	in := bufio.NewReaderSize(log, 64<<10)
	prefix := ""
	if several {
		_, a, _ := repo.AttemptOf(pod)
		prefix = a.String() + " | "
	}
	err = dropLines(in, skip)
	if err == nil {
		err = out.copy(prefix, in)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("log of %s: %w", pod.Name, err)
	}
	return nil
}

// wholeLog asks backends, which count in bytes, for all that is kept.
const wholeLog = -1

// skipped is how many lines of a log come before those that --tail asks for.
func skipped(ctx context.Context, backend pods, pod *corev1.Pod, o logsOptions) (int64, error) {
	if o.Tail < 0 {
		return 0, nil
	}
	log, err := backend.Log(ctx, pod.Namespace, pod.Name, o.Container, wholeLog, false)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	var count int64
	in := bufio.NewReaderSize(log, 64<<10)
	for {
		text, err := in.ReadSlice('\n')
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(text) > 0:
			count++
		case errors.Is(err, io.EOF):
			return max(0, count-o.Tail), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		}
	}
}

// dropLines reads away the first n lines.
func dropLines(in *bufio.Reader, n int64) error {
	for n > 0 {
		_, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			n--
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
	return nil
}

// lines keeps the lines of several logs whole.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// copy writes a log as it is, or with a prefix line by line; a line longer than
// the buffer becomes several.
func (l *lines) copy(prefix string, in *bufio.Reader) error {
	if prefix == "" {
		_, err := io.Copy(l.w, in)
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			l.mu.Lock()
			_, werr := fmt.Fprintf(l.w, "%s%s\n", prefix, bytes.TrimSuffix(line, []byte("\n")))
			l.mu.Unlock()
			if werr != nil {
				return werr
			}
		}
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}
