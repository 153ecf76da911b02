// Package cluster runs a real control plane on loopback for tests: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, with nodes that
// kwok simulates. It needs Go and nothing else: everything is built once from
// Go modules, in folder controlplane, and kept in the user's cache. It is no
// part of the program, runs no container, and touches no cluster of the user's
// unless it is given one by name.
//
// A package of tests that uses it says
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
// # Simulated pods
//
// A pod on a simulated node starts at once and runs for ever, unless its
// annotations say otherwise, all of which begin with simulate.trainyard.dev/:
//
//	exit-code       its containers end with this code; a pod that runs ends at once
//	exit-code.NAME  … of the container NAME alone
//	run-for         … so long after the start (a Go duration)
//	reason          of the end; Completed or Error if there is none
//	start-delay     it starts so long after it was given a node
//	stop-delay      a deleted pod goes on so long
//	stop-code       with which its containers then end; 143 if there is none
//	waiting         it never starts, for this reason: ErrImagePull, …
//	init-exit-code  its first init container ends with this code
//	log             what its containers have written; it may grow
//
// No container is started a second time, whatever the pod's restartPolicy.
package cluster
