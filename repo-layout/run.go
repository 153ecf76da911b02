package repo

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"
)

// Run is one execution of a job: the definition that it runs, which stays the
// same until it ends whatever happens in the repository.
type Run struct {
	ID          string    `json:"id"`
	Environment string    `json:"environment"`
	Trigger     Trigger   `json:"trigger"`
	Revision    string    `json:"revision"`
	StartedAt   time.Time `json:"startedAt"`
	// Number grows with every run of the job: of two that a backend has
	// prepared, the one with the lower number was over when the other began.
	Number int `json:"number"`
	Job    Job `json:"job"`
}

// Task is one replica of a role. It keeps its name for the whole run.
type Task struct {
	Role  string
	Index int32
}

// String is the task's name: worker-0.
func (t Task) String() string { return fmt.Sprintf("%s-%d", t.Role, t.Index) }

// TaskAttempt is one try of one task: one pod, never started twice.
type TaskAttempt struct {
	Task
	RunAttempt int32
	Attempt    int32
}

// Address is where a task listens for the others.
type Address struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// String is host:port.
func (a Address) String() string { return a.Host + ":" + itoa(a.Port) }

// Addresses tells the address of each task of a run's attempt.
type Addresses func(Task) Address

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// RunID derives a run's identity from its job, what was rendered and what
// triggered it: the same definition pushed twice is the same run. The ID is a
// DNS label: the job's name, cut to fit, and 10 letters of a hash.
func RunID(environment string, key Key, digest string, trigger Trigger) string {
	h := sha256.Sum256([]byte(strings.Join([]string{environment, key.Namespace, key.Name, digest, string(trigger.Kind), trigger.Value}, "\x00")))
	name := key.Name
	if len(name) > 52 {
		name = strings.TrimRight(name[:52], "-")
	}
	return name + "-" + lowerBase32.EncodeToString(h[:])[:10]
}

// PodName derives the name of a task attempt's pod: its lock, because no
// backend takes a second pod of the same name.
func PodName(runID string, a TaskAttempt) string {
	return fmt.Sprintf("%s-%s-%d-%d", runID, a.Task, a.RunAttempt, a.Attempt)
}
