package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// rootVariable tells the processes of an MPIJob where the launcher adds up.
const rootVariable = "TRAINER_ROOT"

// mpirun is the launcher of an MPIJob: it starts a process for every slot of the
// host file, in the way that the operator gives to Open MPI's mpirun, and adds
// up what they compute.
func mpirun(ctx context.Context, c Config) error {
	file, agent := c.Env("OMPI_MCA_orte_default_hostfile"), c.Env("OMPI_MCA_plm_rsh_agent")
	if file == "" || agent == "" {
		return errors.New("OMPI_MCA_orte_default_hostfile or OMPI_MCA_plm_rsh_agent is not set: run this as the launcher of an MPIJob")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	places, err := slots(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(places) != c.Processes {
		return fmt.Errorf("%s has %d slots, want one for each of %d processes", file, len(places), c.Processes)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(c.Env("POD_IP"), "0"))
	if err != nil {
		return err
	}
	defer listener.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ranks sync.WaitGroup
	for rank, host := range places {
		ranks.Go(func() {
			if err := start(ctx, agent, host, rank, listener.Addr(), c); err != nil {
				cancel(fmt.Errorf("rank %d on %s: %w", rank, host, err))
			}
		})
	}
	err = addUp(ctx, c, member{Size: len(places) + 1, Address: listener.Addr().String(), listener: listener})
	if err != nil {
		cancel(err)
	}
	ranks.Wait()
	return context.Cause(ctx)
}

// slots are the hosts of a host file of Open MPI, "HOST slots=N" a line, each
// as often as it has slots.
func slots(file string) (hosts []string, err error) {
	for line := range strings.Lines(file) {
		host, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if host == "" {
			continue
		}
		count, ok := strings.CutPrefix(rest, "slots=")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 1 {
			return nil, fmt.Errorf("line %q: want a host and slots=N", line)
		}
		for range n {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}

// start runs one process on a host, to its end.
func start(ctx context.Context, agent, host string, rank int, root net.Addr, c Config) error {
	cmd := exec.CommandContext(ctx, agent, host, "env",
		fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", rank), fmt.Sprintf("OMPI_COMM_WORLD_SIZE=%d", c.Processes), fmt.Sprintf("%s=%s", rootVariable, root),
		"trainyard", "example-trainer", "mpi", fmt.Sprintf("--steps=%d", c.Steps), fmt.Sprintf("--samples=%d", c.Samples), fmt.Sprintf("--rate=%g", c.Rate))
	cmd.Stdout, cmd.Stderr = c.Out, c.Out
	return cmd.Run()
}

// mpi is a process that a launcher has started.
func mpi(ctx context.Context, c Config) error {
	rank, err := c.number("OMPI_COMM_WORLD_RANK")
	if err != nil {
		return err
	}
	size, err := c.number("OMPI_COMM_WORLD_SIZE")
	if err != nil {
		return err
	}
	c.Out = tagged{c.Out, fmt.Sprintf("[%d] ", rank)} // all write into the launcher's log
	return together(ctx, c, member{Rank: rank + 1, Size: size + 1, Address: c.Env(rootVariable)})
}

// tagged puts a tag before every line, each of which is one Write.
type tagged struct {
	out io.Writer
	tag string
}

func (t tagged) Write(line []byte) (int, error) {
	if _, err := t.out.Write(append([]byte(t.tag), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
