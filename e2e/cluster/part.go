package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// errPort says that somebody else listens where we wanted to.
var errPort = errors.New("a port was taken by another process")

// startTime is the most that a start of something may take, on a machine that
// is busy with much else.
const startTime = 3 * time.Minute

// part is one process of the control plane: etcd, kube-apiserver, …
type part struct {
	name    string
	program string
	dir     string
	args    []string
	log     string // path
	health  string // URL that answers 200 when it is ready

	mutex sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has
	alive io.Closer     // its end of the pipe that tells the part that we live
}

func (p *part) start() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := &exec.Cmd{Path: p.program, Args: append([]string{p.name}, p.args...), Dir: p.dir, Stdout: log, Stderr: log}
	// A smaller heap for some more work: tests wait, they do not compute.
	cmd.Env = append(os.Environ(), "GOGC=50")
	if p.alive, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // how it ended stands in its log
		close(ended)
	}(p.ended)
	return nil
}

// kill ends the process, if it runs, and returns when it has ended.
func (p *part) kill() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.ended
	p.cmd = nil
}

// running says whether the process has been started, and not killed.
func (p *part) running() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.cmd != nil
}

// died is the error of a process that has ended by itself, nil while it runs.
func (p *part) died() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	select {
	case <-p.ended:
	default:
		return nil
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	said := string(text[max(0, len(text)-3000):])
	if strings.Contains(said, "address already in use") {
		return fmt.Errorf("%s: %w", p.name, errPort)
	}
	return fmt.Errorf("%s has ended:\n%s", p.name, said)
}

// ready waits until each part answers. An API server starts for some seconds,
// on a busy machine for many.
func (c *Cluster) ready(ctx context.Context, parts ...*part) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	probe, err := c.prober()
	if err != nil {
		return err
	}
	for _, p := range parts {
		for {
			if err := p.died(); err != nil {
				return err
			}
			answer := probeOnce(ctx, probe, p.health)
			if answer == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for %s: %w: %w", p.name, ctx.Err(), answer)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// prober asks as an administrator, and keeps no connection.
func (c *Cluster) prober() (*http.Client, error) {
	pool, cert, err := c.ca.adminTLS()
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}}, nil
}

func probeOnce(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// freePorts finds ports that nobody listens on. They lie below those that
// systems give to outgoing connections: a part that was killed finds its own again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer listener.Close() // after all are found, so that none is found twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errPort
}
