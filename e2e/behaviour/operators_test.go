package behaviour

import (
	"fmt"
	"strings"
	"testing"
)

// listed is a job of the first operators: kind and version of head, more fields
// of its spec, and roles ("WORKER 2").
func listed(apiVersion, kind, more string, roles ...string) string {
	typ, container := "tfReplicaType", "tensorflow"
	if kind != "TfJob" && kind != "TFJob" {
		typ, container = "mxReplicaType", "mxnet"
	}
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: job}\nspec:\n%s  replicaSpecs:\n", apiVersion, kind, indented(more))
	for _, r := range roles {
		name, n, _ := strings.Cut(r, " ")
		if n == "" {
			n = "1"
		}
		text += fmt.Sprintf("  - {%s: %s, replicas: %s, template: {spec: {restartPolicy: OnFailure, containers: [{name: %s, image: \"i:1\", command: [run]}, {name: proxy, image: \"i:1\", command: [run]}]}}}\n", typ, name, n, container)
	}
	return text
}

func indented(lines string) string {
	if lines == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(lines, "\n", "\n  ") + "\n"
}

// tfjob is of the time of tensorflow.org, with a MASTER of its own.
func tfjob(roles ...string) string {
	return listed("tensorflow.org/v1alpha1", "TfJob", "", append([]string{"MASTER"}, roles...)...)
}

func tfChief(chief string, roles ...string) string {
	return listed("tensorflow.org/v1alpha1", "TfJob", "terminationPolicy: {chief: "+chief+"}", roles...)
}

func lateTfjob(roles ...string) string {
	return listed("kubeflow.org/v1alpha1", "TFJob", "", append([]string{"MASTER"}, roles...)...)
}

// TestTfJobExitCodes: no retry of an operator uses up anything. kubeflow.org/v1alpha1
// is read as its last operator was, which had the codes of v0.2 on.
func TestTfJobExitCodes(t *testing.T) {
	t.Parallel()
	const retried, failed = "Running; master-0 free retry", "Failed PermanentExit"
	for _, tt := range []struct{ how, before, since string }{
		{"exits 1", failed, failed},
		{"exits 2", failed, failed},
		{"exits 100", failed, failed},
		{"exits 126", failed, failed},
		{"exits 127", failed, failed},
		{"cannot run 127", failed, failed},
		{"exits 128", retried, failed},
		{"exits 130", retried, retried},
		{"exits 137", retried, retried},
		{"exits 138", retried, retried},
		{"exits 139", retried, failed},
		{"exits 143", retried, retried},
		{"exits 200", retried, failed},
		{"exits 201", retried, failed},
		{"exits 210", retried, failed},
		{"exits 244", retried, failed},
		{"exits 255", retried, failed},
	} {
		check(t, []row{
			{"E.1 ML0: MASTER " + tt.how, listed("mlkube.io/v1beta1", "TfJob", "", "MASTER"), "master-0 " + tt.how, tt.before},
			{"E.1 TF1: MASTER " + tt.how, tfjob(), "master-0 " + tt.how, tt.before},
			{"E.1, B.8 v0.2 on: MASTER " + tt.how, lateTfjob(), "master-0 " + tt.how, tt.since},
		})
	}
	check(t, []row{
		{"B.8: OOMKilled is permanent, whatever the code", tfjob(), "master-0 OOMKilled", "Failed OOMKilled"},
		{"B.8: also in TF3", lateTfjob(), "master-0 OOMKilled", "Failed OOMKilled"},
		{"B.8: retries have no end", tfjob(), repeat("master-0 exits 244", 20), "Running; master-0 20 free retries"},
		{"B.8: a pod that was evicted is made again for free", tfjob(), "master-0 evicted", "Running; master-0 free retry"},
		{"B.8: and one of a lost node", tfjob(), "master-0 loses node", "Running; master-0 free retry"},
		{"B.8 5: the container tensorflow decides", tfjob(), "master-0/proxy exits 1", "Running; master-0 free retry"},
	})
}

