package behaviour

import "testing"

// batch is a Job with more fields of its spec.
func batch(more string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: job}\nspec:\n" + indented(more) +
		"  template: {spec: {restartPolicy: Never, containers: [{name: work, image: \"i:1\", command: [run]}, {name: proxy, image: \"i:1\", command: [run]}]}}\n"
}

func indexed(more string) string {
	return batch("completionMode: Indexed\ncompletions: 4\nparallelism: 4\n" + more)
}

// TestJob: of Kubernetes' Job; docs/formats.md says what its controller does.
func TestJob(t *testing.T) {
	t.Parallel()
	queue := batch("parallelism: 3")
	two := batch("completions: 4\nparallelism: 2")
	const six = "main-0 exits 1;main-0 exits 1;main-0 exits 1;main-0 exits 1;main-0 exits 1;main-0 exits 1;"
	check(t, []row{
		{"Job: one success is the job's", batch(""), "main-0 exits 0", "Succeeded Completed"},
		{"Job backoffLimit: 6 by default", batch(""), six, "Running; main-0 6 retries"},
		{"Job backoffLimit: the seventh failure is too many", batch(""), six + "main-0 exits 1", "Failed BackoffLimitExceeded; main-0 6 retries"},
		{"Job backoffLimit 0: the first is", batch("backoffLimit: 0"), "main-0 exits 137", "Failed BackoffLimitExceeded"},
		{"Job backoffLimit 2: of all pods together", batch("completions: 3\nparallelism: 3\nbackoffLimit: 2"), "main-0 exits 1; main-1 exits 1; main-2 exits 1", "Failed BackoffLimitExceeded; main-0 retry; main-1 retry"},
		{"Job backoffLimit 2: whatever the code", batch("completions: 3\nparallelism: 3\nbackoffLimit: 2"), "main-0 exits 139; main-1 OOMKilled", "Running; main-0 retry; main-1 retry"},
		{"Job backoffLimit: what the cluster did does not count", batch("backoffLimit: 0"), "main-0 evicted; main-0 preempted; main-0 loses node", "Running; main-0 3 free retries"},
		{"Job: any container that fails fails its pod", batch("backoffLimit: 1"), "main-0/proxy exits 1", "Running; main-0 retry"},
		{"Job completions 4: all have to succeed", batch("completions: 4\nparallelism: 4"), "main-0 exits 0; main-2 exits 0; main-3 exits 0", "Running; main-0 Succeeded; main-2 Succeeded; main-3 Succeeded"},
		{"Job parallelism 2: so many at a time", two, "", "Running; main-2 Pending; main-3 Pending"},
		{"Job parallelism 2: the next when one has ended", two, "main-1 exits 0", "Running; main-1 Succeeded; main-3 Pending"},
		{"Job parallelism 2: a retry keeps its place", two, "main-1 exits 1", "Running; main-1 retry; main-2 Pending; main-3 Pending"},
		{"Job parallelism 2: to the end", two, "main-1 exits 0; main-0 exits 0; main-2 exits 0; main-3 exits 0", "Succeeded Completed"},
		{"Job parallelism 0: a pause", batch("parallelism: 0"), "", "Suspended"},
		{"Job parallelism 0: and on", batch("parallelism: 0"), "edit parallelism: 0 => parallelism: 1; main-0 exits 0", "Succeeded Completed"},
		{"Job queue: one success, and the others go on", queue, "main-1 exits 0", "Running; main-1 Succeeded"},
		{"Job queue: it has succeeded when they have ended", queue, "main-1 exits 0; main-0 exits 0; main-2 exits 0", "Succeeded Completed"},
		{"Job queue: however they end", queue, "main-1 exits 0; main-0 exits 1; main-2 exits 137", "Succeeded Completed"},
		{"Job queue: before the first success a failure is tried again", queue, "main-0 exits 1", "Running; main-0 retry"},
		{"Job queue: backoffLimit holds", batch("parallelism: 2\nbackoffLimit: 1"), "main-0 exits 1; main-1 exits 1", "Failed BackoffLimitExceeded; main-0 retry"},
		{"Job activeDeadlineSeconds: not before", batch("activeDeadlineSeconds: 60"), "wait 58s", "Running"},
		{"Job activeDeadlineSeconds: then, whatever backoffLimit says", batch("activeDeadlineSeconds: 60"), "main-0 exits 1; wait 60s", "Failed DeadlineExceeded; main-0 retry"},
		{"Job suspend: pods go", batch("suspend: false"), "edit suspend: false => suspend: true", "Suspended; main-0 Stopped"},
		{"Job suspend: and on", batch("suspend: false"), "edit suspend: false => suspend: true; edit suspend: true => suspend: false; main-0 exits 0", "Succeeded Completed"},
	})
	checkLeft(t, []leftRow{
		{"Job without ttl: ended pods stay", batch("completions: 2\nparallelism: 2"), "main-0 exits 0; main-1 exits 0", []string{"main-0", "main-1"}},
		{"Job without ttl: those that run go", indexed("successPolicy: {rules: [{succeededCount: 1}]}"), "main-0 exits 0", []string{"main-0"}},
		{"Job ttl: not before", batch("ttlSecondsAfterFinished: 60"), "main-0 exits 0; wait 58s", []string{"main-0"}},
		{"Job ttl: then", batch("ttlSecondsAfterFinished: 60"), "main-0 exits 0; wait 60s", nil},
	})
}

