package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func newRenderCommand(sys system, p parts) *cobra.Command {
	var environment, output string
	cmd := &cobra.Command{
		Use:   "render [PATH...]",
		Short: "Print the pods that would be created",
		Long: `Render prints the pods of the first attempt of every job of the repository around
the working directory, or of the paths given. Addresses are symbolic: the
backend gives the real ones when the run starts. Problems go to standard error;
with an error among them the exit code is 1.`,
		Example: "  trainyard render jobs/mnist.yaml\n  trainyard render --env prod -o json | jq '.items[].metadata.name'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName(cmd, "env", environment); err != nil {
				return err
			}
			return printPods(cmd.Context(), sys, p, args, environment, output)
		},
	}
	cmd.Flags().StringVar(&environment, "env", repo.DefaultEnvironment, "the environment")
	choice(cmd.Flags(), &output, "output", "o", "yaml", "form of the output", "yaml", "json")
	return cmd
}

func printPods(ctx context.Context, sys system, p parts, args []string, environment, output string) error {
	tree, err := findTree(sys, args)
	if err != nil {
		return err
	}
	jobs, problems, err := tree.render(ctx, p, environment)
	if err != nil {
		return err
	}
	var pods []any
	for i := range jobs {
		of, err := podsOf(environment, &jobs[i])
		if err != nil {
			return err
		}
		pods = append(pods, of...)
	}
	if err := writeObjects(sys.Out, output, pods); err != nil {
		return err
	}
	problems = sorted(problems)
	for _, e := range problems {
		fmt.Fprintln(sys.Err, e.Error())
	}
	if errs, _ := repo.Split(problems); len(errs) > 0 {
		return errProblems
	}
	return nil
}

// podsOf are the pods of a job's first attempt, as objects without a status.
func podsOf(environment string, job *repo.Job) ([]any, error) {
	pods, err := firstAttempt(environment, job, func(role *repo.Role) int32 { return role.Replicas })
	if err != nil {
		return nil, err
	}
	out := make([]any, 0, len(pods))
	for _, pod := range pods {
		text, err := json.Marshal(pod)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", job.Key, err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, fmt.Errorf("render %s: %w", job.Key, err)
		}
		delete(object, "status") // it has none yet
		out = append(out, object)
	}
	return out, nil
}

// firstAttempt are so many pods of each role of a job's first attempt.
func firstAttempt(environment string, job *repo.Job, replicas func(*repo.Role) int32) (pods []*corev1.Pod, err error) {
	trigger := repo.Trigger{Kind: repo.TriggerPush}
	run := repo.Run{ID: repo.RunID(environment, job.Key, job.Digest, trigger), Environment: environment, Trigger: trigger, Job: *job}
	address := func(t repo.Task) repo.Address {
		a := repo.Address{Host: t.String() + "." + run.ID}
		if role := job.Role(t.Role); role != nil {
			a.Port = role.Port
		}
		return a
	}
	for r := range job.Roles {
		for i := range replicas(&job.Roles[r]) {
			pod, err := run.Pod(repo.TaskAttempt{Task: repo.Task{Role: job.Roles[r].Name, Index: i}}, address)
			if err != nil {
				return nil, fmt.Errorf("render %s: %w", job.Key, err)
			}
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// writeObjects prints a YAML stream, or a JSON list as kubectl does.
func writeObjects(w io.Writer, output string, objects []any) error {
	if output == "json" {
		if objects == nil {
			objects = []any{}
		}
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
