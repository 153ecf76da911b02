package behaviour

import (
	"fmt"
	"testing"
)

// jobset is a JobSet of a driver and two Jobs of two workers, whose pods fail
// as often as backoff says. more are lines of its spec.
func jobset(backoff int, more string) string {
	const pod = `template: {spec: {containers: [{name: main, image: "i:1", command: [run]}]}}`
	return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: job}\nspec:\n" + indented(more) +
		fmt.Sprintf("  replicatedJobs:\n  - {name: driver, template: {spec: {backoffLimit: %d, %s}}}\n", backoff, pod) +
		fmt.Sprintf("  - {name: workers, replicas: 2, template: {spec: {backoffLimit: 0, parallelism: 2, completions: 2, %s}}}\n", pod)
}

// TestJobSet: docs/formats.md says what its controller does.
func TestJobSet(t *testing.T) {
	t.Parallel()
	const allWorkers = "workers-0 exits 0; workers-1 exits 0; workers-2 exits 0; workers-3 exits 0"
	plain := jobset(0, "")
	restarts := func(n string) string { return jobset(0, "failurePolicy: {maxRestarts: "+n+"}") }
	rules := func(list string) string { return jobset(0, "failurePolicy: {maxRestarts: 1, rules: ["+list+"]}") }
	ofDriver := func(action string) string { return rules("{action: " + action + ", targetReplicatedJobs: [driver]}") }
	check(t, []row{
		{"JobSet success: all jobs", plain, allWorkers + "; driver-0 exits 0", "Succeeded Completed"},
		{"JobSet success: not the driver alone", plain, "driver-0 exits 0", "Running; driver-0 Succeeded"},
		{"JobSet success: not three of four pods", plain, "driver-0 exits 0; workers-0 exits 0; workers-1 exits 0; workers-2 exits 0",
			"Running; driver-0 Succeeded; workers-0 Succeeded; workers-1 Succeeded; workers-2 Succeeded"},
		{"JobSet success: All of the targets, others are stopped", jobset(0, "successPolicy: {operator: All, targetReplicatedJobs: [driver]}"), "driver-0 exits 0", "Succeeded Completed"},
		{"JobSet success: All of the targets, all of their pods", jobset(0, "successPolicy: {operator: All, targetReplicatedJobs: [workers]}"), allWorkers, "Succeeded Completed"},
		{"JobSet success: Any one job", jobset(0, "successPolicy: {operator: Any}"), "driver-0 exits 0", "Succeeded Completed"},
		{"JobSet success: Any one job, all pods of it", jobset(0, "successPolicy: {operator: Any, targetReplicatedJobs: [workers]}"), "workers-2 exits 0; workers-3 exits 0", "Succeeded Completed"},
		{"JobSet success: Any one job, not a pod of each", jobset(0, "successPolicy: {operator: Any, targetReplicatedJobs: [workers]}"), "workers-0 exits 0; workers-2 exits 0", "Running; workers-0 Succeeded; workers-2 Succeeded"},
		{"JobSet failure: a job that fails fails the set", plain, "workers-3 exits 1", "Failed Exited"},
		{"JobSet failure: a job that is not a target does, too", jobset(0, "successPolicy: {operator: All, targetReplicatedJobs: [driver]}"), "workers-3 exits 1", "Failed Exited"},
		{"JobSet failure: backoffLimit of a Job of one pod", jobset(2, ""), "driver-0 exits 1; driver-0 exits 1", "Running; driver-0 2 retries"},
		{"JobSet failure: and one more", jobset(2, ""), "driver-0 exits 1; driver-0 exits 1; driver-0 exits 1", "Failed Exited; driver-0 2 retries"},
		{"JobSet failure: what the cluster did does not count", plain, "workers-3 preempted; driver-0 evicted", "Running; driver-0 free retry; workers-3 free retry"},
		{"JobSet maxRestarts 2: the whole set", restarts("2"), "workers-0 exits 0; workers-3 exits 1", "Running; run retry"},
		{"JobSet maxRestarts 2: twice", restarts("2"), "workers-3 exits 1; driver-0 exits 1", "Running; run 2 retries"},
		{"JobSet maxRestarts 2: not thrice", restarts("2"), "workers-3 exits 1; driver-0 exits 1; driver-0 exits 1", "Failed Exited; run 2 retries"},
		{"JobSet rule FailJobSet: at once", ofDriver("FailJobSet"), "driver-0 exits 1", "Failed Exited"},
		{"JobSet rule FailJobSet: of its targets alone", ofDriver("FailJobSet"), "workers-0 exits 1", "Running; run retry"},
		{"JobSet rule RestartJobSet: counts", ofDriver("RestartJobSet"), "driver-0 exits 1; driver-0 exits 1", "Failed Exited; run retry"},
		{"JobSet rule RestartJobSetAndIgnoreMaxRestarts: does not", ofDriver("RestartJobSetAndIgnoreMaxRestarts"), "driver-0 exits 1; driver-0 exits 1; driver-0 exits 1", "Running; run 3 free retries"},
		{"JobSet rule RestartJobSetAndIgnoreMaxRestarts: others count", ofDriver("RestartJobSetAndIgnoreMaxRestarts"), "driver-0 exits 1; workers-0 exits 1; workers-0 exits 1", "Failed Exited; run retry free retry"},
		{"JobSet rules: the first that matches", rules("{action: RestartJobSetAndIgnoreMaxRestarts, targetReplicatedJobs: [workers]}, {action: FailJobSet}"), "workers-0 exits 1", "Running; run free retry"},
		{"JobSet rules: and for others the next", rules("{action: RestartJobSetAndIgnoreMaxRestarts, targetReplicatedJobs: [workers]}, {action: FailJobSet}"), "driver-0 exits 1", "Failed Exited"},
		{"JobSet rule by reason: BackoffLimitExceeded", rules("{action: FailJobSet, onJobFailureReasons: [BackoffLimitExceeded]}"), "driver-0 exits 1", "Failed Exited"},
		{"JobSet rule by reason: not another", rules("{action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}"), "driver-0 exits 1", "Running; run retry"},
		{"JobSet rule with a name", rules("{name: broken, action: FailJobSet}"), "driver-0 exits 1", "Failed broken"},
		{"JobSet suspend: pods go", jobset(0, "suspend: false"), "driver-0 exits 0; edit suspend: false => suspend: true", "Suspended; driver-0 Succeeded; workers-0 Stopped; workers-1 Stopped; workers-2 Stopped; workers-3 Stopped"},
	})
}

