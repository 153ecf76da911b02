package local

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) { o.LogLimit = 1000 })
	run(t, b, testPod("chatty", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"), corev1.PodSucceeded)
	text := logOf(t, b, "chatty", "")
	assert.LessOrEqual(t, len(text), 2000)
	assert.Greater(t, len(text), 1000)
	assert.True(t, strings.HasSuffix(text, "line 1998\nline 1999\n"))
	files, err := os.ReadDir(filepath.Join(b.podDir("ns", "chatty"), logsDir))
	require.NoError(t, err)
	assert.Len(t, files, 2)
	r, err := b.Log(context.Background(), "ns", "chatty", "main", 10, false)
	require.NoError(t, err)
	end, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "line 1999\n", string(end))
}

func TestLogFileTurns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	l := &logFile{path: path, limit: 10}
	_, err := l.Write(bytes.Repeat([]byte("0123456789"), 3))
	require.NoError(t, err)
	_, err = l.Write([]byte("abc"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	assert.Equal(t, "0123456789abc", string(tailOf(path, 100)))
	assert.Equal(t, "89abc", string(tailOf(path, 5)))
	assert.Equal(t, "bc", string(tailOf(path, 2)))
}

func TestFollow(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) { o.LogLimit = 64 })
	create(t, b, testPod("followed", "echo early; while ! test -f go; do sleep 0.01; done; echo middle; sleep 0.3; echo late"))
	eventually(t, "first line", func() bool { return logOf(t, b, "followed", "") == "early\n" })
	r, err := b.Log(context.Background(), "ns", "followed", "", 4, true)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, os.WriteFile(filepath.Join(b.podDir("ns", "followed"), workDir, "go"), nil, 0o600))
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "rly\nmiddle\nlate\n", string(text))

	create(t, b, testPod("endless", "echo up; sleep 1000"))
	ctx, cancel := context.WithCancel(context.Background())
	r, err = b.Log(ctx, "ns", "endless", "", 0, true)
	require.NoError(t, err)
	defer r.Close()
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = io.ReadAll(r)
	assert.ErrorIs(t, err, context.Canceled)

	_, err = b.Log(context.Background(), "ns", "nobody", "", 0, false)
	assert.True(t, apierrors.IsNotFound(err))
	_, err = b.Log(context.Background(), "ns", "followed", "../../x", 0, false)
	assert.True(t, apierrors.IsBadRequest(err))
}

func TestLastOutputIsTold(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	before := time.Now().Add(-time.Second)
	pod := run(t, b, testPod("speaks", "echo hello"), corev1.PodSucceeded)
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[repo.AnnotationOutput])
	require.NoError(t, err)
	assert.True(t, at.After(before) && at.Before(time.Now().Add(time.Second)))
	pod = run(t, b, testPod("silent", "true"), corev1.PodSucceeded)
	assert.Empty(t, pod.Annotations[repo.AnnotationOutput])
}

// A full disk costs output, never the program that writes it, and the end of
// the output comes when there is room again.
func TestLogOnAFullDisk(t *testing.T) {
	t.Parallel()
	if !exists("/dev/full") {
		t.Skip("no /dev/full here")
	}
	path := filepath.Join(t.TempDir(), "x.log")
	require.NoError(t, os.Symlink("/dev/full", path))
	l := &logFile{path: path, limit: 1 << 20}
	for range 10_000 {
		n, err := l.Write([]byte("0123456789"))
		require.NoError(t, err)
		assert.Equal(t, 10, n)
	}
	assert.ErrorIs(t, l.Close(), unix.ENOSPC)
	assert.Len(t, l.waiting, unsaved, "memory is not eaten up")
	require.NoError(t, os.Remove(path))
	require.NoError(t, l.Close())
	assert.Len(t, tailOf(path, 1<<20), unsaved)
	_, err := l.Write([]byte("there is room again"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	assert.Equal(t, "56789there is room again", string(tailOf(path, 24)))
}
