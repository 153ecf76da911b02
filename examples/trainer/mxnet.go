package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// node is what a process tells the scheduler: its role, and where a server listens.
type node struct {
	Role    string
	Address string
}

// place is the answer, when all have come.
type place struct {
	Rank   int // among those of its role
	Server string
}

// mxnet is a scheduler, a server or a worker, as MXNet's parameter server has
// them: only the scheduler's address is known, and it tells the others'.
func mxnet(ctx context.Context, c Config) error {
	workers, err := c.number("DMLC_NUM_WORKER")
	if err != nil {
		return err
	}
	servers, err := c.number("DMLC_NUM_SERVER")
	if err != nil {
		return err
	}
	if servers != 1 || workers < 1 {
		return fmt.Errorf("DMLC_NUM_SERVER is %d and DMLC_NUM_WORKER %d, want one server and some workers", servers, workers)
	}
	if _, err := c.number("DMLC_PS_ROOT_PORT"); err != nil {
		return err
	}
	root := net.JoinHostPort(c.Env("DMLC_PS_ROOT_URI"), c.Env("DMLC_PS_ROOT_PORT"))
	switch role := c.Env("DMLC_ROLE"); role {
	case "scheduler":
		return schedule(ctx, root, map[string]int{"server": servers, "worker": workers}, c)
	case "server", "worker":
		return scheduled(ctx, root, role, workers, c)
	default:
		return fmt.Errorf("DMLC_ROLE is %q, want scheduler, server or worker", role)
	}
}

// scheduled is a server or a worker.
func scheduled(ctx context.Context, root, role string, workers int, c Config) error {
	conn, err := connect(ctx, root)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	defer conn.Close()
	self := node{Role: role}
	var listener net.Listener
	if role == "server" { // at the address by which this machine is seen, on any port
		host, _, err := net.SplitHostPort(conn.LocalAddr().String())
		if err != nil {
			return err
		}
		if listener, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
			return err
		}
		defer listener.Close()
		self.Address = listener.Addr().String()
	}
	p := newPeer(conn)
	var here place
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := errors.Join(p.enc.Encode(self), p.dec.Decode(&here)); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	if role == "server" {
		return serve(ctx, listener, workers, c)
	}
	return work(ctx, here.Server, here.Rank, c)
}

// schedule waits for all others, tells them where the server is, and returns
// when the last worker has hung up.
func schedule(ctx context.Context, root string, want map[string]int, c Config) error {
	came, err := admit(ctx, root, want)
	defer func() {
		for _, p := range came {
			_ = p.conn.Close()
		}
	}()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "scheduler at %s: %d servers and %d workers have come\n", root, want["server"], want["worker"])
	for _, p := range came {
		if err := p.enc.Encode(p.place); err != nil {
			return err
		}
	}
	for _, p := range came {
		if p.Role != "worker" {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = p.conn.Close() })
		var more node
		err := p.dec.Decode(&more)
		if stop(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("worker %d: %v behind the last step", p.Rank, err)
		}
	}
	return ctx.Err()
}

// admitted is a process that the scheduler knows.
type admitted struct {
	*peer
	node
	place
}

// admit waits until there are as many of each role as there should be.
func admit(ctx context.Context, root string, want map[string]int) (came []*admitted, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	listener, err := net.Listen("tcp", root)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	have, server := map[string]int{}, ""
	for have["server"] < want["server"] || have["worker"] < want["worker"] {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return came, fmt.Errorf("%d servers and %d workers came: %w", have["server"], have["worker"], ctx.Err())
		}
		if err != nil {
			return came, err
		}
		p := &admitted{peer: newPeer(conn)}
		came = append(came, p)
		end := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err = p.dec.Decode(&p.node)
		if end(); err != nil {
			return came, fmt.Errorf("%s does not say who it is: %w", conn.RemoteAddr(), err)
		}
		if have[p.Role] >= want[p.Role] {
			return came, fmt.Errorf("a %s too many: want %d", p.Role, want[p.Role])
		}
		if p.Role == "server" {
			server = p.Address
		}
		p.Rank = have[p.Role]
		have[p.Role]++
	}
	for _, p := range came {
		p.Server = server
	}
	return came, nil
}
