package local

import "time"

// process names a process for good: a PID alone is given to another one sooner or later.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // when it started, as the kernel counts
	Boot  string `json:"boot"`  // of which boot of the machine
}

// shimState is shim.json.
type shimState struct {
	process
	UID string    `json:"uid"`
	At  time.Time `json:"at"`
}

// alive says whether that very process is still there. A zombie is not.
func (p process) alive() bool {
	if p.PID <= 1 || p.Boot != bootID() {
		return false
	}
	start, ok := startOf(p.PID)
	return ok && start == p.Start
}

// thisProcess is the process that asks.
func thisProcess(pid int) process {
	start, _ := startOf(pid)
	return process{PID: pid, Start: start, Boot: bootID()}
}