func TestJobIndexes(t *testing.T) {
	t.Parallel()
	each := indexed("backoffLimitPerIndex: 1")
	most := indexed("backoffLimitPerIndex: 0\nmaxFailedIndexes: 1")
	first := indexed("successPolicy: {rules: [{succeededIndexes: \"0,2-3\", succeededCount: 2}, {succeededIndexes: \"1\"}]}")
	check(t, []row{
		{"Job backoffLimitPerIndex 1: each has its own", each, "main-0 exits 1; main-1 exits 1", "Running; main-0 retry; main-1 retry"},
		{"Job backoffLimitPerIndex 1: the second fails the index, not the job", each, "main-0 exits 1; main-0 exits 1", "Running; main-0 retry Failed"},
		{"Job backoffLimitPerIndex: the job has failed when all have ended", each, "main-0 exits 1; main-0 exits 1; main-1 exits 0; main-2 exits 0; main-3 exits 0", "Failed Exited; main-0 retry"},
		{"Job backoffLimitPerIndex: no limit beside it", indexed("backoffLimitPerIndex: 9"), repeat("main-0 exits 1", 9), "Running; main-0 9 retries"},
		{"Job backoffLimitPerIndex: but one that is written", indexed("backoffLimitPerIndex: 9\nbackoffLimit: 1"), "main-0 exits 1; main-1 exits 1", "Failed BackoffLimitExceeded; main-0 retry"},
		{"Job backoffLimit beside it: an index may fail for good", indexed("backoffLimitPerIndex: 0\nbackoffLimit: 1"), "main-0 exits 1", "Running; main-0 Failed"},
		{"Job backoffLimit beside it: two may not", indexed("backoffLimitPerIndex: 0\nbackoffLimit: 1"), "main-0 exits 1; main-1 exits 1", "Failed BackoffLimitExceeded"},
		{"Job maxFailedIndexes 1: one may fail", most, "main-2 exits 1", "Running; main-2 Failed"},
		{"Job maxFailedIndexes 1: two may not", most, "main-2 exits 1; main-0 exits 1", "Failed Exited"},
		{"Job successPolicy: so many of these indexes", first, "main-2 exits 0; main-0 exits 0", "Succeeded Completed"},
		{"Job successPolicy: fewer are not enough", first, "main-2 exits 0", "Running; main-2 Succeeded"},
		{"Job successPolicy: or this one", first, "main-1 exits 0", "Succeeded Completed"},
		{"Job successPolicy: a count alone", indexed("successPolicy: {rules: [{succeededCount: 3}]}"), "main-1 exits 0; main-3 exits 0; main-0 exits 0", "Succeeded Completed"},
		{"Job successPolicy: a failure before it is no success", indexed("backoffLimit: 0\nsuccessPolicy: {rules: [{succeededIndexes: \"0\"}]}"), "main-1 exits 1", "Failed BackoffLimitExceeded"},
	})
}