func TestTfJobResult(t *testing.T) {
	t.Parallel()
	const headed = "WORKER:0 chief, "
	check(t, []row{
		{"B.9: MASTER succeeded, the job has", tfjob("WORKER 2", "PS"), "master-0 exits 0", "Succeeded Completed"},
		{"B.9: MASTER failed, the job has", tfjob("WORKER 2", "PS"), "worker-0 exits 0; master-0 exits 1", "Failed PermanentExit"},
		{"B.9: workers that succeed do not end it", tfjob("WORKER 2"), "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		{"B.9: a worker that fails for good does not fail it", tfjob("WORKER 2"), "worker-0 exits 1", "Running; worker-0 Failed"},
		{"B.9: nor do all workers", tfjob("WORKER 2"), "worker-0 exits 1; worker-1 OOMKilled; master-0 exits 0", "Succeeded Completed"},
		{"B.9: a PS that fails for good does not fail it", tfjob("WORKER", "PS 2"), "ps-1 exits 1", "Running; ps-1 Failed"},
		{"B.9: a PS that is retried", tfjob("PS"), "ps-0 exits 137", "Running; ps-0 free retry"},
		{"B.9: a worker that is retried", tfjob("WORKER"), "worker-0 exits 137", "Running; worker-0 free retry"},
		{"B.12: a worker that exits with 0 stays finished", tfjob("WORKER"), "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"B.9 TF2: " + headed + "its success is the job's", tfChief("{replicaName: WORKER, replicaIndex: 0}", "WORKER 2", "PS"), "worker-0 exits 0", "Succeeded Completed"},
		{"B.9 TF2: " + headed + "its failure is the job's", tfChief("{replicaName: WORKER, replicaIndex: 0}", "WORKER 2", "PS"), "worker-0 exits 1", "Failed PermanentExit"},
		{"B.9 TF2: " + headed + "worker 1's success is not", tfChief("{replicaName: WORKER, replicaIndex: 0}", "WORKER 2", "PS"), "worker-1 exits 0", "Running; worker-1 Succeeded"},
		{"B.9 TF2: " + headed + "nor is its failure", tfChief("{replicaName: WORKER, replicaIndex: 0}", "WORKER 2", "PS"), "worker-1 exits 1", "Running; worker-1 Failed"},
		{"B.9 TF2: WORKER:1 chief", tfChief("{replicaName: WORKER, replicaIndex: 1}", "WORKER 2"), "worker-0 exits 1; worker-1 exits 0", "Succeeded Completed"},
		{"B.9 TF2: WORKER:0 chief beside a MASTER", tfChief("{replicaName: WORKER, replicaIndex: 0}", "MASTER", "WORKER"), "master-0 exits 1; worker-0 exits 0", "Succeeded Completed"},
		{"B.9 TF3: MASTER decides", lateTfjob("WORKER"), "worker-0 exits 1; master-0 exits 0", "Succeeded Completed"},
	})
}

// TestTfJobLeft: B.11, what is left of a job's pods when it is over.
func TestTfJobLeft(t *testing.T) {
	t.Parallel()
	const script = "worker-0 exits 0; master-0 exits 0"
	tf4 := func(policy string) string {
		return listed("kubeflow.org/v1alpha1", "TFJob", "cleanupPodPolicy: "+policy, "MASTER", "WORKER")
	}
	checkLeft(t, []leftRow{
		{"B.11 TF1: all pods stay", tfjob("WORKER"), script, []string{"master-0", "worker-0"}},
		{"B.11 TF3: none stays", lateTfjob("WORKER"), script, nil},
		{"B.11 TF4 All: none stays", tf4("All"), script, nil},
		{"B.11 TF4 None: all stay", tf4("None"), script, []string{"master-0", "worker-0"}},
		{"B.11 TF4 Running: those stay that have ended", tf4("Running"), script, []string{"master-0", "worker-0"}},
		{"B.11 TF4 Running: those go that ran", tf4("Running"), "master-0 exits 0", []string{"master-0"}},
	})
}

func mxjob(mode string, roles ...string) string {
	return listed("mxnet.mlkube.io/v1beta1", "MxJob", "jobMode: "+mode, roles...)
}

func TestMxJob(t *testing.T) {
	t.Parallel()
	dist := mxjob("dist", "SCHEDULER", "SERVER", "WORKER 2")
	local := mxjob("local", "WORKER")
	var rows []row
	for _, code := range []string{"1", "2", "126", "127"} {
		rows = append(rows,
			row{"E.1 MX1: exit " + code + " with a message is permanent", local, "worker-0 exits " + code + " saying bad", "Failed PermanentExit"},
			row{"E.1 MX1: exit " + code + " without one is retried", local, "worker-0 exits " + code, "Running; worker-0 free retry"})
	}
	for _, code := range []string{"128", "130", "137", "138", "139", "143", "200", "201", "210", "244"} {
		rows = append(rows,
			row{"E.1 MX1: exit " + code + " is retried, with a message", local, "worker-0 exits " + code + " saying bad", "Running; worker-0 free retry"},
			row{"E.1 MX1: exit " + code + " is retried, without", local, "worker-0 exits " + code, "Running; worker-0 free retry"})
	}
	check(t, append(rows,
		row{"C.7: OOMKilled is permanent", local, "worker-0 OOMKilled", "Failed OOMKilled"},
		row{"C.7: OOMKilled is, with a message too", local, "worker-0 OOMKilled saying bad", "Failed OOMKilled"},
		row{"C.7 local: the worker's success is the job's", local, "worker-0 exits 0", "Succeeded Completed"},
		row{"C.7 dist: the scheduler's success is the job's", dist, "scheduler-0 exits 0", "Succeeded Completed"},
		row{"C.7 dist: workers that succeed do not end it", dist, "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		row{"C.7 dist: a worker that fails for good fails it", dist, "worker-1 exits 1 saying bad", "Failed PermanentExit"},
		row{"C.7 dist: a server that fails for good fails it", dist, "server-0 exits 1 saying bad", "Failed PermanentExit"},
		row{"C.7 dist: the scheduler that fails for good fails it", dist, "scheduler-0 exits 1 saying bad", "Failed PermanentExit"},
		row{"C.7 dist: a worker that is retried does not", dist, "worker-1 exits 137", "Running; worker-1 free retry"},
		row{"C.7 dist: the scheduler's success wins over a failure elsewhere", dist, "worker-0 exits 1 saying bad & scheduler-0 exits 0", "Succeeded Completed"},
		row{"C.7: the container mxnet decides", local, "worker-0/proxy exits 1 saying bad", "Running; worker-0 free retry"},
		row{"C.1: the same under mlkube.io", listed("mlkube.io/v1beta1", "MxJob", "jobMode: local", "WORKER"), "worker-0 exits 1 saying bad", "Failed PermanentExit"},
	))
	checkLeft(t, []leftRow{
		{"C.8: nothing is deleted at the end", local, "worker-0 exits 0", []string{"worker-0"}},
	})
}

// TestLateMXJob: C.9, the MXJob of kubeflow.org/v1alpha1.
func TestLateMXJob(t *testing.T) {
	t.Parallel()
	mxjob := func(more string) string {
		return listed("kubeflow.org/v1alpha1", "MXJob", more, "SCHEDULER", "SERVER", "WORKER 2")
	}
	plain := mxjob("")
	chief := mxjob("terminationPolicy: {chief: {replicaName: SCHEDULER, replicaIndex: 0}}")
	const retried, failed = "Running; worker-0 free retry", "Failed PermanentExit"
	var rows []row
	for code, want := range map[string]string{
		"1": failed, "2": failed, "126": failed, "127": failed, "128": failed, "130": retried, "137": retried, "138": retried,
		"139": failed, "143": retried, "200": failed, "210": failed, "244": failed,
	} {
		rows = append(rows, row{"C.9, E.1 v0.2 on: exit " + code, plain, "worker-0 exits " + code, want})
	}
	check(t, append(rows,
		row{"C.9: OOMKilled is permanent", plain, "worker-0 OOMKilled", "Failed OOMKilled"},
		row{"C.9: WORKER:0 is the chief, its success is the job's", plain, "worker-0 exits 0", "Succeeded Completed"},
		row{"C.9: another worker's is not", plain, "worker-1 exits 0", "Running; worker-1 Succeeded"},
		row{"C.9: nor the scheduler's", plain, "scheduler-0 exits 0", "Running; scheduler-0 Succeeded"},
		row{"C.9: a server that fails for good does not fail it", plain, "server-0 exits 1", "Running; server-0 Failed"},
		row{"C.9: a worker that fails for good does not fail it", plain, "worker-1 exits 1", "Running; worker-1 Failed"},
		row{"C.9: another chief, success", chief, "worker-0 exits 1; scheduler-0 exits 0", "Succeeded Completed"},
		row{"C.9: another chief, failure", chief, "worker-0 exits 0; scheduler-0 exits 1", "Failed PermanentExit"},
		row{"C.9: jobMode is ignored", mxjob("jobMode: dist"), "worker-0 exits 0", "Succeeded Completed"},
	))
	checkLeft(t, []leftRow{
		{"C.9: cleanupPodPolicy is All", plain, "worker-0 exits 0", nil},
		{"C.9: cleanupPodPolicy Running", mxjob("cleanupPodPolicy: Running"), "worker-1 exits 0; worker-0 exits 0", []string{"worker-0", "worker-1"}},
	})
}
