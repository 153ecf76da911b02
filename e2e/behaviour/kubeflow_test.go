package behaviour

import (
	"fmt"
	"strings"
	"testing"
)

// kubeflow is a job whose replicas are a map. A role is "Worker", "Worker 2" or
// "Worker 2 ExitCode"; more are lines of its spec.
func kubeflow(kind, more string, roles ...string) string {
	return kubeflowOf("kubeflow.org/v1", kind, more, roles...)
}

func kubeflowOf(apiVersion, kind, more string, roles ...string) string {
	field := map[string]string{
		"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs", "MXJob": "mxReplicaSpecs", "XGBoostJob": "xgbReplicaSpecs",
		"PaddleJob": "paddleReplicaSpecs", "JAXJob": "jaxReplicaSpecs", "MPIJob": "mpiReplicaSpecs",
	}[kind]
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: job}\nspec:\n%s  %s:\n", apiVersion, kind, indented(more), field)
	for _, r := range roles {
		f := append(strings.Fields(r), "1", "")
		n, policy := f[1], ""
		if len(f) > 4 {
			policy = "restartPolicy: " + f[2] + ", "
		}
		text += fmt.Sprintf("    %s: {replicas: %s, %stemplate: {spec: {containers: [{name: %s, image: \"i:1\", command: [run]}, {name: proxy, image: \"i:1\", command: [run]}]}}}\n",
			f[0], n, policy, containerOf(kind))
	}
	return text
}

func containerOf(kind string) string {
	return map[string]string{
		"TFJob": "tensorflow", "PyTorchJob": "pytorch", "MXJob": "mxnet", "XGBoostJob": "xgboost", "PaddleJob": "paddle", "JAXJob": "jax", "MPIJob": "mpi",
	}[kind]
}

const alone = "jobMode: MXTrain"

