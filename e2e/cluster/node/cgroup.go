package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPrefix = "trainyard-node-"
)

// hierarchies are the mount points of cgroup hierarchies: one, of version 2, or
// one for each controller of version 1.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupRoot}, nil
	}
	found, err := filepath.Glob(cgroupRoot + "/*/cgroup.procs")
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("a node needs cgroups below %s", cgroupRoot)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found, nil
}

// unified says whether there is version 2 alone.
func unified() bool {
	_, err := os.Stat(cgroupRoot + "/cgroup.controllers")
	return err == nil
}

// makeCgroups makes the cgroup in which all pods of a node are. A cpuset of
// version 1 is empty at first, and no process can enter it.
func makeCgroups(name string) error {
	hierarchies, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := os.Mkdir(filepath.Join(h, name), 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if unified() || filepath.Base(h) != "cpuset" {
				continue
			}
			value, err := os.ReadFile(filepath.Join(h, f))
			if err != nil {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if err := os.WriteFile(filepath.Join(h, name, f), value, 0o644); err != nil {
				return fmt.Errorf("make cgroup: %w", err)
			}
		}
	}
	if !unified() {
		return nil
	}
	for _, dir := range []string{cgroupRoot, filepath.Join(cgroupRoot, name)} {
		if err := delegate(dir); err != nil {
			return err
		}
	}
	return nil
}

// delegate gives every controller of a version 2 cgroup to those below it.
func delegate(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for c := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("make cgroup: enable %s in %s: %w", c, dir, err)
		}
	}
	return nil
}

// removeCgroups removes the cgroup and all below it. The kernel takes a moment
// to let go of processes that have just died.
func removeCgroups(ctx context.Context, name string) error {
	hierarchies, err := hierarchies()
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		last = nil
		for _, h := range hierarchies {
			if err := removeTree(filepath.Join(h, name)); err != nil {
				last = err
			}
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", errors.Join(err, last))
	}
	return nil
}

// removeTree removes directories from the bottom; the files in them are the
// kernel's.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
