package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestRemovedLogs: what a kubelet says in place of a log is no log.
func TestRemovedLogs(t *testing.T) {
	path := "/var/log/pods/nlp_bert_1234/train/0.log"
	for _, row := range []struct {
		says    string
		removed bool
	}{
		{"unable to retrieve container logs for containerd://61a93aa17bfb193bc125", true},
		{fmt.Sprintf("failed to open log file %q: open %s: no such file or directory", path, path), true},
		{fmt.Sprintf("failed to try resolving symlinks in path %q: lstat %s: no such file or directory", path, path), true},
		{"", false},
		{"step 1\nstep 2\n", false},
		{"unable to retrieve container logs for containerd://61a93aa17bfb193bc125\n", false}, // which a program wrote
		{"unable to retrieve container logs for the night\n", false},
		{fmt.Sprintf("failed to open log file %q: no such file or directory\n", path), false},
		{"failed to open log file \"/data/a\"\nstarting anew", false},
		{"unable to retrieve container logs for containerd://" + strings.Repeat("6", 2*longestWord), false},
	} {
		t.Run(row.says[:min(len(row.says), 60)], func(t *testing.T) {
			pod := fullPod("bert")
			pod.APIVersion, pod.Kind, pod.Status.Phase = "v1", "Pod", corev1.PodFailed
			pod.ManagedFields = nil
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/log") {
					_, _ = io.WriteString(w, row.says)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				assert.NoError(t, json.NewEncoder(w).Encode(pod))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			b := &Backend{client: client}
			for _, tail := range []int64{0, 64 << 10} {
				for _, follow := range []bool{false, true} { // of a pod that has ended, both are the same
					log, err := b.Log(t.Context(), pod.Namespace, pod.Name, "", tail, follow)
					if row.removed {
						require.True(t, apierrors.IsNotFound(err), err)
						continue
					}
					require.NoError(t, err)
					text, err := io.ReadAll(log)
					require.NoError(t, err)
					require.NoError(t, log.Close())
					require.Equal(t, row.says, string(text))
				}
			}
		})
	}
}

func TestDecisiveContainer(t *testing.T) {
	ended := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	pod := fullPod("p")
	assert.Equal(t, "train", decisive(pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended("side", 0), ended("train", 1)}
	assert.Equal(t, "train", decisive(pod))
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{ended("fetch", 2)}
	assert.Equal(t, "fetch", decisive(pod))
	assert.Empty(t, decisive(&corev1.Pod{}))
}

func TestLastBytes(t *testing.T) {
	text := strings.Repeat("0123456789", 20_000)
	for _, n := range []int64{1, 7, 32 << 10, 199_999, 200_000, 1 << 30} {
		got, err := lastBytes(strings.NewReader(text), n)
		require.NoError(t, err)
		assert.Equal(t, text[max(0, len(text)-int(n)):], string(got))
	}
	_, err := lastBytes(io.MultiReader(strings.NewReader("a"), iotest.ErrReader(io.ErrUnexpectedEOF)), 5)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
