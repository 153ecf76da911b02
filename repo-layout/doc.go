// Package repo is the contract between Trainyard and the people who use a
// repository with it: the words of the project as types (Job, Run, Record,
// Error), what lies where in the watched repository and on the status branch,
// and how a task attempt's pod is named and stamped. It never does I/O, and
// knows neither Git nor a cluster.
package repo
