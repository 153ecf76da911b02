package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// counts are how many processes there are, as each of them was told.
type counts struct{ Servers, Workers int }

// node is what a process tells the scheduler: its role, and where a server listens.
type node struct {
	Role    string
	Address string
	Told    counts
}

// place is the answer, when all have come.
type place struct {
	Rank   int // among those of its role
	Server string
}

// mxnet is a scheduler, a server or a worker, as MXNet's parameter server has
// them: only the scheduler's address is known, and it tells the others'.
func mxnet(ctx context.Context, c Config) error {
	var told counts
	var err error
	if told.Workers, err = c.number("DMLC_NUM_WORKER"); err != nil {
		return err
	}
	if told.Servers, err = c.number("DMLC_NUM_SERVER"); err != nil {
		return err
	}
	if told.Servers != 1 || told.Workers < 1 {
		return fmt.Errorf("DMLC_NUM_SERVER is %d and DMLC_NUM_WORKER %d, want one server and some workers", told.Servers, told.Workers)
	}
	if _, err := c.number("DMLC_PS_ROOT_PORT"); err != nil {
		return err
	}
	root := net.JoinHostPort(c.Env("DMLC_PS_ROOT_URI"), c.Env("DMLC_PS_ROOT_PORT"))
	switch role := c.Env("DMLC_ROLE"); role {
	case "scheduler":
		return schedule(ctx, root, told, c)
	case "server", "worker":
		return scheduled(ctx, root, node{Role: role, Told: told}, c)
	default:
		return fmt.Errorf("DMLC_ROLE is %q, want scheduler, server or worker", role)
	}
}

// scheduled is a server or a worker.
func scheduled(ctx context.Context, root string, self node, c Config) error {
	conn, err := connect(ctx, root)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	defer conn.Close()
	var listener net.Listener
	if self.Role == "server" { // at the address by which this machine is seen, on any port
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
	if self.Role == "server" {
		return serve(ctx, listener, self.Told.Workers, c)
	}
	return work(ctx, here.Server, here.Rank, c)
}

// schedule waits for all others, tells them where the server is, and returns
// when the last worker has hung up.
func schedule(ctx context.Context, root string, told counts, c Config) error {
	came, err := admit(ctx, root, told)
	defer func() {
		for _, p := range came {
			_ = p.conn.Close()
		}
	}()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "scheduler at %s: %d servers and %d workers have come\n", root, told.Servers, told.Workers)
	for _, p := range came {
		if err := p.enc.Encode(p.place); err != nil {
			return err
		}
	}
	for _, p := range came {
		if p.Role != "worker" {
			continue
		}
		if more, err := p.introduced(ctx); !errors.Is(err, io.EOF) {
			return fmt.Errorf("worker %d: %w, not its end (%v)", p.Rank, err, more)
		}
	}
	return nil
}

// admitted is a process that the scheduler knows.
type admitted struct {
	*peer
	node
	place
}

// introduced reads what the process says of itself.
func (p *admitted) introduced(ctx context.Context) (n node, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.Close() })
	defer stop()
	err = p.dec.Decode(&n)
	return n, err
}

// admit waits until there are as many of each role as the scheduler was told.
func admit(ctx context.Context, root string, told counts) (came []*admitted, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	listener, err := listen(root)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	want, have, server := map[string]int{"server": told.Servers, "worker": told.Workers}, map[string]int{}, ""
	for len(came) < told.Servers+told.Workers {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return came, fmt.Errorf("%d servers and %d workers came: %w", have["server"], have["worker"], ctx.Err())
		}
		if err != nil {
			return came, err
		}
		p := &admitted{peer: newPeer(conn)}
		came = append(came, p)
		p.node, err = p.introduced(ctx)
		switch {
		case err != nil:
			return came, fmt.Errorf("%s does not say who it is: %w", conn.RemoteAddr(), err)
		case p.Told != told:
			return came, fmt.Errorf("a %s was told of %d servers and %d workers, and the scheduler of %d and %d", p.Role, p.Told.Servers, p.Told.Workers, told.Servers, told.Workers)
		case have[p.Role] >= want[p.Role]:
			return came, fmt.Errorf("a %s too many: want %d", p.Role, want[p.Role])
		case p.Role == "server":
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
