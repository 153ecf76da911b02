package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// The messages of programs/init.
type (
	setup struct {
		Hostname string      `json:"hostname"`
		Empty    []string    `json:"empty"`
		Binds    [][2]string `json:"binds"`
	}
	request struct {
		ID     int            `json:"id"`
		Op     string         `json:"op"`
		Name   string         `json:"name"`
		Args   []string       `json:"args"`
		Log    string         `json:"log"`
		Signal syscall.Signal `json:"signal"`
	}
	reply struct {
		ID     int    `json:"id"`
		PID    int    `json:"pid"`
		Output string `json:"output"`
		Error  string `json:"error"`
		Exited string `json:"exited"`
		Status string `json:"status"`
	}
)

var errOff = errors.New("the node is off")

// machine is a node that is switched on: its init process, and all that runs
// below it.
type machine struct {
	cmd  *exec.Cmd
	pid  int
	logs string
	off  chan struct{} // closed when init has ended

	mu      sync.Mutex
	in      *json.Encoder
	next    int
	waiting map[int]chan reply
	running map[string]chan string // by name, of programs; has the status when one has ended
}

// boot starts init and waits till the node's file system is as setup says.
func boot(ctx context.Context, program, logs string, s setup) (*machine, error) {
	m := &machine{
		cmd: exec.Command(program), logs: logs, off: make(chan struct{}),
		waiting: map[int]chan reply{0: make(chan reply, 1)}, running: map[string]chan string{},
	}
	log, err := os.Create(filepath.Join(logs, "init.log"))
	if err != nil {
		return nil, fmt.Errorf("boot node: %w", err)
	}
	defer log.Close()
	m.cmd.Dir = "/"
	m.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	m.cmd.Stderr = log
	m.cmd.SysProcAttr = ownNamespaces()
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("boot node: %w", err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("boot node: %w", err)
	}
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("boot node: %w", err)
	}
	m.pid, m.in = m.cmd.Process.Pid, json.NewEncoder(in)
	ready := m.waiting[0]
	go m.listen(out)
	if err = m.in.Encode(s); err == nil {
		_, err = m.answer(ctx, ready)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("boot node: %w: %s", err, m.logTail("init")), m.stop())
	}
	return m, nil
}

// listen takes init's messages till it is gone.
func (m *machine) listen(out io.Reader) {
	defer close(m.off)
	for decoder := json.NewDecoder(out); ; {
		var r reply
		if decoder.Decode(&r) != nil {
			return
		}
		m.mu.Lock()
		if r.Exited != "" {
			m.running[r.Exited] <- r.Status
			delete(m.running, r.Exited)
		} else {
			m.waiting[r.ID] <- r
			delete(m.waiting, r.ID)
		}
		m.mu.Unlock()
	}
}

func (m *machine) answer(ctx context.Context, from chan reply) (reply, error) {
	select {
	case r := <-from:
		if r.Error != "" {
			return r, errors.New(r.Error)
		}
		return r, nil
	case <-m.off:
		return reply{}, errOff
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

func (m *machine) ask(ctx context.Context, r request) (reply, error) {
	if m == nil {
		return reply{}, errOff
	}
	m.mu.Lock()
	m.next++
	r.ID = m.next
	from := make(chan reply, 1)
	m.waiting[r.ID] = from
	if r.Op == "start" {
		m.running[r.Name] = make(chan string, 1)
	}
	err := m.in.Encode(r)
	m.mu.Unlock()
	if err != nil {
		return reply{}, errOff
	}
	return m.answer(ctx, from)
}

// start starts a program that stays. Its output goes to a file of its name.
func (m *machine) start(ctx context.Context, name string, args ...string) error {
	if m == nil {
		return errOff
	}
	_, err := m.ask(ctx, request{Op: "start", Name: name, Args: args, Log: filepath.Join(m.logs, name+".log")})
	if err != nil {
		m.mu.Lock()
		delete(m.running, name)
		m.mu.Unlock()
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// run runs a command on the node to its end.
func (m *machine) run(ctx context.Context, args ...string) (string, error) {
	r, err := m.ask(ctx, request{Op: "run", Args: args})
	if err != nil {
		return r.Output, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(r.Output))
	}
	return r.Output, nil
}

// kill ends a program, and returns when it is gone.
func (m *machine) kill(ctx context.Context, name string) error {
	if m == nil {
		return errOff
	}
	m.mu.Lock()
	gone, ok := m.running[name]
	m.mu.Unlock()
	if !ok {
		return fmt.Errorf("kill %s: it does not run", name)
	}
	if _, err := m.ask(ctx, request{Op: "signal", Name: name, Signal: syscall.SIGKILL}); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	select {
	case <-gone:
	case <-m.off:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// alive is an error if a program has ended.
func (m *machine) alive(name string) error {
	if m == nil {
		return errOff
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.running[name]; !ok {
		return fmt.Errorf("%s ended: %s", name, m.logTail(name))
	}
	return nil
}

func (m *machine) logTail(name string) string {
	text, err := os.ReadFile(filepath.Join(m.logs, name+".log"))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), 20)
}

// stop kills init, and with it, by the kernel, all that runs on the node. When
// it returns nothing does.
func (m *machine) stop() error {
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill node: %w", err)
	}
	<-m.off
	_ = m.cmd.Wait() // the status says that it was killed
	return nil
}
