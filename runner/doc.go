// Package runner decides what happens to jobs, and makes it happen. Decide is
// a pure function from a job's definition, its record and its pods to the next
// record and the actions that follow; Loop feeds it. The package never reads or
// writes Git, and reaches pods only through a Backend.
package runner
