package trainer

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"time"
)

// work is a worker's process: it computes gradients on its share of the data.
func work(ctx context.Context, server string, index int, c Config) error {
	d := makeData(c.Samples, uint64(index))
	conn, err := connect(ctx, server)
	if err != nil {
		return fmt.Errorf("parameter server: %w", err)
	}
	client := rpc.NewClient(conn)
	defer client.Close()
	var s State
	if err := call(ctx, client, "Join", index, &s); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "worker %d: %d samples, joins %s at step %d\n", index, c.Samples, server, s.Step)
	every := max(1, c.Steps/20)
	for s.Step < c.Steps {
		var w weights
		copy(w[:], s.Weights)
		g, loss, accuracy := d.gradient(&w)
		e := Exchange{Worker: index, Step: s.Step, Gradient: g[:], Loss: loss, Accuracy: accuracy}
		if err := call(ctx, client, "Push", e, &s); err != nil {
			return err
		}
		if s.Step%every == 0 || s.Step >= c.Steps {
			fmt.Fprintf(c.Out, "step %d/%d loss=%.4f acc=%.4f\n", s.Step, c.Steps, s.Loss, s.Accuracy)
		}
	}
	return nil
}

// patience is how long a process waits for the others to come up.
const patience = 2 * time.Minute

// listen listens at a process's own address. On a cluster that is a name which
// its DNS may learn only later, so that the port is all that counts.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		address = ":" + port
	}
	return net.Listen("tcp", address)
}

// connect connects to a process that may start later than this one.
func connect(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-timer.C:
		}
	}
}

// call is a remote call that ends with ctx.
func call(ctx context.Context, client *rpc.Client, method string, args any, s *State) error {
	var answer State
	c := client.Go("Parameters."+method, args, &answer, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Done:
	}
	if c.Error != nil {
		return fmt.Errorf("%s: %w", method, c.Error)
	}
	*s = answer
	return nil
}
