package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/status"
)

// statusOptions are what `trainyard status` was asked for.
type statusOptions struct {
	remoteOptions
	Job      string
	Watch    bool
	Interval time.Duration
	Output   string
}

func newStatusCommand(sys system, p parts) *cobra.Command {
	var opts statusOptions
	cmd := &cobra.Command{
		Use:   "status [JOB]",
		Short: "What runs, waits, failed; read from the repository",
		Long: `Status reads the records on the status branch of --repo, or of the remote origin
of the checkout around the working directory (of the checkout itself if it has
no origin). It asks no daemon.

With --watch it goes on and prints what changes. With a job as well it ends when
the job has ended, with exit code 1 if the job failed.`,
		Example: "  trainyard status\n  trainyard status nlp/bert --watch\n  trainyard status --repo https://git.example.com/team/jobs --env prod -o json",
		Args:    arguments(cobra.MaximumNArgs(1), "[JOB]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				opts.Job = args[0]
			}
			if opts.Interval <= 0 {
				return usagef("status: --interval: %s is not above zero", opts.Interval)
			}
			return runStatus(cmd, sys, p, opts)
		},
	}
	addRemoteFlags(cmd.Flags(), &opts.remoteOptions)
	cmd.Flags().BoolVarP(&opts.Watch, "watch", "w", false, "go on and print what changes")
	cmd.Flags().DurationVar(&opts.Interval, "interval", 2*time.Second, "how often --watch looks")
	choice(cmd.Flags(), &opts.Output, "output", "o", "table", "form of the output", "table", "yaml", "json")
	return cmd
}

func runStatus(cmd *cobra.Command, sys system, p parts, o statusOptions) (err error) {
	r, err := openRecords(cmd, sys, p, o.remoteOptions)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.close(); err == nil {
			err = cerr
		}
	}()
	ctx := cmd.Context()
	for first := true; ; first = false {
		done, err := r.show(ctx, sys.Out, o, first)
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.Interval):
		}
	}
}

// show prints the records once, and says whether there is nothing left to wait for.
func (r *records) show(ctx context.Context, w io.Writer, o statusOptions, first bool) (done bool, err error) {
	_, all, changed, err := r.read(ctx)
	if err != nil || !first && !changed {
		return false, err
	}
	if o.Job == "" {
		if len(all) == 0 && o.Output == "table" && first {
			fmt.Fprintf(w, "no records yet in environment %s of %s, branch %s\n", o.Environment, redacted(r.opts.Repo), o.StatusBranch)
			return !o.Watch, nil
		}
		return !o.Watch, printRecords(w, o.Output, all, time.Now())
	}
	record, err := r.findRecord(o.Job, all)
	if err != nil {
		if o.Watch && len(all) == 0 {
			return false, nil // the daemon has not come to it yet
		}
		return false, err
	}
	if err := printRecord(w, o.Output, record, time.Now()); err != nil {
		return false, err
	}
	if o.Watch && (record.Phase == repo.PhaseFailed || record.Phase == repo.PhaseInvalid) {
		return true, errProblems
	}
	return !o.Watch || record.Phase.Ended(), nil
}

func printRecords(w io.Writer, output string, all []repo.Record, now time.Time) error {
	if all == nil {
		all = []repo.Record{}
	}
	if output != "table" {
		return printObject(w, output, all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "JOB\tPHASE\tTASKS\tRETRIES\tSTARTED\tTOOK\tREASON")
	for i := range all {
		rec := &all[i]
		started, took, retries, tasks := "-", "-", "-", "-"
		if run := rec.Run; run != nil {
			done, all, again := status.Progress(rec)
			started, took = run.StartedAt.UTC().Format(time.DateTime), span(run.StartedAt, run.FinishedAt, now)
			retries, tasks = fmt.Sprint(again), fmt.Sprintf("%d/%d", done, all)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", rec.Key(), rec.Phase, tasks, retries, started, took, rec.Reason)
	}
	return t.Flush()
}

// span is how long something took, or has taken until now.
func span(from metav1.Time, to *metav1.Time, now time.Time) string {
	end := now
	if to != nil {
		end = to.Time
	}
	return max(end.Sub(from.Time), 0).Round(time.Second).String()
}

func printRecord(w io.Writer, output string, rec *repo.Record, now time.Time) error {
	if output != "table" {
		return printObject(w, output, rec)
	}
	if err := printRecords(w, output, []repo.Record{*rec}, now); err != nil {
		return err
	}
	if rec.Message != "" && !slices.Contains(rec.Errors, rec.Message) {
		fmt.Fprintf(w, "\n%s\n", rec.Message)
	}
	for _, line := range append(rec.Errors, rec.Warnings...) {
		fmt.Fprintf(w, "%s\n", line)
	}
	if len(rec.Roles) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "TASK\tPHASE\tATTEMPT\tEXIT\tTOOK\tNODE\tREASON")
	for _, role := range rec.Roles {
		for _, task := range role.Tasks {
			fmt.Fprintf(t, "%s\t%s\t%s\n", task.Name, task.Phase, lastAttempt(task, now))
		}
	}
	return t.Flush()
}

// lastAttempt is the end of a task's line.
func lastAttempt(task repo.TaskRecord, now time.Time) string {
	if len(task.Attempts) == 0 {
		return "-\t-\t-\t-\t"
	}
	a := task.Attempts[len(task.Attempts)-1]
	exit, took, reason := "-", "-", cmp.Or(a.Waiting, a.Stop, a.Address)
	if a.StartedAt != nil {
		took = span(*a.StartedAt, a.FinishedAt, now)
	}
	if o := a.Outcome; o != nil {
		if o.ExitCode != nil {
			exit = fmt.Sprint(*o.ExitCode)
		}
		reason = strings.TrimSpace(string(o.Class) + " " + o.Reason)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", a.Attempt, exit, took, cmp.Or(a.Node, "-"), reason)
}

func printObject(w io.Writer, output string, object any) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(object)
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
