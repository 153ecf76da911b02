package trainer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"
)

// Exchange is what a worker sends: its gradient of a step.
type Exchange struct {
	Worker   int
	Step     int
	Gradient []float64
	Loss     float64
	Accuracy float64
}

// State is what it gets back: the weights after that step, of all workers.
type State struct {
	Step     int // the next one to do
	Weights  []float64
	Loss     float64 // mean over the workers
	Accuracy float64
}

// Parameters is the parameter server: it waits at each step for all workers.
type Parameters struct {
	mu      sync.Mutex
	workers int
	rate    float64
	weights weights
	step    int
	waiting map[int]Exchange // by worker, for the present step
	last    State
	turned  chan struct{} // closed at the end of the present step
	done    <-chan struct{}
}

// Join tells a worker where the training stands: also one that was started again.
func (p *Parameters) Join(_ int, s *State) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	*s = State{Step: p.step, Weights: append([]float64(nil), p.weights[:]...)}
	return nil
}

// Push takes a gradient, and returns when the gradients of all workers are there.
func (p *Parameters) Push(e Exchange, s *State) error {
	p.mu.Lock()
	if len(e.Gradient) != len(p.weights) || e.Worker < 0 || e.Worker >= p.workers {
		p.mu.Unlock()
		return fmt.Errorf("worker %d sent %d numbers, want %d of one of %d workers", e.Worker, len(e.Gradient), len(p.weights), p.workers)
	}
	current := e.Step == p.step
	if current {
		p.waiting[e.Worker] = e // a repeated push replaces the first
	}
	turned := p.turned
	if len(p.waiting) == p.workers {
		p.turn()
	}
	p.mu.Unlock()
	if current {
		select {
		case <-turned:
		case <-p.done:
			return errors.New("the server is stopping")
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	*s = p.last
	s.Weights = append([]float64(nil), p.weights[:]...)
	s.Step = p.step
	return nil
}

// turn applies the mean gradient and opens the next step. The lock is held.
func (p *Parameters) turn() {
	p.last = State{}
	for _, e := range p.waiting {
		for i, g := range e.Gradient {
			p.weights[i] -= p.rate * g / float64(p.workers)
		}
		p.last.Loss += e.Loss / float64(p.workers)
		p.last.Accuracy += e.Accuracy / float64(p.workers)
	}
	p.step++
	p.waiting = map[int]Exchange{}
	close(p.turned)
	p.turned = make(chan struct{})
}

// serve is the parameter server's process. It closes the listener.
func serve(ctx context.Context, listener net.Listener, workers int, c Config) error {
	defer listener.Close()
	p := &Parameters{workers: workers, rate: c.Rate, waiting: map[int]Exchange{}, turned: make(chan struct{}), done: ctx.Done()}
	server := rpc.NewServer()
	if err := server.Register(p); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "parameter server for %d workers at %s\n", workers, listener.Addr())
	return accept(ctx, listener, server)
}

// accept serves connections until ctx ends, and waits for all of them.
func accept(ctx context.Context, listener net.Listener, server *rpc.Server) error {
	var open sync.WaitGroup
	defer open.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		open.Go(func() {
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer end()
			server.ServeConn(conn)
		})
	}
}
