// Package node makes this machine a real Kubernetes node, or several, for
// tests: a kubelet, containerd, runc, CNI and CoreDNS, joined to a control
// plane that runs on the same machine. It never touches a cluster of the
// user's, and leaves the machine as it was.
//
// A node lives in PID, mount, network, UTS and IPC namespaces of its own, below
// one init process that ends when the process that started it does. On the host
// there are only, for as long as the node lives:
//
//   - a cgroup trainyard-node-N in every hierarchy,
//   - a link trainyard-nN on the bridge trainyard0, that all nodes share,
//   - a directory of the node's state in the temporary directory,
//   - a file of the node's number in /run/trainyard-nodes; an empty lock beside
//     that directory stays.
//
// What a killed test leaves of these is removed by the next Start. Mounts,
// addresses, routes and iptables rules end with the namespaces.
//
// Everything on the nodes is in 198.18.0.0/16, which is set aside for tests of
// networks: the host is 198.18.0.1, node N is 198.18.N.1 and its pods have the
// rest of 198.18.N.0/24. Pods of all nodes and the host see each other directly.
// There is no kube-proxy: Services are names of pods, but the API server, which
// is reached at the address of its Service and at the one that the test uses.
package node
