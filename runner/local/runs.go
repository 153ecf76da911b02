package local

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/repo-layout/crash"
)

const (
	runFile  = "run.json"
	loopback = "127.0.0.1"
	// Ports are taken below those that systems give to outgoing connections, so
	// that none of these can take a port between its choice and its use.
	firstPort, lastPort = 20000, 32767
)

// ports is attempt-N.json: by task.
type ports map[string]int32

// Prepare keeps the run's definition and gives each of its tasks a port of its
// own for this attempt: the same ones on every later call.
func (b *Backend) Prepare(ctx context.Context, run *repo.Run, runAttempt int32) (repo.Addresses, error) {
	if problems := validation.IsDNS1123Label(run.ID); len(problems) > 0 {
		return nil, fmt.Errorf("prepare run %q: %s", run.ID, problems[0])
	}
	crash.At(crash.RunPrepare, crash.Before)
	dir := b.runDir(run.ID)
	// Two calls, of two daemons even, must not choose the same port.
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	defer unlock()
	b.preparing.Lock()
	defer b.preparing.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	if err := writeDurable(filepath.Join(dir, runFile), run); err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	path := portsFile(dir, runAttempt)
	own := ports{}
	if err := read(path, &own); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errDamaged) {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	if err := b.allocate(run, runAttempt, own); err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	if err := writeDurable(path, own); err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	b.prepared[run.ID] = true
	delete(b.ports, dir) // clocks of file systems are too coarse to tell two changes apart
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	crash.At(crash.RunPrepare, crash.After)
	return own.addresses, nil
}

func portsFile(dir string, runAttempt int32) string {
	return filepath.Join(dir, "attempt-"+strconv.Itoa(int(runAttempt))+".json")
}

func (p ports) addresses(t repo.Task) repo.Address {
	return repo.Address{Host: loopback, Port: p[t.String()]}
}

// allocate adds the ports that are missing.
func (b *Backend) allocate(run *repo.Run, runAttempt int32, own ports) error {
	taken, err := b.takenPorts()
	if err != nil {
		return err
	}
	for port := range maps.Values(own) {
		taken[port] = true
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", run.ID, runAttempt)
	next := h.Sum32()
	for _, role := range run.Job.Roles {
		for i := range role.Replicas {
			task := repo.Task{Role: role.Name, Index: i}.String()
			if own[task] != 0 {
				continue
			}
			port, err := freePort(&next, taken)
			if err != nil {
				return fmt.Errorf("a port for %s: %w", task, err)
			}
			own[task], taken[port] = port, true
		}
	}
	return nil
}

// takenPorts are those that any task of any run was given.
func (b *Backend) takenPorts() (map[int32]bool, error) {
	taken := map[int32]bool{}
	dirs, err := b.runDirs()
	if err != nil {
		return nil, err
	}
	known := make(map[string]runPorts, len(dirs))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		given, ok := b.ports[dir]
		if !ok || !given.at.Equal(info.ModTime()) {
			given.at = info.ModTime()
			if given.ports, err = portsOf(dir); err != nil {
				return nil, err
			}
		}
		known[dir] = given
		for _, port := range given.ports {
			taken[port] = true
		}
	}
	b.ports = known
	return taken, nil
}

// runPorts are all ports of a run, as read when its directory was last changed.
type runPorts struct {
	at    time.Time
	ports []int32
}

// portsOf reads the ports that the attempts of a run were given.
func portsOf(dir string) (all []int32, err error) {
	names, err := visible(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var given ports
		if !strings.HasPrefix(name, "attempt-") {
			continue
		}
		if err := read(filepath.Join(dir, name), &given); err != nil && !errors.Is(err, errDamaged) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = slices.AppendSeq(all, maps.Values(given))
	}
	return all, nil
}

