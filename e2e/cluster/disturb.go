package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	annotations  = "simulate.trainyard.dev/" // all of a simulated pod's begin so
	managedLabel = annotations + "node"      // of nodes that kwok speaks for
)

// Kill ends a component by SIGKILL: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler or kwok.
func (c *Cluster) Kill(t testing.TB, component string) {
	t.Helper()
	c.named(t, component).kill()
}

// Restart starts a component again, killed before if it runs, and waits until it is ready.
func (c *Cluster) Restart(t testing.TB, component string) {
	t.Helper()
	p := c.named(t, component)
	p.kill()
	if component == "kwok" {
		c.freeLeases(t)
	}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	waitFor, server := []*part{p}, c.named(t, "kube-apiserver")
	if component == "etcd" && server.running() {
		waitFor = append(waitFor, server) // it finds etcd again a moment later
	}
	if err := c.ready(t.Context(), waitFor...); err != nil {
		t.Fatalf("restart %s: %v", component, err)
	}
	// A kubelet asks again. kwok leaves a pod as it is, for ever, when a request
	// about it was cut off: another one takes up all of them.
	if slices.Contains([]string{"etcd", "kube-apiserver"}, component) && server.running() && c.named(t, "kwok").running() {
		c.Restart(t, "kwok")
	}
}

// Revive starts again what has ended by itself, as the kubelet of a control plane
// does, and says what that was: controllers do not outlive every moment at which
// they may lose the API server.
func (c *Cluster) Revive(t testing.TB) (revived []string) {
	t.Helper()
	if c.own == nil {
		return nil
	}
	for _, p := range c.parts {
		if !p.running() {
			continue
		}
		if err := p.died(); err != nil {
			t.Log(err)
			c.Restart(t, p.name)
			revived = append(revived, p.name)
		}
	}
	return revived
}

// freeLeases lets another kwok speak for the nodes at once: it would wait until
// the leases of the last one are over.
func (c *Cluster) freeLeases(t testing.TB) {
	t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: managedLabel + "=true"})
	if err != nil {
		return // the API server is away; then it takes longer
	}
	for _, node := range nodes.Items {
		err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.Context(), node.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("free the lease of %s: %v", node.Name, err)
		}
	}
}

func (c *Cluster) named(t testing.TB, component string) *part {
	t.Helper()
	if c.own == nil {
		skipIfGiven(t)
	}
	i := slices.IndexFunc(c.parts, func(p *part) bool { return p.name == component })
	if i < 0 {
		t.Fatalf("cluster: no component %q", component)
	}
	return c.parts[i]
}

// NeedSimulated skips a test, of a cluster of the user's own, unless that has
// simulated nodes: pods obey no annotations then.
func (c *Cluster) NeedSimulated(t testing.TB) {
	t.Helper()
	if c.own != nil {
		return
	}
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: managedLabel + "=true", Limit: 1})
	if err != nil {
		t.Fatalf("nodes: %v", err)
	}
	if len(nodes.Items) == 0 {
		t.Skipf("needs simulated nodes: run it without -cluster and %s", Variable)
	}
}

// SetNode makes a simulated node fall silent, with all its pods, or come back.
// The API server does not know at once: see Options.NodeGrace.
func (c *Cluster) SetNode(t testing.TB, node string, up bool) {
	t.Helper()
	c.NeedSimulated(t)
	var managed any // null removes it
	if up {
		managed = "true"
	} else {
		c.losePods(t, node)
	}
	patch := metadata(map[string]any{"labels": map[string]any{managedLabel: managed}})
	if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("set node %s: %v", node, err)
	}
	if up {
		for _, pod := range c.podsOn(t, node) {
			c.annotate(t, &pod, "lost", nil)
		}
	}
}

// losePods makes kwok forget what the pods of a node wait for: it would still
// let one end whose time is over, after their node has fallen silent.
func (c *Cluster) losePods(t testing.TB, node string) {
	t.Helper()
	if c.own != nil && !c.named(t, "kwok").running() {
		return
	}
	for _, pod := range c.podsOn(t, node) {
		if pod.Annotations[annotations+"lost"] == "" {
			c.annotate(t, &pod, "lost", "asked")
		}
	}
	wait(t, "the pods of "+node+" to be lost", func(context.Context) error {
		for _, pod := range c.podsOn(t, node) {
			if pod.Annotations[annotations+"lost"] == "asked" {
				return fmt.Errorf("%s/%s is not", pod.Namespace, pod.Name)
			}
		}
		return nil
	})
}

func (c *Cluster) podsOn(t testing.TB, node string) []corev1.Pod {
	t.Helper()
	pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatalf("pods of node %s: %v", node, err)
	}
	return pods.Items
}

// annotate says to kwok what becomes of a pod, unless the pod is gone.
func (c *Cluster) annotate(t testing.TB, pod *corev1.Pod, name string, value any) {
	t.Helper()
	patch := metadata(map[string]any{"annotations": map[string]any{annotations + name: value}})
	_, err := c.client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("annotate %s/%s: %v", pod.Namespace, pod.Name, err)
	}
}

// Finish ends the containers of a simulated pod with a code, once it runs, and
// waits until the pod says so.
func (c *Cluster) Finish(t testing.TB, namespace, pod string, code int) {
	t.Helper()
	c.NeedSimulated(t)
	patch := metadata(map[string]any{"annotations": map[string]any{
		annotations + "exit-code": fmt.Sprint(code), annotations + "run-for": nil,
	}})
	pods := c.client.CoreV1().Pods(namespace)
	if _, err := pods.Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("finish %s/%s: %v", namespace, pod, err)
	}
	wait(t, "the end of "+pod, func(ctx context.Context) error {
		p, err := pods.Get(ctx, pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil // ended, and somebody was quick
		}
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
}

// metadata is a merge patch of an object's.
func metadata(m map[string]any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": m})
	if err != nil {
		panic(err) // strings and nothing
	}
	return patch
}

// addNodes adds the simulated ones, node-0 and so on, and waits until pods can run on them.
func (c *Cluster) addNodes(ctx context.Context) error {
	has := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("96"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("1000"),
		"nvidia.com/gpu":                *resource.NewQuantity(int64(c.options.GPUs), resource.DecimalSI),
	}
	nodes := c.client.CoreV1().Nodes()
	for i := range c.options.Nodes {
		name := fmt.Sprintf("node-%d", i)
		_, err := nodes.Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", managedLabel: "true",
			}},
			Status: corev1.NodeStatus{Capacity: has, Allocatable: has},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("add node %s: %w", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return poll(ctx, func(ctx context.Context) error {
		if _, err := c.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range list.Items {
			if len(node.Spec.Taints) > 0 {
				return fmt.Errorf("node %s has taints: %v", node.Name, node.Spec.Taints)
			}
		}
		return nil
	})
}
