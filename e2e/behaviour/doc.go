// Package behaviour holds every job format to the rules of the system that it
// comes from: a job file is rendered, and the runner decides about pods that
// end as a script says. Every row is played twice: to Decide alone with pods in
// memory, and to the whole runner with the Kubernetes backend on a real API
// server, where the test does what scheduler, kubelets and node controllers do
// and daemons are killed between an action and its record. With -short it is
// played in memory alone. The package starts no process of a job, and holds no
// code that the program uses.
package behaviour
