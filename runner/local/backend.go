package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/repo-layout/crash"
	"github.com/trainyard/trainyard/runner/changes"
)

// Options of a backend. The zero value is what a daemon uses.
type Options struct {
	// Executable with ShimArgs and a path behind them must call ShimMain(path).
	// By default this program with the argument "shim".
	Executable string
	ShimArgs   []string
	// Environ is the daemon's environment: PATH, LANG, LC_ALL, USER and TMPDIR
	// of it reach the pods, nothing else. Nil is the environment of this process.
	Environ []string
	// Capacity replaces what was found on the machine: cpu, memory, nvidia.com/gpu.
	Capacity corev1.ResourceList
	// LogLimit bounds a container's log: one file of that size is kept, and the
	// one before it. 10 MiB by default.
	LogLimit int64
	// RestartBackoff is the wait before a container's second restart in a row
	// (the first is at once); it doubles up to RestartBackoffMax. 10 s and 5 min by default.
	RestartBackoff    time.Duration
	RestartBackoffMax time.Duration
	// NoMounts runs every pod without private mounts.
	NoMounts bool
	Logger   zerolog.Logger

	// rescan is how often the directory is looked through although nobody said
	// that something changed: shims that were killed cannot say it.
	rescan time.Duration
	ask    time.Duration // how long nvidia-smi may take; 8 cold GPUs need 10 s and more
}

// Backend holds the pods of one environment as processes of this machine.
type Backend struct {
	dir, environment, node string
	options                Options
	base                   []string // environment of shims and containers
	machine                machine

	poke    chan struct{} // capacity 1: there is something to do
	changes changes.Feed  // of pods
	cancel  context.CancelFunc
	done    sync.WaitGroup
	socket  *net.UnixConn

	passing sync.Mutex // one pass at a time

	preparing sync.Mutex
	ports     map[string]runPorts // by directory of a run
	prepared  map[string]bool     // by run: since this backend was opened

	mu      sync.Mutex // everything below
	pods    map[string]*entry
	dropped map[string]*entry  // that were in pods and could not be read any more
	waiting map[string]string  // by directory: why a pod is not started
	shims   map[int]*shimChild // started by this daemon, not reaped yet
}

// New opens the state directory, takes over the pods that are in it, and keeps
// looking after them until Close.
func New(dir, environment string, o Options) (*Backend, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("local runner: %w", err)
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("local runner: %w", err)
	}
	for _, d := range []string{"pods", "runs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("local runner: %w", err)
		}
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := syncDir(d); err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("local runner: %w", err)
		}
	}
	node, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("local runner: name of this machine: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Backend{
		dir: dir, environment: environment, node: node, options: o, base: baseEnvironment(o.Environ),
		poke: make(chan struct{}, 1), cancel: cancel,
		pods: map[string]*entry{}, dropped: map[string]*entry{}, prepared: map[string]bool{}, waiting: map[string]string{}, shims: map[int]*shimChild{},
	}
	b.machine = measure(ctx, o, b.base)
	b.sweep()
	b.sweepRuns(ctx)
	b.endStrays()
	b.pass(true)
	b.listen()
	b.done.Go(func() { b.keep(ctx) })
	return b, nil
}

// Close ends the backend's own work. Pods run on.
func (b *Backend) Close() error {
	b.cancel()
	b.done.Wait()
	return nil
}

func (o *Options) complete() error {
	if o.Executable == "" {
		self, err := selfExecutable()
		if err != nil {
			return err
		}
		o.Executable = self
	}
	if o.ShimArgs == nil {
		o.ShimArgs = []string{"shim"}
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.LogLimit <= 0 {
		o.LogLimit = 10 << 20
	}
	if o.RestartBackoff <= 0 {
		o.RestartBackoff = 10 * time.Second
	}
	if o.RestartBackoffMax <= 0 {
		o.RestartBackoffMax = 5 * time.Minute
	}
	if o.rescan <= 0 {
		o.rescan = 2 * time.Second
	}
	if o.ask <= 0 {
		o.ask = 30 * time.Second
	}
	return nil
}

// sweepEvery is after how many rescans leftovers are looked for.
const sweepEvery = 30

// keep makes a pass whenever something changed, and one that looks at
// everything each rescan.
func (b *Backend) keep(ctx context.Context) {
	tick := time.NewTicker(b.options.rescan)
	defer tick.Stop()
	defer func() {
		if b.socket != nil {
			b.socket.Close()
		}
	}()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-b.poke:
			b.pass(false)
		case <-tick.C:
			b.pass(true)
			if n++; n%sweepEvery == 0 { // no room or no descriptor, and even removing fails
				b.sweep()
			}
			if b.socket != nil && !exists(filepath.Join(b.dir, socketName)) {
				b.socket.Close() // it was deleted: nobody would find it any more
				b.listen()
			}
		}
	}
}

// sweep removes what an interrupted Create, Delete or Forget left.
func (b *Backend) sweep() {
	parents := []string{filepath.Join(b.dir, "runs")}
	namespaces, _ := visible(filepath.Join(b.dir, "pods"))
	for _, n := range namespaces {
		parents = append(parents, filepath.Join(b.dir, "pods", n))
	}
	for _, parent := range parents {
		found, _ := os.ReadDir(parent)
		for _, f := range found {
			info, err := f.Info()
			made := strings.HasPrefix(f.Name(), ".new-")
			// A second daemon may be in the middle of a Create: only what is old is left over.
			if err != nil || !made && !strings.HasPrefix(f.Name(), ".gone-") || made && time.Since(info.ModTime()) < time.Minute {
				continue
			}
			crash.At(crash.Sweep, crash.Before)
			if err := scrub(filepath.Join(parent, f.Name())); err != nil {
				b.options.Logger.Warn().Err(err).Msg("remove leftovers")
			}
			crash.At(crash.Sweep, crash.After)
		}
	}
}

// sweepRuns removes the runs of which an interrupted Prepare wrote nothing:
// nobody knows them, so nobody would ever forget them.
func (b *Backend) sweepRuns(ctx context.Context) {
	unlock, err := b.exclusive(ctx) // or another daemon may be in the middle of a Prepare
	if err != nil {
		return
	}
	defer unlock()
	dirs, _ := b.runDirs()
	for _, dir := range dirs {
		if found, err := visible(dir); err != nil || len(found) > 0 {
			continue
		}
		crash.At(crash.Sweep, crash.Before)
		if err := scrub(dir); err != nil {
			b.options.Logger.Warn().Err(err).Msg("remove leftovers")
		}
		crash.At(crash.Sweep, crash.After)
	}
}

func (b *Backend) wake() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

func (b *Backend) podDir(namespace, name string) string {
	return filepath.Join(b.dir, "pods", namespace, name)
}

func (b *Backend) runDir(run string) string { return filepath.Join(b.dir, "runs", run) }

// keyOf is the job that a pod belongs to.
func keyOf(pod *corev1.Pod) repo.Key {
	return repo.Key{Namespace: pod.Namespace, Name: pod.Labels[repo.LabelJob]}
}
