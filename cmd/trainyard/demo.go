package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/cmd/daemon"
	"github.com/trainyard/trainyard/cmd/demo"
	"github.com/trainyard/trainyard/examples/trainer"
)

// runDemo is the body of `trainyard demo`.
func runDemo(ctx context.Context, o demoOptions, s streams) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "trainyard-demo-"); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	fmt.Fprintf(s.Out, "Trainyard's demo, in %s\n\n", o.Dir)
	failed, err := demo.Run(ctx, demo.Options{
		Dir: o.Dir, Program: program, Out: s.Out,
		Daemon: daemon.Options{
			Poll: 500 * time.Millisecond, Publish: time.Second, AuthorName: "Trainyard", AuthorEmail: "trainyard@localhost",
			Log: zerolog.New(zerolog.ConsoleWriter{Out: s.Err, NoColor: !s.Terminal, TimeFormat: time.TimeOnly}).Level(zerolog.WarnLevel).With().Timestamp().Logger(),
		},
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("demo: interrupted")
	case len(failed) > 0:
		return fmt.Errorf("demo: a job did not succeed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// newTrainerCommand is the training program of the examples and the demo.
func newTrainerCommand(sys system) *cobra.Command {
	config := trainer.Config{Out: sys.Out, Env: sys.env}
	cmd := &cobra.Command{
		Use:    "example-trainer [MODE]",
		Short:  "The training program of the examples: a task of a job, which finds the others as MODE says",
		Hidden: true,
		Args:   arguments(cobra.MaximumNArgs(1), "[MODE] [flags]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return trainer.Run(cmd.Context(), cmp.Or(strings.Join(args, ""), "tensorflow"), config)
		},
	}
	cmd.Flags().IntVar(&config.Steps, "steps", 300, "steps of gradient descent")
	cmd.Flags().IntVar(&config.Samples, "samples", 3000, "samples of each worker")
	cmd.Flags().Float64Var(&config.Rate, "rate", 1, "learning rate")
	cmd.Flags().IntVar(&config.Share, "share", 0, "share of the data, for MODE alone")
	cmd.Flags().IntVar(&config.Processes, "processes", 1, "processes to start, for MODE mpirun")
	return cmd
}
