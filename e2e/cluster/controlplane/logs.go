package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// logAnnotation holds what a simulated pod's containers have written. While it
// grows, those who follow the log see more of it.
const logAnnotation = "simulate.trainyard.dev/log"

// logServer answers for the kubelets of all simulated nodes when the API server
// asks for a container's log. kwok can serve files only, and one for all pods.
type logServer struct {
	client  kubernetes.Interface
	address string
	tls     *tls.Config
	cert    string
	key     string
}

// logsFrom takes from kwok's flags where nodes are said to listen.
func logsFrom(args []string) (*logServer, error) {
	s := &logServer{}
	var kubeconfig, port string
	flags := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	flags.StringVar(&kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&port, "node-port", "", "")
	flags.StringVar(&s.cert, "tls-cert-file", "", "")
	flags.StringVar(&s.key, "tls-private-key-file", "", "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s.address = "127.0.0.1:" + port
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	if s.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cfg.CAData)
	s.tls = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	return s, nil
}

func (s *logServer) serve() error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.log)
	server := &http.Server{Addr: s.address, Handler: mux, TLSConfig: s.tls, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServeTLS(s.cert, s.key)
}

func (s *logServer) log(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	text, ended, err := s.read(r.Context(), namespace, name, container)
	if err == nil && query.Get("previous") == "true" {
		err = fmt.Errorf("previous terminated container %q in pod %q not found", container, name)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := &clipped{to: w, left: -1, stamp: query.Get("timestamps") == "true"}
	if n, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64); err == nil {
		out.left = n
	}
	seen := len(text)
	out.write(tail(text, query.Get("tailLines")))
	for query.Get("follow") == "true" && !ended && out.left != 0 {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		if text, ended, err = s.read(r.Context(), namespace, name, container); err != nil {
			return // the pod is gone
		}
		if len(text) > seen {
			out.write(text[seen:])
			seen = len(text)
		}
	}
}

// read is what a container has written so far, and whether that is all. What it
// refuses, it refuses in the kubelet's words.
func (s *logServer) read(ctx context.Context, namespace, name, container string) (text string, ended bool, err error) {
	pod, err := s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", false, err
	}
	statuses := append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
	for _, status := range statuses {
		if status.Name != container {
			continue
		}
		if waiting := status.State.Waiting; waiting != nil {
			return "", false, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, name, waiting.Reason)
		}
		text, found := pod.Annotations[logAnnotation]
		if !found {
			text = fmt.Sprintf("%s: simulated\n", container)
		}
		return text, status.State.Terminated != nil, nil
	}
	return "", false, fmt.Errorf("container %q in pod %q is waiting to start: ContainerCreating", container, name)
}

// tail is the last lines of a text; all of them unless lines is a number.
func tail(text, lines string) string {
	n, err := strconv.Atoi(lines)
	if err != nil || n < 0 {
		return text
	}
	all := strings.SplitAfter(text, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return strings.Join(all[max(0, len(all)-n):], "")
}

// clipped writes at most so many bytes, each line with the time where asked.
type clipped struct {
	to    http.ResponseWriter
	left  int64 // -1 is without end
	stamp bool
}

func (c *clipped) write(text string) {
	if c.stamp {
		var stamped strings.Builder
		for line := range strings.Lines(text) {
			fmt.Fprintf(&stamped, "%s %s", time.Now().UTC().Format(time.RFC3339Nano), line)
		}
		text = stamped.String()
	}
	if c.left >= 0 {
		text = text[:min(int64(len(text)), c.left)]
		c.left -= int64(len(text))
	}
	_, _ = io.WriteString(c.to, text)
	_ = http.NewResponseController(c.to).Flush()
}
