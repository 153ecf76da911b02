package mpi

import "github.com/trainyard/trainyard/render/kubeflow"

// spec is an MPIJob's, of the training operator (v1) and of the MPI operator (v2beta1).
type spec struct {
	kubeflow.Spec
	// Replicas by type: Launcher, exactly one, starts mpirun and decides; Worker
	// is where processes run.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"mpiReplicaSpecs"`
	// SlotsPerWorker is how many processes a host takes in the host file; 1 by default.
	SlotsPerWorker *int32 `json:"slotsPerWorker"`
	// MainContainer of the workers is where kubexec.sh runs a process; their
	// first by default. v1 only.
	MainContainer string `json:"mainContainer"`
	// Implementation is OpenMPI (default), Intel or MPICH: the form of the host
	// file and the launcher's variables. v2beta1 only.
	Implementation implementation `json:"mpiImplementation"`
	// SSHAuthMountPath is where the keys of the Secret NAME-ssh are mounted,
	// /root/.ssh by default. No key is made here: the Secret is created by hand.
	// v2beta1 only.
	SSHAuthMountPath string `json:"sshAuthMountPath"`
	// LauncherCreationPolicy is AtStartup (default); WaitForWorkersReady is read
	// as it, with a warning. v2beta1 only.
	LauncherCreationPolicy string `json:"launcherCreationPolicy"`
	// RunLauncherAsWorker makes the launcher the first host. v2beta1 only.
	RunLauncherAsWorker bool `json:"runLauncherAsWorker"`
}

// implementation of MPI.
type implementation string

const (
	openMPI implementation = "OpenMPI"
	intel   implementation = "Intel"
	mpich   implementation = "MPICH"
)
