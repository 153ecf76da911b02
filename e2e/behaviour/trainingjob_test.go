package behaviour

import (
	"fmt"
	"testing"
)

// training is a TrainingJob with more fields of its spec and one role of two
// workers, with more fields of its own.
func training(more, role string) string {
	if role != "" {
		role += ", "
	}
	return "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: job}\nspec:\n" + indented(more) +
		fmt.Sprintf("  roles:\n  - {name: worker, replicas: 2, %stemplate: {spec: {containers: [{name: main, image: \"i:1\", command: [run]}, {name: proxy, image: \"i:1\", command: [run]}]}}}\n", role)
}

const retries2 = "retry: {limit: 2}"

// TestTrainingJobTable: the built-in table, for a task of two retries.
func TestTrainingJobTable(t *testing.T) {
	t.Parallel()
	const counted, free = "Running; worker-0 retry", "Running; worker-0 free retry"
	file := training("", retries2)
	for _, tt := range []struct{ how, want string }{
		{"exits 1", counted},
		{"exits 2", counted},
		{"exits 126", "Failed CommandCannotRun"},
		{"exits 127", "Failed CommandCannotRun"},
		{"cannot run 128", "Failed CannotRun"},
		{"exits 128", counted},
		{"exits 130", counted},
		{"exits 132", "Failed IllegalInstruction"},
		{"exits 134", counted},
		{"exits 135", "Failed BusError"},
		{"exits 136", "Failed FloatingPointError"},
		{"exits 137", counted},
		{"OOMKilled", "Failed OOMKilled"},
		{"exits 138", counted},
		{"exits 139", "Failed SegmentationFault"},
		{"exits 143", counted},
		{"exits 200", counted},
		{"exits 201", counted},
		{"exits 210", "Failed PermanentExit"},
		{"exits 255", counted},
		{"evicted", free},
		{"preempted", free},
		{"loses node", free},
		{"is deleted", free},
		{"vanishes", free},
		{"fails", counted},
		{"exits 0", "Running; worker-0 Succeeded"},
	} {
		check(t, []row{{"built-in table: " + tt.how, file, "worker-0 " + tt.how, tt.want}})
	}
}

func TestTrainingJobRetries(t *testing.T) {
	t.Parallel()
	run := training("retry: {limit: 1}", "")
	own := func(rule string) string { return training("failureRules: [{"+rule+"}]", "retry: {limit: 1}") }
	daemon := training("", "") + "  - {name: ps, daemon: true, template: {spec: {containers: [{name: main, image: \"i:1\", command: [run]}]}}}\n"
	check(t, []row{
		{"no retry by default", training("", ""), "worker-0 exits 1", "Failed Exited"},
		{"task retry 2: two", training("", retries2), "worker-0 exits 1; worker-0 exits 137", "Running; worker-0 2 retries"},
		{"task retry 2: not three", training("", retries2), "worker-0 exits 1; worker-0 exits 137; worker-0 exits 1", "Failed Exited; worker-0 2 retries"},
		{"task retry 2: each task its own", training("", retries2), "worker-0 exits 1; worker-0 exits 1; worker-1 exits 1", "Running; worker-0 2 retries; worker-1 retry"},
		{"task retry: preemption does not eat the budget", training("", "retry: {limit: 1}"), "worker-0 preempted; worker-0 loses node; worker-0 exits 1; worker-0 evicted", "Running; worker-0 retry 3 free retries"},
		{"task retry -1: without end", training("", "retry: {limit: -1}"), repeat("worker-0 exits 1", 20), "Running; worker-0 20 retries"},
		{"run retry 1: all tasks start afresh", run, "worker-0 exits 0; worker-1 exits 1", "Running; run retry"},
		{"run retry 1: and once", run, "worker-1 exits 1; worker-0 exits 137", "Failed Killed; run retry"},
		{"run retry: not after a permanent failure", run, "worker-1 OOMKilled", "Failed OOMKilled"},
		{"run and task retry: tasks count anew", training("retry: {limit: 1}", "retry: {limit: 1}"), repeat("worker-0 exits 1", 3), "Running; run retry; worker-0 retry"},
		{"failureRules: before the table", own("name: Mine, exitCodes: [139], class: Transient"), "worker-0 exits 139", "Running; worker-0 retry"},
		{"failureRules: ranges", own("exitCodes: [40-49], class: Permanent"), "worker-0 exits 42", "Failed Exited"},
		{"failureRules: a name is the reason", own("name: Mine, exitCodes: [40-49], class: Permanent"), "worker-0 exits 42", "Failed Mine"},
		{"failureRules: free", own("exitCodes: [42], class: Transient, free: true"), "worker-0 exits 42; worker-0 exits 42", "Running; worker-0 2 free retries"},
		{"failureRules: of a container", own("container: proxy, exitCodes: [42], class: Permanent"), "worker-0 exits 42", "Running; worker-0 retry"},
		{"failureRules: of that container", own("name: Mine, container: proxy, exitCodes: [42], class: Permanent"), "worker-0/proxy exits 42", "Failed Mine"},
		{"failureRules: reasons", own("reasons: [OOMKilled], class: Transient"), "worker-0 OOMKilled", "Running; worker-0 retry"},
		{"failureRules: messages", own("name: Mine, messagePattern: ECC, class: Permanent"), "worker-0 exits 1 saying an ECC error", "Failed Mine"},
		{"minSucceeded all: one is not enough", training("", ""), "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"minSucceeded all: all are", training("", ""), "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"minSucceeded 1", training("", "minSucceeded: 1"), "worker-1 exits 0", "Succeeded Completed"},
		{"minFailed 2: one is not enough", training("", "minFailed: 2"), "worker-0 exits 1", "Running; worker-0 Failed"},
		{"minFailed 2: two are", training("", "minFailed: 2"), "worker-0 exits 1; worker-1 exits 139", "Failed SegmentationFault"},
		{"minFailed never: with too few successes it fails at the end", training("", "minFailed: never"), "worker-0 exits 1; worker-1 exits 0", "Failed Exited"},
		{"minFailed never: with enough it succeeds", training("", "minFailed: never, minSucceeded: 1"), "worker-0 exits 1; worker-1 exits 0", "Succeeded Completed"},
		{"daemon: is stopped when the others are done", daemon, "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"daemon: counts for nothing", daemon, "ps-0 exits 0", "Running; ps-0 Succeeded"},
		{"daemon: but its failure", daemon, "ps-0 exits 1", "Failed Exited"},
		{"deadline: not before", training("deadline: 60s", ""), "wait 58s", "Running"},
		{"deadline: then, without a retry", training("deadline: 60s\nretry: {limit: 3}", ""), "wait 60s", "Failed DeadlineExceeded"},
		{"progressDeadline: then, with a retry", training("progressDeadline: 60s\nretry: {limit: 1}", ""), "wait 60s", "Running; run retry"},
		{"stop: the run ends", training("stop: false\nretry: {limit: 3}", ""), "edit stop: false => stop: true", "Stopped StopRequested"},
		{"suspend: what succeeded stays", training("suspend: false", ""), "worker-0 exits 0; edit suspend: false => suspend: true; edit suspend: true => suspend: false", "Running; worker-0 Succeeded"},
	})
}
