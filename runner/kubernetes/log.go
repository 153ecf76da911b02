package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// shortLine is how long lines of logs are at least, taken together: a log is
	// asked for by lines, and wanted by bytes.
	shortLine = 16
	minLines  = 100
)

// Log returns the last tail bytes of a container's output (all that is kept
// when tail is not positive). Without a name it is the container that failed,
// else the first one. With follow it goes on until the container has ended. What
// its node has removed is NotFound.
func (b *Backend) Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error) {
	pod := b.find(namespace, name)
	if pod == nil {
		found, err := b.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
		}
		pod = found
	}
	if container == "" {
		container = decisive(pod)
	}
	follow = follow && !ended(pod)
	options := &corev1.PodLogOptions{Container: container, Follow: follow}
	if tail > 0 {
		lines := max(minLines, tail/shortLine)
		options.TailLines = &lines
	}
	if tail > 0 && !follow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience) // its node may be gone
		defer cancel()
	}
	stream, err := b.client.CoreV1().Pods(namespace).GetLogs(name, options).Stream(ctx)
	if apierrors.IsBadRequest(err) && ended(pod) {
		return io.NopCloser(bytes.NewReader(nil)), nil // it has never started
	}
	if err != nil {
		return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
	}
	if follow {
		return stream, nil
	}
	text, err := unlessRemoved(container, stream)
	if err == nil && tail > 0 {
		text, err = theEnd(text, tail)
	}
	if err != nil {
		_ = stream.Close()
		return nil, fmt.Errorf("log of pod %s/%s: %w", namespace, name, err)
	}
	return text, nil
}

// longestWord is how long what a kubelet says instead of a log is at most.
const longestWord = 1 << 10

// unlessRemoved is a log, if it is one. A kubelet that has removed a container
// says so where its log should be, and calls that a success
// (https://github.com/kubernetes/kubernetes/issues/142258).
func unlessRemoved(container string, stream io.ReadCloser) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(stream, longestWord)
	switch start, err := r.Peek(longestWord); {
	case err == io.EOF && removed.Match(start):
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "logs of containers"}, container)
	case err != nil && err != io.EOF:
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{r, stream}, nil
}

// removed is what a kubelet says of the log of a container that it has removed,
// without the end of a line that programs write.
var removed = regexp.MustCompile(`^(unable to retrieve container logs for \w+://\w+|failed to (open log file|try resolving symlinks in path) "/[^\n]+)$`)

// theEnd are the last n bytes of a log, which it closes.
func theEnd(log io.ReadCloser, n int64) (io.ReadCloser, error) {
	text, err := lastBytes(log, n)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(text)), log.Close()
}

// lastBytes reads to the end and keeps the last n bytes.
func lastBytes(r io.Reader, n int64) ([]byte, error) {
	var kept []byte
	chunk := make([]byte, 32<<10)
	for {
		m, err := r.Read(chunk)
		kept = append(kept, chunk[:m]...)
		if over := int64(len(kept)) - n; over > n { // now and then, not for each chunk
			kept = append(kept[:0], kept[over:]...)
		}
		if err == io.EOF {
			return kept[max(0, int64(len(kept))-n):], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// decisive is the container whose log says most: one that failed, init
// containers first, else the first.
func decisive(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
				return s.Name
			}
		}
	}
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Name
}
