package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const resourceGPU corev1.ResourceName = "nvidia.com/gpu"

// machine is what there is to give away.
type machine struct {
	capacity corev1.ResourceList
	gpus     []int // indices, as nvidia-smi counts them
	uuids    map[int]string
	trouble  string // why its GPUs are not known
}

// measure looks at the machine once. Options.Capacity has the last word.
func measure(ctx context.Context, o Options, base []string) machine {
	m := machine{capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory(), resource.BinarySI),
	}}
	var err error
	if m.gpus, m.uuids, err = findGPUs(ctx, base, o.ask); err != nil {
		m.trouble = "nvidia-smi: " + err.Error()
		o.Logger.Warn().Err(err).Msg("nvidia-smi: no GPU is used until the daemon starts again")
	}
	if list, set := lookup(o.Environ, "CUDA_VISIBLE_DEVICES"); set && err == nil {
		m.gpus = m.within(list)
		if m.trouble == "" && len(m.gpus) == 0 {
			m.trouble = "CUDA_VISIBLE_DEVICES of the daemon leaves it none"
		}
	}
	for name, q := range o.Capacity {
		m.capacity[name] = q
	}
	if q, set := o.Capacity[resourceGPU]; set {
		n := int(max(0, q.Value()))
		for i := 0; len(m.gpus) < n; i++ {
			if !slices.Contains(m.gpus, i) {
				m.gpus = append(m.gpus, i)
			}
		}
		m.gpus = m.gpus[:n]
	}
	m.capacity[resourceGPU] = *resource.NewQuantity(int64(len(m.gpus)), resource.DecimalSI)
	return m
}

// within are the GPUs that the daemon itself was given: it has no others to
// give away. As CUDA does, it reads indices and (the beginnings of) UUIDs up to
// the first that it does not know.
func (m *machine) within(list string) []int {
	var mine []int
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		i := slices.IndexFunc(m.gpus, func(i int) bool {
			return word == strconv.Itoa(i) || strings.HasPrefix(word, "GPU-") && strings.HasPrefix(m.uuids[i], word)
		})
		if i < 0 || slices.Contains(mine, m.gpus[i]) {
			break
		}
		mine = append(mine, m.gpus[i])
	}
	return mine
}

// findGPUs asks nvidia-smi, and waits for so long; a machine without it has none.
func findGPUs(ctx context.Context, base []string, patience time.Duration) ([]int, map[int]string, error) {
	path, err := lookPath("nvidia-smi", "/", base)
	if err != nil {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := answer(ctx, path, base)
	if err != nil {
		return nil, nil, err
	}
	var gpus []int
	uuids := map[int]string{}
	for line := range strings.Lines(out) {
		f := strings.Split(line, ",")
		i, err := strconv.Atoi(strings.TrimSpace(f[0]))
		if err != nil || i < 0 || len(f) < 2 || slices.Contains(gpus, i) {
			return nil, nil, fmt.Errorf("unexpected answer: %.80q", strings.TrimSpace(line))
		}
		gpus = append(gpus, i)
		uuids[i] = strings.TrimSpace(f[1])
	}
	return gpus, uuids, nil
}

// answer is what nvidia-smi prints. A driver that hangs may keep even a killed
// process from ending, and nobody can wait for that: it is left to the system.
func answer(ctx context.Context, path string, base []string) (string, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	cmd := exec.CommandContext(ctx, path, "--query-gpu=index,uuid", "--format=csv,noheader")
	cmd.Env, cmd.WaitDelay = base, 100*time.Millisecond
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	go func() {
		out, err := cmd.Output()
		done <- result{out, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		give := time.NewTimer(time.Second)
		defer give.Stop()
		select {
		case r = <-done:
		case <-give.C:
		}
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("no answer in time: %w", ctx.Err())
	case errors.As(r.err, &exit):
		said, _, _ := strings.Cut(strings.TrimSpace(string(append(r.out, exit.Stderr...))), "\n")
		return "", fmt.Errorf("%w: %.120s", r.err, said)
	}
	return string(r.out), r.err
}
