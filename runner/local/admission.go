package local

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// demand is how much a pod needs: thousandths of CPUs, and units of everything else.
type demand map[corev1.ResourceName]int64

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// requests of a container: what it does not request, but limits, is requested.
func requests(c *corev1.Container) demand {
	d := demand{}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, q := range list {
			d[name] = amount(name, q)
		}
	}
	return d
}

// need is what a pod needs at most at one time: its containers together with
// its sidecars, or one init container with the sidecars before it.
func need(pod *corev1.Pod) demand {
	total, first := demand{}, demand{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		for name, n := range requests(c) {
			first[name] = max(first[name], total[name]+n)
			if sidecar(c) {
				total[name] += n
			}
		}
	}
	for i := range pod.Spec.Containers {
		for name, n := range requests(&pod.Spec.Containers[i]) {
			total[name] += n
		}
	}
	for name, n := range first {
		total[name] = max(total[name], n)
	}
	for name, q := range pod.Spec.Overhead {
		total[name] += amount(name, q)
	}
	delete(total, corev1.ResourceEphemeralStorage) // not counted here
	return total
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// admit gives room on the machine to waiting pods, oldest first. What has to
// wait keeps its share free: younger ones pass it only with what it does not need.
func (b *Backend) admit(all []*entry) {
	var waiting []*entry
	for _, e := range all {
		if e.outcome == nil && e.deletion == nil && b.ours(e.pod) && !e.placed() {
			waiting = append(waiting, e)
		}
	}
	if len(waiting) == 0 {
		return
	}
	unlock, err := b.exclusive(context.Background())
	if err != nil {
		b.options.Logger.Error().Err(err).Msg("admit pods")
		return
	}
	defer unlock()
	r := b.room(all)
	for _, p := range b.parties(all, waiting) {
		why := p.refusal(r)
		for _, e := range p.pods {
			told := why
			if told == "" {
				crash.At(crash.PodAdmit, crash.Before)
				if err := writeDurable(filepath.Join(e.dir, admittedFile), b.order(e.pod, r)); err != nil {
					told = err.Error()
				}
				crash.At(crash.PodAdmit, crash.After)
			}
			b.tellWhy(e, told)
		}
	}
}

// tellWhy keeps what a pod waits for, "" for nothing, and lets watches know.
func (b *Backend) tellWhy(e *entry, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why == "" {
		delete(b.waiting, e.dir)
	} else if b.waiting[e.dir] != why {
		b.waiting[e.dir] = why
		b.changes.Tell(keyOf(e.pod))
	}
}

// room is what is free, and who holds the rest.
type room struct {
	machine
	free    demand
	holders map[corev1.ResourceName][]string
	gpuFree []int
}

func (b *Backend) room(all []*entry) *room {
	r := &room{machine: b.machine, free: demand{}, holders: map[corev1.ResourceName][]string{}}
	for name, q := range b.machine.capacity {
		r.free[name] = amount(name, q)
	}
	used, unknown := map[int]bool{}, false
	for _, e := range all {
		if e.outcome != nil {
			continue
		}
		var o order
		err := readOptional(filepath.Join(e.dir, admittedFile), &o)
		if err == nil && o.At.IsZero() && !exists(filepath.Join(e.dir, shimFile)) {
			continue
		}
		d := need(e.pod)
		r.take(e.pod, d)
		// Whose GPUs cannot be read may have any of them.
		unknown = unknown || o.At.IsZero() && d[resourceGPU] > 0
		for gpus := range maps.Values(o.GPUs) {
			for _, i := range gpus {
				used[i] = true
			}
		}
	}
	for _, i := range b.machine.gpus {
		if !used[i] && !unknown {
			r.gpuFree = append(r.gpuFree, i)
		}
	}
	return r
}

func (r *room) take(pod *corev1.Pod, d demand) {
	for name, n := range d {
		if n > 0 {
			r.free[name] -= n
			r.holders[name] = append(r.holders[name], pod.Namespace+"/"+pod.Name)
		}
	}
}

// refusal says what has to be waited for before so much can be given away, ""
// for nothing. What is refused is kept from those behind, unless it can never be had.
func (r *room) refusal(who string, d demand) string {
	var never, wait []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		n, q := d[name], r.capacity[name]
		switch all := amount(name, q); {
		case n <= 0:
		case n > all:
			text := fmt.Sprintf("needs %s, this machine has %s", show(name, n), number(name, all))
			if name == resourceGPU && r.trouble != "" {
				text += " (" + r.trouble + ")"
			}
			never = append(never, text)
		case n > r.free[name] || name == resourceGPU && int(n) > len(r.gpuFree):
			wait = append(wait, fmt.Sprintf("needs %s, %s of %s free%s", show(name, n), number(name, max(0, r.free[name])), number(name, all), r.waitsFor(name)))
		}
	}
	if never != nil {
		return "can never run here: " + who + strings.Join(never, "; ")
	}
	if wait == nil {
		return ""
	}
	for name, n := range d {
		r.free[name] -= n
	}
	return who + strings.Join(wait, "; ")
}

func (r *room) waitsFor(name corev1.ResourceName) string {
	list := r.holders[name]
	if len(list) == 0 {
		return " (waits behind an older pod)"
	}
	more := ""
	if len(list) > 3 {
		more = fmt.Sprintf(" and %d more", len(list)-3)
		list = list[:3]
	}
	return " (waits for " + strings.Join(list, ", ") + more + ")"
}

// show is so much of a resource, in words: 1 GPU, 2.5 CPUs, 4Gi memory.
func show(name corev1.ResourceName, n int64) string {
	noun := string(name)
	one := n == 1
	switch name {
	case resourceGPU:
		noun = "GPUs"
	case corev1.ResourceCPU:
		noun, one = "CPUs", n == 1000
	default:
		one = false
	}
	if one {
		noun = noun[:len(noun)-1]
	}
	return number(name, n) + " " + noun
}

func number(name corev1.ResourceName, n int64) string {
	switch name {
	case corev1.ResourceCPU:
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	case corev1.ResourceMemory:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return strconv.FormatInt(n, 10)
}

// order gives a pod its place. Containers share no GPU; init containers, which
// have ended when the others start, are given the same ones again.
func (b *Backend) order(pod *corev1.Pod, r *room) order {
	o := order{
		At: time.Now(), Node: b.node, GPUs: map[string][]int{}, UUIDs: map[int]string{}, Capacity: b.machine.capacity, ShimArgs: b.options.ShimArgs,
		LogLimit: b.options.LogLimit, Backoff: b.options.RestartBackoff, BackoffMax: b.options.RestartBackoffMax, NoMounts: b.options.NoMounts,
	}
	d := need(pod)
	n := min(int(d[resourceGPU]), len(r.gpuFree))
	mine := r.gpuFree[:n]
	r.gpuFree = r.gpuFree[n:]
	r.take(pod, d)
	next := 0
	give := func(c *corev1.Container, keep bool) {
		k := int(requests(c)[resourceGPU])
		if k <= 0 || next+k > len(mine) {
			return
		}
		o.GPUs[c.Name] = mine[next : next+k]
		if keep {
			next += k
		}
	}
	for i := range pod.Spec.InitContainers {
		give(&pod.Spec.InitContainers[i], sidecar(&pod.Spec.InitContainers[i]))
	}
	for i := range pod.Spec.Containers {
		give(&pod.Spec.Containers[i], true)
	}
	for _, i := range mine {
		if id := b.machine.uuids[i]; id != "" {
			o.UUIDs[i] = id
		}
	}
	return o
}
