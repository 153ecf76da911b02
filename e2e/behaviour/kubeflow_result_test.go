package behaviour

import "testing"

// TestTFJobResult: D.7.
func TestTFJobResult(t *testing.T) {
	t.Parallel()
	chief := kubeflow("TFJob", "", "Chief", "PS", "Worker 2", "Evaluator")
	workers := kubeflow("TFJob", "", "PS", "Worker 3")
	all := kubeflow("TFJob", "successPolicy: AllWorkers", "PS", "Worker 2")
	dynamic := kubeflow("TFJob", "enableDynamicWorker: true", "PS", "Worker 2")
	check(t, []row{
		{"D.7 with a Chief: its success is the job's", chief, "chief-0 exits 0", "Succeeded Completed"},
		{"D.7 with a Chief: workers that succeed do not end it", chief, "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		{"D.7 with a Master: the same", kubeflow("TFJob", "", "Master", "Worker"), "worker-0 exits 0; master-0 exits 0", "Succeeded Completed"},
		{"D.7 with two Chiefs: all of them", kubeflow("TFJob", "", "Chief 2", "Worker"), "chief-0 exits 0", "Running; chief-0 Succeeded"},
		{"D.7: a Chief that fails fails it", chief, "chief-0 exits 1", "Failed Exited"},
		{"D.7: a PS that fails fails it, even while the Chief runs", chief, "ps-0 exits 1", "Failed Exited"},
		{"D.7: a worker that fails fails it, even while the Chief runs", chief, "worker-1 exits 1", "Failed Exited"},
		{"D.7: an Evaluator that fails fails it", chief, "evaluator-0 exits 1", "Failed Exited"},
		{"docs: a success and a failure in one look, the success is first", chief, "worker-1 exits 1 & chief-0 exits 0", "Succeeded Completed"},
		{"D.7 without a Chief: worker 0's success is the job's", workers, "worker-0 exits 0", "Succeeded Completed"},
		{"D.7 without a Chief: another worker's is not", workers, "worker-1 exits 0; worker-2 exits 0", "Running; worker-1 Succeeded; worker-2 Succeeded"},
		{"D.7 without a Chief: a worker that fails fails it", workers, "worker-1 exits 0; worker-2 exits 3", "Failed Exited"},
		{"D.7 without a Chief: a PS that fails fails it", workers, "ps-0 exits 3", "Failed Exited"},
		{"D.7 AllWorkers: worker 0 is not enough", all, "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"D.7 AllWorkers: all are", all, "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"D.7 AllWorkers: one that fails fails it", all, "worker-0 exits 0; worker-1 exits 1", "Failed Exited"},
		{"D.7 enableDynamicWorker: workers that fail do not fail it", dynamic, "worker-1 exits 1; worker-0 exits 0", "Succeeded Completed"},
		{"D.7 enableDynamicWorker: a PS that fails does", dynamic, "ps-0 exits 1", "Failed Exited"},
	})
}

func TestPyTorchJobResult(t *testing.T) {
	t.Parallel()
	master := kubeflow("PyTorchJob", "", "Master 1 Never", "Worker 2 Never")
	workers := kubeflow("PyTorchJob", "", "Worker 2 Never")
	elastic := kubeflow("PyTorchJob", "elasticPolicy: {minReplicas: 1, maxReplicas: 3}", "Worker 3 OnFailure")
	check(t, []row{
		{"D.7 PyTorchJob: the Master's success is the job's", master, "master-0 exits 0", "Succeeded Completed"},
		{"D.7 PyTorchJob: workers that succeed do not end it", master, "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		{"D.7 PyTorchJob: Never, a worker that fails fails it", master, "worker-1 exits 1", "Failed Exited"},
		{"D.7 PyTorchJob: Never, the Master that fails fails it", master, "master-0 exits 137", "Failed Exited"},
		{"D.7 PyTorchJob: else it is restarted", kubeflow("PyTorchJob", "", "Master", "Worker 2"), "master-0 exits 1", "Running; master-0 retry"},
		{"D.6 PyTorchJob ExitCode: a permanent code fails it (v1.8)", kubeflow("PyTorchJob", "", "Master 1 ExitCode", "Worker 2 ExitCode"), "worker-0 exits 1", "Failed PermanentExit"},
		{"D.7 PyTorchJob without a Master: one worker is not enough", workers, "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"D.7 PyTorchJob without a Master: all are", workers, "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"D.7 PyTorchJob without a Master: Never, a failure fails it", workers, "worker-0 exits 0; worker-1 exits 1", "Failed Exited"},
		{"D.7 elastic: any worker's success is the job's", elastic, "worker-2 exits 0", "Succeeded Completed"},
		{"D.7 elastic: a worker that fails is restarted", elastic, "worker-2 exits 1", "Running; worker-2 retry"},
		{"D.7 elastic: Never, a failure fails it", kubeflow("PyTorchJob", "elasticPolicy: {minReplicas: 1}", "Worker 3 Never"), "worker-2 exits 1", "Failed Exited"},
	})
}

func TestMXJobResult(t *testing.T) {
	t.Parallel()
	train := kubeflow("MXJob", alone, "Scheduler", "Server 2", "Worker 2")
	check(t, []row{
		{"D.7 MXJob: the Scheduler's success is the job's", train, "scheduler-0 exits 0", "Succeeded Completed"},
		{"D.7 MXJob: workers that succeed do not end it", train, "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		{"D.7 MXJob: Never, a worker that fails fails it", train, "worker-0 exits 1", "Failed Exited"},
		{"D.7 MXJob: Never, a server that fails fails it", train, "server-1 exits 137", "Failed Exited"},
		{"D.7 MXJob: a single worker's success is the job's", kubeflow("MXJob", alone, "Worker"), "worker-0 exits 0", "Succeeded Completed"},
		{"D.7 MXJob: ExitCode restarts", kubeflow("MXJob", alone, "Scheduler", "Server", "Worker 2 ExitCode"), "worker-1 exits 137", "Running; worker-1 retry"},
		{"docs: without a Scheduler all workers", kubeflow("MXJob", alone, "Worker 2"), "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"docs: and not the first alone", kubeflow("MXJob", alone, "Worker 2"), "worker-0 exits 0", "Running; worker-0 Succeeded"},
	})
}

// TestOtherKubeflowResults: of kinds that the specification of the seeds does
// not speak of; docs/formats.md says what their operators do.
func TestOtherKubeflowResults(t *testing.T) {
	t.Parallel()
	xgb := kubeflow("XGBoostJob", "", "Master", "Worker 2")
	mpi := kubeflow("MPIJob", "", "Launcher", "Worker 2")
	mpi2 := kubeflowOf("kubeflow.org/v2beta1", "MPIJob", "", "Launcher", "Worker 2")
	limited := kubeflowOf("kubeflow.org/v2beta1", "MPIJob", "runPolicy: {backoffLimit: 1}", "Launcher", "Worker 2")
	const sixth = "launcher-0 exits 1;launcher-0 exits 1;launcher-0 exits 1;launcher-0 exits 1;launcher-0 exits 1;launcher-0 exits 1"
	check(t, []row{
		{"XGBoostJob: the Master's success is the job's", xgb, "master-0 exits 0", "Succeeded Completed"},
		{"XGBoostJob: workers do not end it", xgb, "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		{"XGBoostJob: Never by default, a failure fails it", xgb, "worker-0 exits 137", "Failed Exited"},
		{"PaddleJob: all workers' success is the job's", kubeflow("PaddleJob", "", "Worker 2"), "worker-0 exits 0; worker-1 exits 0", "Succeeded Completed"},
		{"PaddleJob: one is not enough", kubeflow("PaddleJob", "", "Worker 2"), "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"PaddleJob: OnFailure by default", kubeflow("PaddleJob", "", "Worker 2"), "worker-0 exits 1", "Running; worker-0 retry"},
		{"PaddleJob: the Masters' success is the job's", kubeflow("PaddleJob", "", "Master 2", "Worker 2"), "master-0 exits 0; master-1 exits 0", "Succeeded Completed"},
		{"PaddleJob: Never, a failure fails it", kubeflow("PaddleJob", "", "Worker 2 Never"), "worker-0 exits 1", "Failed Exited"},
		{"JAXJob: all workers' success is the job's", kubeflow("JAXJob", "", "Worker 2"), "worker-1 exits 0; worker-0 exits 0", "Succeeded Completed"},
		{"JAXJob: worker 0 is not enough", kubeflow("JAXJob", "", "Worker 2"), "worker-0 exits 0", "Running; worker-0 Succeeded"},
		{"JAXJob: Never by default, a failure fails it", kubeflow("JAXJob", "", "Worker 2"), "worker-1 exits 137", "Failed Exited"},
		{"MPIJob v1: the Launcher's success is the job's", mpi, "launcher-0 exits 0", "Succeeded Completed"},
		{"MPIJob v1: and so is its failure", mpi, "launcher-0 exits 1", "Failed Exited"},
		{"MPIJob v1: a worker's failure is not", mpi, "worker-0 exits 1", "Running; worker-0 Failed"},
		{"MPIJob v1: nor its success", mpi, "worker-0 exits 0; worker-1 exits 0", "Running; worker-0 Succeeded; worker-1 Succeeded"},
		{"MPIJob v1: a Launcher of ExitCode is retried", kubeflow("MPIJob", "", "Launcher 1 ExitCode", "Worker"), "launcher-0 exits 137", "Running; launcher-0 retry"},
		{"MPIJob v1: a Launcher of ExitCode fails for good", kubeflow("MPIJob", "", "Launcher 1 ExitCode", "Worker"), "launcher-0 exits 1", "Failed PermanentExit"},
		{"MPIJob v2beta1: the Launcher's success is the job's", mpi2, "launcher-0 exits 0", "Succeeded Completed"},
		{"MPIJob v2beta1: the Launcher is OnFailure, 6 times", mpi2, sixth, "Running; launcher-0 6 retries"},
		{"MPIJob v2beta1: and not a seventh", mpi2, sixth + ";launcher-0 exits 1", "Failed Exited; launcher-0 6 retries"},
		{"MPIJob v2beta1: backoffLimit 1", limited, "launcher-0 exits 1; launcher-0 exits 1", "Failed Exited; launcher-0 retry"},
		{"MPIJob v2beta1: backoffLimit is the launcher's own", limited, "worker-0 exits 1; worker-1 exits 1; launcher-0 exits 1", "Running; launcher-0 retry; worker-0 Failed; worker-1 Failed"},
	})
}