// freePort looks for a port that nobody has been given and nobody listens on.
func freePort(next *uint32, taken map[int32]bool) (int32, error) {
	const span = lastPort - firstPort + 1
	for range span {
		port := int32(firstPort + *next%span)
		*next++
		if !taken[port] && listenable(port) {
			return port, nil
		}
	}
	for range 100 { // all are in use: whatever the system has
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return 0, err
		}
		port := int32(l.Addr().(*net.TCPAddr).Port)
		l.Close()
		if !taken[port] {
			return port, nil
		}
	}
	return 0, errors.New("no port is free")
}

// listenable tries a port on every address, as most programs listen.
func listenable(port int32) bool {
	for _, host := range []string{"", loopback} {
		l, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// Runs are the runs that Prepare has seen and Forget has not, by ID.
func (b *Backend) Runs(context.Context) ([]repo.Run, error) {
	dirs, err := b.runDirs()
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	runs := make([]repo.Run, 0, len(dirs))
	for _, dir := range dirs {
		var run repo.Run
		if err := read(filepath.Join(dir, runFile), &run); errors.Is(err, errDamaged) {
			// The runner prepares a run again before each pod: the file heals by itself.
			b.options.Logger.Warn().Err(err).Msg("a run's definition is unreadable")
			continue
		} else if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		if b.environment == "" || run.Environment == b.environment {
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// runDirs are the directories of runs, sorted: all of them or an error, as a
// run that is missing would be taken for lost.
func (b *Backend) runDirs() ([]string, error) {
	root := filepath.Join(b.dir, "runs")
	names, err := visible(root)
	for i := range names {
		names[i] = filepath.Join(root, names[i])
	}
	return names, err
}

// Jobs are those that have pods or runs here.
func (b *Backend) Jobs(ctx context.Context) ([]repo.Key, error) {
	runs, err := b.Runs(ctx)
	if err != nil {
		return nil, err
	}
	found := map[repo.Key]struct{}{}
	for i := range runs {
		found[runs[i].Job.Key] = struct{}{}
	}
	pods, err := b.list("")
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	for _, e := range pods {
		if key := keyOf(e.pod); key.Name != "" && b.ours(e.pod) {
			found[key] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b repo.Key) int { return compareText(a.String(), b.String()) }), nil
}

// Forget removes what Prepare made.
func (b *Backend) Forget(ctx context.Context, run, namespace string) error {
	if len(validation.IsDNS1123Label(run)) > 0 {
		return fmt.Errorf("forget run %q: not a run's name", run)
	}
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return fmt.Errorf("forget run %s: %w", run, err)
	}
	defer unlock()
	b.preparing.Lock()
	delete(b.prepared, run)
	b.preparing.Unlock()
	dir := b.runDir(run)
	if !exists(dir) {
		return nil
	}
	var known repo.Run
	if err := read(filepath.Join(dir, runFile), &known); err == nil && known.Job.Namespace != namespace {
		return nil
	}
	if err := discard(dir, crash.RunForget); err != nil {
		return fmt.Errorf("forget run %s: %w", run, err)
	}
	return nil
}

// configMaps are those of the run that a pod belongs to, by name.
func (b *Backend) configMaps(pod *corev1.Pod) (map[string]corev1.ConfigMap, error) {
	run, err := b.runOf(pod)
	if run == nil || err != nil {
		return nil, err
	}
	objects := run.Job.Objects
	if _, a, ok := repo.AttemptOf(pod); ok && slices.ContainsFunc(objects, func(o repo.Object) bool { return o.Expand }) {
		var own ports
		if err := read(portsFile(b.runDir(run.ID), a.RunAttempt), &own); err != nil {
			return nil, err
		}
		if objects, err = run.Objects(a.RunAttempt, own.addresses); err != nil {
			return nil, err
		}
	}
	return decodeConfigMaps(objects)
}

// exclusive takes the lock of the whole directory: of ports and of the machine's resources.
func (b *Backend) exclusive(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil { // somebody may have deleted it
		return nil, err
	}
	f, err := lock(filepath.Join(b.dir, lockFile), true)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}