// TestKubeflowExitCodes: E.1, D.6. The retries count because of backoffLimit.
func TestKubeflowExitCodes(t *testing.T) {
	t.Parallel()
	const retried, failed = "Running; worker-0 retry", "Failed PermanentExit"
	for _, tt := range []struct{ how, early, now string }{
		{"exits 1", failed, failed},
		{"exits 2", failed, failed},
		{"exits 126", failed, failed},
		{"exits 127", failed, failed},
		{"exits 128", failed, retried},
		{"exits 130", retried, retried},
		{"exits 137", retried, retried},
		{"OOMKilled", retried, retried},
		{"exits 138", retried, retried},
		{"exits 139", failed, retried},
		{"exits 143", retried, retried},
		{"exits 200", failed, retried},
		{"exits 201", failed, retried},
		{"exits 210", failed, retried},
		{"exits 255", failed, retried},
	} {
		check(t, []row{
			{"D.6 ExitCode TFJob: " + tt.how, kubeflow("TFJob", "", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.now},
			{"D.6 ExitCode PyTorchJob: " + tt.how, kubeflow("PyTorchJob", "", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.now},
			{"D.6 ExitCode MXJob: " + tt.how, kubeflow("MXJob", alone, "Scheduler", "Server", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.now},
			{"D.6 ExitCode XGBoostJob: " + tt.how, kubeflow("XGBoostJob", "", "Master", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.now},
			{"D.6 ExitCode PaddleJob: " + tt.how, kubeflow("PaddleJob", "", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.now},
			{"D.6 ExitCode JAXJob: " + tt.how, kubeflow("JAXJob", "", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.now},
			{"E.1 v0.2-v1.1 ExitCode TFJob: " + tt.how, kubeflowOf("kubeflow.org/v1beta2", "TFJob", "", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.early},
			{"E.1 v0.2-v1.1 ExitCode PyTorchJob: " + tt.how, kubeflowOf("kubeflow.org/v1beta1", "PyTorchJob", "", "Master", "Worker 2 ExitCode"), "worker-0 " + tt.how, tt.early},
		})
	}
}

// TestKubeflowPolicies: D.6, the policies that do not look at the code.
func TestKubeflowPolicies(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"exits 1", "exits 127", "exits 137", "exits 139", "exits 210", "OOMKilled"} {
		reason := "Failed Exited"
		if how == "OOMKilled" {
			reason = "Failed OOMKilled"
		}
		check(t, []row{
			{"D.6 OnFailure: " + how, kubeflow("TFJob", "", "Worker 2 OnFailure"), "worker-0 " + how, "Running; worker-0 retry"},
			{"D.6 Always: " + how, kubeflow("TFJob", "", "PS 1 Always", "Worker 2"), "ps-0 " + how, "Running; ps-0 retry"},
			{"D.7 Never: " + how, kubeflow("TFJob", "", "Worker 2 Never"), "worker-0 " + how, reason},
		})
	}
	check(t, []row{
		{"D.1: TFJob is Never by default", kubeflow("TFJob", "", "Worker 2"), "worker-0 exits 137", "Failed Exited"},
		{"D.1: MXJob is Never by default", kubeflow("MXJob", alone, "Scheduler", "Server", "Worker"), "server-0 exits 137", "Failed Exited"},
		{"D.1: PyTorchJob is OnFailure by default", kubeflow("PyTorchJob", "", "Master", "Worker"), "worker-0 exits 1", "Running; worker-0 retry"},
		{"D.6 OnFailure: a replica that succeeded stays", kubeflow("TFJob", "", "Chief", "Worker 2 OnFailure"), "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"D.6 Always: a server that ends well is started again", kubeflow("TFJob", "", "PS 1 Always", "Worker"), "ps-0 exits 0", "Running; ps-0 retry"},
		{"D.6 OnFailure without end", kubeflow("TFJob", "", "Worker 1 OnFailure"), repeat("worker-0 exits 1", 20), "Running; worker-0 20 retries"},
		{"D.6 ExitCode: without a terminated default container retried", kubeflow("TFJob", "", "Worker 2 ExitCode"), "worker-0/proxy exits 1", "Running; worker-0 retry"},
		{"D.6 ExitCode is of a role, the other's is Never", kubeflow("TFJob", "", "Chief", "PS 1 Never", "Worker 1 ExitCode"), "worker-0 exits 130; ps-0 exits 130", "Failed Exited; worker-0 retry"},
		{"D.6 ExitCode is of a role, the other's is OnFailure", kubeflow("TFJob", "", "Chief", "PS 1 OnFailure", "Worker 1 ExitCode"), "ps-0 exits 1; worker-0 exits 1", "Failed PermanentExit; ps-0 retry"},
		{"docs: evicted is retried for free, Never", kubeflow("TFJob", "", "Worker 2 Never"), "worker-0 evicted", "Running; worker-0 free retry"},
		{"docs: preempted is retried for free, ExitCode", kubeflow("TFJob", "", "Worker 2 ExitCode"), "worker-0 preempted", "Running; worker-0 free retry"},
		{"docs: a lost node is retried for free, Never", kubeflow("PyTorchJob", "", "Worker 2 Never"), "worker-0 loses node", "Running; worker-0 free retry"},
	})
}

func TestKubeflowRunPolicy(t *testing.T) {
	t.Parallel()
	backoff := func(n string) string {
		return kubeflow("PyTorchJob", "runPolicy: {backoffLimit: "+n+"}", "Master 1 OnFailure", "Worker 2 ExitCode")
	}
	deadline := kubeflow("TFJob", "runPolicy: {activeDeadlineSeconds: 60}", "Chief", "Worker 2 OnFailure")
	check(t, []row{
		{"D.5 backoffLimit 0: the first failure is too many", backoff("0"), "worker-0 exits 137", "Failed BackoffLimitExceeded"},
		{"D.5 backoffLimit 2: of all replicas together", backoff("2"), "worker-0 exits 137; master-0 exits 1", "Running; master-0 retry; worker-0 retry"},
		{"D.5 backoffLimit 2: one more fails the job", backoff("2"), "worker-0 exits 137; master-0 exits 1; worker-1 exits 130", "Failed BackoffLimitExceeded; master-0 retry; worker-0 retry"},
		{"D.5 backoffLimit: ExitCode restarts count, too", backoff("2"), "worker-0 exits 137; worker-0 exits 137; worker-0 exits 137", "Failed BackoffLimitExceeded; worker-0 2 retries"},
		{"D.5 backoffLimit: what the cluster did does not count", backoff("0"), "worker-0 evicted; master-0 preempted", "Running; master-0 free retry; worker-0 free retry"},
		{"D.5 backoffLimit: a permanent code fails the job before", backoff("2"), "worker-0 exits 1", "Failed PermanentExit"},
		{"D.5 activeDeadlineSeconds: not before", deadline, "wait 58s", "Running"},
		{"D.5 activeDeadlineSeconds: then", deadline, "wait 60s", "Failed DeadlineExceeded"},
		{"D.5 activeDeadlineSeconds: retries do not prolong it", deadline, "wait 30s; worker-0 exits 1; wait 30s", "Failed DeadlineExceeded; worker-0 retry"},
		{"D.5 activeDeadlineSeconds: not after the end", deadline, "chief-0 exits 0; wait 70s", "Succeeded Completed"},
		{"D.5 suspend: pods go", kubeflow("TFJob", "runPolicy: {suspend: false}", "Chief", "Worker"), "worker-0 exits 0; edit suspend: false => suspend: true", "Suspended; chief-0 Stopped; worker-0 Succeeded"},
		{"D.5 suspend: resumed, it goes on", kubeflow("TFJob", "runPolicy: {suspend: false}", "Chief", "Worker"), "edit suspend: false => suspend: true; edit suspend: true => suspend: false; chief-0 exits 0", "Succeeded Completed"},
		{"D before v1: backoffLimit below spec", kubeflowOf("kubeflow.org/v1beta2", "TFJob", "backoffLimit: 1", "Worker 2 OnFailure"), "worker-0 exits 1; worker-1 exits 1", "Failed BackoffLimitExceeded; worker-0 retry"},
		{"D before v1: activeDeadlineSeconds below spec", kubeflowOf("kubeflow.org/v1beta2", "TFJob", "activeDeadlineSeconds: 60", "Worker 2"), "wait 60s", "Failed DeadlineExceeded"},
	})
	clean := func(policy string) string {
		return kubeflow("TFJob", "runPolicy: {cleanPodPolicy: "+policy+"}", "Chief", "PS", "Worker 2")
	}
	const script = "worker-0 exits 0; chief-0 exits 0"
	checkLeft(t, []leftRow{
		{"D.5 cleanPodPolicy All: none stays", clean("All"), script, nil},
		{"D.5 cleanPodPolicy Running: what had ended stays", clean("Running"), script, []string{"chief-0", "worker-0"}},
		{"D.5 cleanPodPolicy None, docs: what ran is stopped, the rest stays", clean("None"), script, []string{"chief-0", "worker-0"}},
		{"D.1 cleanPodPolicy is None", kubeflow("TFJob", "", "Chief", "Worker"), script, []string{"chief-0", "worker-0"}},
		{"D: before v1 cleanPodPolicy is Running for TFJob", kubeflowOf("kubeflow.org/v1beta2", "TFJob", "", "Chief", "PS", "Worker"), script, []string{"chief-0", "worker-0"}},
		{"D: before v1 cleanPodPolicy is All for MXJob", kubeflowOf("kubeflow.org/v1beta1", "MXJob", alone, "Scheduler", "Server", "Worker"), "worker-0 exits 0; scheduler-0 exits 0", nil},
		{"D.5 ttlSecondsAfterFinished: not before", kubeflow("TFJob", "runPolicy: {ttlSecondsAfterFinished: 60}", "Chief", "Worker"), script + "; wait 58s", []string{"chief-0", "worker-0"}},
		{"D.5 ttlSecondsAfterFinished: then", kubeflow("TFJob", "runPolicy: {ttlSecondsAfterFinished: 60}", "Chief", "Worker"), script + "; wait 60s", nil},
	})
}
