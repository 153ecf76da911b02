//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// request is one of: start a program under a name, signal the program of a
// name, run a command and answer when it has ended.
type request struct {
	ID     int            `json:"id"`
	Op     string         `json:"op"` // start, signal, run
	Name   string         `json:"name"`
	Args   []string       `json:"args"`
	Log    string         `json:"log"` // file that a started program writes to
	Signal syscall.Signal `json:"signal"`
}

// reply answers a request, or says that a started program has ended.
type reply struct {
	ID     int    `json:"id"`
	PID    int    `json:"pid,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
	Exited string `json:"exited,omitempty"` // name of the program
	Status string `json:"status,omitempty"`
}

// children are the programs of the node. Everything whose parent is gone is
// reaped here too, so that nobody else may wait for a process.
type children struct {
	mu     sync.Mutex
	out    *json.Encoder
	names  map[string]int
	exited map[int]func(syscall.WaitStatus)
	ended  chan os.Signal
}

func newChildren(out *json.Encoder) *children {
	c := &children{out: out, names: map[string]int{}, exited: map[int]func(syscall.WaitStatus){}, ended: make(chan os.Signal, 1)}
	signal.Notify(c.ended, syscall.SIGCHLD)
	return c
}

func (c *children) send(r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(r); err != nil {
		os.Exit(1) // nobody is left to serve
	}
}

func (c *children) handle(r request) {
	answer := reply{ID: r.ID}
	var err error
	switch r.Op {
	case "start":
		answer.PID, err = c.start(r)
	case "signal":
		err = c.signal(r.Name, r.Signal)
	case "run":
		if err = c.run(r); err == nil {
			return // answers when it has ended
		}
	default:
		err = fmt.Errorf("unknown request %q", r.Op)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	c.send(answer)
}

func (c *children) start(r request) (int, error) {
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	return c.fork(r.Args, log, func(pid int) { c.names[r.Name] = pid }, func(s syscall.WaitStatus) {
		c.mu.Lock()
		delete(c.names, r.Name)
		c.mu.Unlock()
		c.send(reply{Exited: r.Name, Status: describe(s)})
	})
}

func (c *children) signal(name string, s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, ok := c.names[name]
	if !ok {
		return fmt.Errorf("%s does not run", name)
	}
	return syscall.Kill(pid, s)
}

func (c *children) run(r request) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	ended := make(chan syscall.WaitStatus, 1)
	if _, err := c.fork(r.Args, write, func(int) {}, func(s syscall.WaitStatus) { ended <- s }); err != nil {
		read.Close()
		return err
	}
	go func() {
		defer read.Close()
		text, err := io.ReadAll(read)
		answer := reply{ID: r.ID, Output: string(text)}
		if status := <-ended; !status.Exited() || status.ExitStatus() != 0 {
			answer.Error = describe(status)
		} else if err != nil {
			answer.Error = err.Error()
		}
		c.send(answer)
	}()
	return nil
}

// fork starts a program with its output in out. The lock is held till ended is
// known for its PID, so that it cannot be reaped before.
func (c *children) fork(args []string, out *os.File, started func(pid int), ended func(syscall.WaitStatus)) (int, error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, err := syscall.ForkExec(program, args, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", program, err)
	}
	c.exited[pid] = ended
	started(pid)
	return pid, nil
}

// reap waits for whatever has ended, for as long as the node lives.
func (c *children) reap() {
	for range c.ended {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
			c.mu.Lock()
			ended := c.exited[pid]
			delete(c.exited, pid)
			c.mu.Unlock()
			if ended != nil {
				ended(status)
			}
		}
	}
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
