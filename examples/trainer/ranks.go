package trainer

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// number reads a variable that has to be one.
func (c Config) number(name string) (int, error) {
	n, err := strconv.Atoi(c.Env(name))
	if err != nil {
		return 0, fmt.Errorf("%s is %q, want a number", name, c.Env(name))
	}
	return n, nil
}

// ranked is a member that finds the others by four variables.
func (c Config) ranked(host, port, rank, size string) (m member, err error) {
	if c.Env(host) == "" {
		return m, fmt.Errorf("%s is not set", host)
	}
	if _, err := c.number(port); err != nil {
		return m, err
	}
	if m.Rank, err = c.number(rank); err != nil {
		return m, err
	}
	m.Size, err = c.number(size)
	m.Address = net.JoinHostPort(c.Env(host), c.Env(port))
	return m, err
}

// together trains with the rest of a group, on a share of the data of its own.
func together(ctx context.Context, c Config, m member) error {
	g, err := join(ctx, m)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "rank %d of %d at %s: %d samples\n", m.Rank, m.Size, m.Address, c.Samples)
	return g.train(c, makeData(c.Samples, uint64(m.Rank)))
}

// pytorch finds the others as torch.distributed does by env://. What torchrun
// reads has to say the same; this program is one process of each node.
func pytorch(ctx context.Context, c Config) error {
	m, err := c.ranked("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
	if err != nil {
		return err
	}
	for name, same := range map[string]string{
		"PET_MASTER_ADDR": "MASTER_ADDR", "PET_MASTER_PORT": "MASTER_PORT", "PET_NODE_RANK": "RANK", "PET_NNODES": "WORLD_SIZE",
	} {
		if c.Env(name) != c.Env(same) {
			return fmt.Errorf("%s is %q, and %s %q", name, c.Env(name), same, c.Env(same))
		}
	}
	if n := c.Env("PET_NPROC_PER_NODE"); n != "1" && n != "auto" {
		return fmt.Errorf("PET_NPROC_PER_NODE is %q, want 1 or auto", n)
	}
	return together(ctx, c, m)
}

// jax finds the others by the variables of a JAXJob.
func jax(ctx context.Context, c Config) error {
	m, err := c.ranked("COORDINATOR_ADDRESS", "COORDINATOR_PORT", "PROCESS_ID", "NUM_PROCESSES")
	if err != nil {
		return err
	}
	return together(ctx, c, m)
}

// framework finds the others by what FrameworkController's barrier sets: the
// task of role server adds up what those of role worker compute.
func framework(ctx context.Context, c Config) error {
	servers, workers := strings.Split(c.Env("FB_SERVER_ADDRESSES"), ","), strings.Split(c.Env("FB_WORKER_IPS"), ",")
	if len(servers) != 1 || servers[0] == "" || workers[0] == "" {
		return fmt.Errorf("FB_SERVER_ADDRESSES is %q and FB_WORKER_IPS %q, want one server and some workers", c.Env("FB_SERVER_ADDRESSES"), c.Env("FB_WORKER_IPS"))
	}
	index, err := c.number("FC_TASK_INDEX")
	if err != nil {
		return err
	}
	m := member{Rank: index + 1, Size: len(workers) + 1, Address: servers[0]}
	switch role := c.Env("FC_TASKROLE_NAME"); role {
	case "worker":
		return together(ctx, c, m)
	case "server":
		m.Rank = 0
		return addUp(ctx, c, m)
	default:
		return fmt.Errorf("FC_TASKROLE_NAME is %q, want server or worker", role)
	}
}

// addUp is rank 0 of a group, and has no data of its own.
func addUp(ctx context.Context, c Config, m member) error {
	g, err := join(ctx, m)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "adds up for %d at %s\n", m.Size-1, m.Address)
	return g.train(c, data{})
}
