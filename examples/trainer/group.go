package trainer

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
)

// member is what a process was told of its place in a group. It says so when it
// joins, and is refused when the first member was told something else.
type member struct {
	Rank     int
	Size     int
	Address  string       // of rank 0
	listener net.Listener // of rank 0, if it has one already
}

// peer is a connection to another member.
type peer struct {
	conn net.Conn
	enc  *gob.Encoder
	dec  *gob.Decoder
}

func newPeer(conn net.Conn) *peer {
	return &peer{conn: conn, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn)}
}

// group are processes that add up vectors: rank 0 collects those of all, and
// sends back the sum.
type group struct {
	member
	peers []*peer // of rank 0 all others, of the others rank 0
	stop  func() bool
}

// join waits until all members of the group are connected.
func join(ctx context.Context, m member) (*group, error) {
	if m.Size < 1 || m.Rank < 0 || m.Rank >= m.Size {
		return nil, fmt.Errorf("rank %d of %d: there is no such rank", m.Rank, m.Size)
	}
	g := &group{member: m}
	var err error
	if m.Rank > 0 {
		err = g.enter(ctx)
	} else if m.Size > 1 {
		err = g.gather(ctx)
	}
	g.stop = context.AfterFunc(ctx, g.hangUp)
	if err != nil {
		g.leave()
		return nil, fmt.Errorf("rank %d of %d at %s: %w", m.Rank, m.Size, m.Address, err)
	}
	return g, nil
}

// enter connects to rank 0.
func (g *group) enter(ctx context.Context) error {
	conn, err := connect(ctx, g.Address)
	if err != nil {
		return err
	}
	p := newPeer(conn)
	g.peers = []*peer{p}
	return p.enc.Encode(g.member)
}

// gather accepts all others. Their answer to joining is the first sum.
func (g *group) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	listener := g.listener
	if listener == nil {
		var err error
		if listener, err = listen(g.Address); err != nil {
			return err
		}
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	here := map[int]bool{0: true}
	for len(here) < g.Size {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d came: %w", len(here), g.Size, ctx.Err())
		}
		if err != nil {
			return err
		}
		p := newPeer(conn)
		g.peers = append(g.peers, p)
		other, err := p.introduced(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%s does not say who it is: %w", conn.RemoteAddr(), err)
		case other.Size != g.Size:
			return fmt.Errorf("rank %d was told of %d processes, and rank 0 of %d", other.Rank, other.Size, g.Size)
		case here[other.Rank]:
			return fmt.Errorf("two processes were told that they are rank %d", other.Rank)
		}
		here[other.Rank] = true
	}
	return nil
}

func (p *peer) introduced(ctx context.Context) (m member, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.Close() })
	defer stop()
	err = p.dec.Decode(&m)
	return m, err
}

// sum makes v the sum of all members' v.
func (g *group) sum(v []float64) error {
	if g.Rank > 0 {
		if err := g.peers[0].enc.Encode(v); err != nil {
			return fmt.Errorf("to rank 0: %w", err)
		}
		return g.peers[0].receive(v, func(i int, x float64) { v[i] = x })
	}
	for _, p := range g.peers {
		if err := p.receive(v, func(i int, x float64) { v[i] += x }); err != nil {
			return err
		}
	}
	for _, p := range g.peers {
		if err := p.enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) receive(v []float64, take func(int, float64)) error {
	var got []float64
	if err := p.dec.Decode(&got); err != nil {
		return fmt.Errorf("from %s: %w", p.conn.RemoteAddr(), err)
	}
	if len(got) != len(v) {
		return fmt.Errorf("from %s: %d numbers, want %d", p.conn.RemoteAddr(), len(got), len(v))
	}
	for i, x := range got {
		take(i, x)
	}
	return nil
}

// train is gradient descent on the data of all members; one without data only
// adds up. Rank 0 returns when all others have.
func (g *group) train(c Config, d data) error {
	defer g.leave()
	var w weights
	n := len(w)
	every := max(1, c.Steps/20)
	for step := 1; step <= c.Steps; step++ {
		v := make([]float64, n+3) // gradient, loss, accuracy, number of members with data
		if len(d.x) > 0 {
			gradient, loss, accuracy := d.gradient(&w)
			copy(v, gradient[:])
			v[n], v[n+1], v[n+2] = loss, accuracy, 1
		}
		if err := g.sum(v); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		for i := range w {
			w[i] -= c.Rate * v[i] / v[n+2]
		}
		if step%every == 0 || step == c.Steps {
			fmt.Fprintf(c.Out, "step %d/%d loss=%.4f acc=%.4f\n", step, c.Steps, v[n]/v[n+2], v[n+1]/v[n+2])
		}
	}
	return g.farewell()
}

// farewell of rank 0 is for all others to have hung up.
func (g *group) farewell() error {
	if g.Rank > 0 {
		return nil
	}
	for _, p := range g.peers {
		var more []float64
		if err := p.dec.Decode(&more); err == nil || !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s goes on behind the last step (%v)", p.conn.RemoteAddr(), err)
		}
	}
	return nil
}

func (g *group) leave() {
	g.stop()
	g.hangUp()
}

func (g *group) hangUp() {
	for _, p := range g.peers {
		_ = p.conn.Close()
	}
}