// TestJobSetPolicyOfPods: a pod failure policy decides why a Job of the set fails.
func TestJobSetPolicyOfPods(t *testing.T) {
	t.Parallel()
	file := func(rules string) string {
		return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: job}\nspec:\n  failurePolicy: {maxRestarts: 1, rules: [" + rules + "]}\n" +
			"  replicatedJobs:\n  - name: main\n    template:\n      spec:\n        backoffLimit: 0\n" +
			"        podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}, {action: Ignore, onExitCodes: {operator: In, values: [43]}}]}\n" +
			"        template: {spec: {restartPolicy: Never, containers: [{name: main, image: \"i:1\", command: [run]}]}}\n"
	}
	const fail = "{action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}"
	check(t, []row{
		{"PodFailurePolicy, without a rule: a restart", file(""), "main-0 exits 42", "Running; run retry"},
		{"PodFailurePolicy: FailJobSet", file(fail), "main-0 exits 42", "Failed PodFailurePolicy"},
		{"PodFailurePolicy: another code is another reason", file(fail), "main-0 exits 1", "Running; run retry"},
		{"PodFailurePolicy: free restarts", file("{action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]}"), "main-0 exits 42; main-0 exits 42", "Running; run 2 free retries"},
		{"PodFailurePolicy: what is ignored is tried again", file(fail), "main-0 exits 43", "Running; main-0 free retry"},
	})
}

// TestTrainJob: docs/formats.md, the runtimes' own limit of 6 failures.
func TestTrainJob(t *testing.T) {
	t.Parallel()
	trainjob := "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: job}\nspec:\n  suspend: false\n  activeDeadlineSeconds: 600\n" +
		"  runtimeRef: {name: torch-distributed}\n  trainer: {image: \"i:1\", command: [run], numNodes: 2}\n"
	const six = "node-0 exits 1; node-1 exits 1; node-0 exits 137; node-0 exits 2; node-1 exits 139; node-1 exits 1;"
	check(t, []row{
		{"TrainJob: all nodes' success is the job's", trainjob, "node-1 exits 0; node-0 exits 0", "Succeeded Completed"},
		{"TrainJob: one is not enough", trainjob, "node-0 exits 0", "Running; node-0 Succeeded"},
		{"TrainJob: 6 failures of all nodes", trainjob, six, "Running; node-0 3 retries; node-1 3 retries"},
		{"TrainJob: and not a seventh", trainjob, six + "node-0 exits 1", "Failed BackoffLimitExceeded; node-0 3 retries; node-1 3 retries"},
		{"TrainJob: what the cluster did does not count", trainjob, six + "node-0 evicted", "Running; node-0 3 retries free retry; node-1 3 retries"},
		{"TrainJob activeDeadlineSeconds", trainjob, "wait 600s", "Failed DeadlineExceeded"},
		{"TrainJob suspend: pods go", trainjob, "edit suspend: false => suspend: true", "Suspended; node-0 Stopped; node-1 Stopped"},
	})
}
