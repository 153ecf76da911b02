// Package trainer is the training program of the examples: softmax regression
// by synchronous data-parallel gradient descent. Its processes find each other
// by the variables of whichever job format started them, and exchange gradients
// over TCP: through a parameter server, or by adding them up at one of them. It
// uses the standard library alone, and is small enough to be read; it never
// pretends: the loss and the accuracy that it prints are computed, and variables
// that contradict each other, or what the others were told, are errors.
package trainer

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Config of a process of the training.
type Config struct {
	Env     func(name string) string // the environment, "" for what is not set
	Steps   int                      // of gradient descent
	Samples int                      // of each worker's share of the data
	Rate    float64
	Out     io.Writer // progress, a line each few steps

	Share     int // of the data, for a process that trains alone
	Processes int // that mpirun starts
}

// modes are the ways in which the processes of a training find each other.
func modes() map[string]func(context.Context, Config) error {
	return map[string]func(context.Context, Config) error{
		"tensorflow": tensorFlow,
		"mxnet":      mxnet,
		"pytorch":    pytorch,
		"jax":        jax,
		"framework":  framework,
		"mpirun":     mpirun,
		"mpi":        mpi,
		"alone":      alone,
	}
}

// Run is a process of the training, which finds the others as mode says. A
// parameter server serves until ctx ends; all others return when the last step
// is done.
func Run(ctx context.Context, mode string, c Config) error {
	run, ok := modes()[mode]
	if !ok {
		return fmt.Errorf("%q is not one of %s", mode, strings.Join(slices.Sorted(maps.Keys(modes())), ", "))
	}
	return run(ctx, c)
}

// alone trains on one share of the data, without any other process: what the
// tasks of a Job do, which are told their number and nothing of each other.
func alone(ctx context.Context, c Config) error {
	if c.Share < 0 {
		return fmt.Errorf("share %d: want a number from 0", c.Share)
	}
	g, err := join(ctx, member{Size: 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "alone with share %d: %d samples\n", c.Share, c.Samples)
	return g.train(c, makeData(c.Samples, uint64(c.Share)))
}
