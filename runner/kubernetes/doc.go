// Package kubernetes runs pods on a Kubernetes cluster with core objects only:
// pods, services, config maps, events and leases. It decides nothing: what
// should run is the runner's business, where it runs the scheduler's.
package kubernetes
