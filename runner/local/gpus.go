package local

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const resourceGPU corev1.ResourceName = "nvidia.com/gpu"

// machine is what there is to give away.
type machine struct {
	capacity corev1.ResourceList
	gpus     []int // indices, as nvidia-smi counts them
	uuids    map[int]string
}

// measure looks at the machine once. Options.Capacity has the last word.
func measure(ctx context.Context, o Options, base []string) machine {
	m := machine{capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory(), resource.BinarySI),
	}}
	var err error
	if m.gpus, m.uuids, err = findGPUs(ctx, base); err != nil {
		o.Logger.Warn().Err(err).Msg("nvidia-smi: no GPU is used")
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

// findGPUs asks nvidia-smi; a machine without it has none.
func findGPUs(ctx context.Context, base []string) ([]int, map[int]string, error) {
	path, err := lookPath("nvidia-smi", "/", base)
	if err != nil {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--query-gpu=index,uuid,memory.total", "--format=csv,noheader")
	cmd.Env, cmd.WaitDelay = base, time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, err
	}
	var gpus []int
	uuids := map[int]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(line, ",")
		i, err := strconv.Atoi(strings.TrimSpace(f[0]))
		if err != nil || len(f) < 2 {
			return nil, nil, errors.New("unexpected answer: " + strconv.Quote(strings.TrimSpace(line)))
		}
		gpus = append(gpus, i)
		uuids[i] = strings.TrimSpace(f[1])
	}
	return gpus, uuids, nil
}
