package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// forward carries connections that are made to an address on a node to one on
// the host: the API server listens on the host's loopback, where nobody on the
// node could reach it.
type forward struct {
	listener net.Listener
	target   string
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

// newForward listens on an address in the network namespace of a process.
func newForward(pid int, address, target string) (*forward, error) {
	l, err := listenIn(pid, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s of the node: %w", address, err)
	}
	f := &forward{listener: l, target: target}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.all.Go(func() { f.carry(c) })
		}
	})
	return f, nil
}

func (f *forward) carry(inner net.Conn) {
	defer inner.Close()
	var dialer net.Dialer
	outer, err := dialer.DialContext(f.ctx, "tcp", f.target)
	if err != nil {
		return // whoever connects sees a connection that is closed at once
	}
	defer outer.Close()
	// Both ends are closed when one is, or when the node ends.
	ctx, cancel := context.WithCancel(f.ctx)
	defer context.AfterFunc(ctx, func() { inner.Close(); outer.Close() })()
	defer cancel()
	f.all.Go(func() {
		defer cancel()
		_, _ = io.Copy(outer, inner)
	})
	_, _ = io.Copy(inner, outer)
}

// close ends all connections. The listener and they hold the namespace: only
// then can it end.
func (f *forward) close() {
	f.cancel()
	f.listener.Close()
	f.all.Wait()
}