// TestJobFailurePolicy: the actions of podFailurePolicy.
func TestJobFailurePolicy(t *testing.T) {
	t.Parallel()
	policy := func(rules string) string {
		return indexed("backoffLimit: 1\npodFailurePolicy: {rules: [" + rules + "]}")
	}
	perIndex := func(rules string) string {
		return indexed("backoffLimitPerIndex: 1\npodFailurePolicy: {rules: [" + rules + "]}")
	}
	const (
		failJob   = "{action: FailJob, onExitCodes: {containerName: work, operator: In, values: [42, 43]}}"
		failIndex = "{action: FailIndex, onExitCodes: {operator: In, values: [42]}}"
		ignore    = "{action: Ignore, onExitCodes: {operator: In, values: [42]}}"
		count     = "{action: Count, onExitCodes: {operator: In, values: [42]}}"
		disrupted = "onPodConditions: [{type: DisruptionTarget}]}"
	)
	check(t, []row{
		{"FailJob: at once", policy(failJob), "main-2 exits 42", "Failed PodFailurePolicy"},
		{"FailJob: with another index failed before", perIndex(failJob), "main-0 exits 1; main-2 exits 43", "Failed PodFailurePolicy; main-0 retry"},
		{"FailJob: another code is counted", policy(failJob), "main-2 exits 44", "Running; main-2 retry"},
		{"FailJob: another container's code is", policy(failJob), "main-2/proxy exits 42", "Running; main-2 retry"},
		{"FailJob NotIn: other codes", policy("{action: FailJob, onExitCodes: {operator: NotIn, values: [1, 2]}}"), "main-2 exits 3", "Failed PodFailurePolicy"},
		{"FailJob NotIn: not these", policy("{action: FailJob, onExitCodes: {operator: NotIn, values: [1, 2]}}"), "main-2 exits 2", "Running; main-2 retry"},
		{"FailJob: on a condition", policy("{action: FailJob, " + disrupted), "main-2 preempted", "Failed PodFailurePolicy"},
		{"FailIndex: without another try", perIndex(failIndex), "main-0 exits 42", "Running; main-0 Failed"},
		{"FailIndex: other codes are tried again", perIndex(failIndex), "main-0 exits 1", "Running; main-0 retry"},
		{"Ignore: tried again for free", policy(ignore), "main-0 exits 42; main-0 exits 42; main-0 exits 42", "Running; main-0 3 free retries"},
		{"Ignore: an index's limit is not touched", perIndex(ignore), "main-0 exits 42; main-0 exits 42; main-0 exits 1", "Running; main-0 retry 2 free retries"},
		{"Ignore: on a condition", policy("{action: Ignore, " + disrupted), "main-0 preempted; main-1 preempted; main-2 preempted", "Running; main-0 free retry; main-1 free retry; main-2 free retry"},
		{"Count: towards the limit", policy(count), "main-0 exits 42; main-1 exits 42", "Failed BackoffLimitExceeded; main-0 retry"},
		{"Count: also a disruption, when it is asked for", policy("{action: Count, " + disrupted), "main-0 preempted; main-1 preempted", "Failed BackoffLimitExceeded; main-0 retry"},
		{"the first rule that matches counts", policy(ignore + ", " + failJob), "main-0 exits 42", "Running; main-0 free retry"},
		{"and not the one behind it", policy(failJob + ", " + ignore), "main-0 exits 42", "Failed PodFailurePolicy"},
		{"no rule matches: counted", policy(ignore), "main-0 exits 1; main-1 exits 1", "Failed BackoffLimitExceeded; main-0 retry"},
	})
}
