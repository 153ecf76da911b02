// Package behaviour holds every job format to the rules of the system that it
// comes from: a job file is rendered, and the runner decides about pods that
// end as a script says. It starts no process and holds no code that the program uses.
package behaviour
