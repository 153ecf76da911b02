package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	registry    = "/run/trainyard-nodes"
	bridge      = "trainyard0"
	network     = "198.18.0.0/16"
	hostAddress = "198.18.0.1"
	statePrefix = "trainyard-node-"
	mostNodes   = 250 // on one machine
)

// place is what a node has of the host. Its file is locked for as long as its
// owner lives: one that can be locked was left by somebody who is dead.
type place struct {
	number int
	state  string // directory
	file   *os.File
}

func (p *place) cgroup() string  { return fmt.Sprintf("%s%d", cgroupPrefix, p.number) }
func (p *place) link() string    { return fmt.Sprintf("trainyard-n%d", p.number) }
func (p *place) address() string { return fmt.Sprintf("198.18.%d.1", p.number) }

// hardware is the address that others have learnt for the node: it is the same
// after a reboot, or they would not reach it for some seconds.
func (p *place) hardware() string { return fmt.Sprintf("02:c6:12:00:00:%02x", p.number) }

func placeFile(number int) string { return fmt.Sprintf("%s/%d", registry, number) }

// claim takes the first free number, makes what a node needs on the host, and
// removes what dead owners of other numbers left.
func claim(ctx context.Context) (*place, error) {
	lock, err := lockFile(registry+".lock", true)
	if err != nil {
		return nil, fmt.Errorf("claim a node: %w", err)
	}
	defer lock.Close()
	if err := os.MkdirAll(registry, 0o755); err != nil {
		return nil, fmt.Errorf("claim a node: %w", err)
	}
	if err := sweepDead(ctx); err != nil {
		return nil, err
	}
	for number := 1; number <= mostNodes; number++ {
		file, err := lockFile(placeFile(number), false)
		if err != nil {
			return nil, fmt.Errorf("claim a node: %w", err)
		}
		if file == nil {
			continue
		}
		p := &place{number: number, file: file}
		if err := p.make(ctx); err != nil {
			return nil, errors.Join(err, p.remove(ctx))
		}
		return p, nil
	}
	return nil, fmt.Errorf("claim a node: there are %d on this machine", mostNodes)
}

// make writes down what is about to be made before it is made.
func (p *place) make(ctx context.Context) error {
	var err error
	if p.state, err = os.MkdirTemp("", statePrefix); err != nil {
		return fmt.Errorf("make node: %w", err)
	}
	if err := json.NewEncoder(p.file).Encode(p.state); err != nil {
		return fmt.Errorf("make node: %w", err)
	}
	if exec.CommandContext(ctx, "ip", "link", "show", bridge).Run() != nil {
		if err := ip(ctx, "link", "add", bridge, "type", "bridge"); err != nil {
			return err
		}
	}
	if err := ip(ctx, "addr", "replace", hostAddress+"/16", "dev", bridge); err != nil {
		return err
	}
	return ip(ctx, "link", "set", bridge, "up")
}

// release gives the place back. Nothing of the node may run any more.
func (p *place) release(ctx context.Context) error {
	lock, err := lockFile(registry+".lock", true)
	if err != nil {
		return fmt.Errorf("release node: %w", err)
	}
	defer lock.Close()
	return p.remove(ctx)
}

// remove is called with the registry locked. The last one takes the bridge away.
func (p *place) remove(ctx context.Context) error {
	defer p.file.Close()
	p.unlink(ctx)
	err := errors.Join(removeCgroups(ctx, p.cgroup()), p.removeState(ctx))
	if err != nil {
		return fmt.Errorf("remove node %d: %w", p.number, err) // its file stays, so that the next one tries again
	}
	if err := os.Remove(placeFile(p.number)); err != nil {
		return fmt.Errorf("remove node %d: %w", p.number, err)
	}
	if os.Remove(registry) != nil { // others are there
		return nil
	}
	return ip(ctx, "link", "del", bridge)
}

// unlink removes the link to the node, which ends by itself with the node's
// network namespace, but a moment later.
func (p *place) unlink(ctx context.Context) {
	_ = exec.CommandContext(ctx, "ip", "link", "del", p.link()).Run() // mostly it is gone already
}

// removeState removes the directory. Programs that were killed with the node
// may still be on their way out.
func (p *place) removeState(ctx context.Context) error {
	if !strings.HasPrefix(filepath.Base(p.state), statePrefix) {
		return nil // never made
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		last = os.RemoveAll(p.state)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// sweepDead removes what those left who died before they could.
func sweepDead(ctx context.Context) error {
	for number := 1; number <= mostNodes; number++ {
		if _, err := os.Stat(placeFile(number)); err != nil {
			continue
		}
		file, err := lockFile(placeFile(number), false)
		if err != nil {
			return fmt.Errorf("claim a node: %w", err)
		}
		if file == nil {
			continue // alive
		}
		p := &place{number: number, file: file}
		_ = json.NewDecoder(file).Decode(&p.state) // empty: died before it had made anything
		if err := p.remove(ctx); err != nil {
			return err
		}
		if err := os.MkdirAll(registry, 0o755); err != nil {
			return fmt.Errorf("claim a node: %w", err)
		}
	}
	return nil
}

// connect makes the link between the bridge and the namespaces of a node.
func (p *place) connect(ctx context.Context, pid int) error {
	p.unlink(ctx) // of a node that was killed and boots again
	if err := ip(ctx, "link", "add", p.link(), "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(pid)); err != nil {
		return err
	}
	if err := ip(ctx, "link", "set", p.link(), "master", bridge, "up"); err != nil {
		return err
	}
	// Pods of an earlier boot had the same addresses, and others of this kind.
	return ip(ctx, "neigh", "flush", "dev", bridge, "to", fmt.Sprintf("198.18.%d.0/24", p.number))
}

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
