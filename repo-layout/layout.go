package repo

import (
	"fmt"
	"hash/fnv"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What lies where in the watched repository.
const (
	SettingsFile = "trainyard.yaml"
	JobsDir      = "jobs"
	OverlaysDir  = "overlays"
	// StatusBranch is where records go unless the daemon is told otherwise, and
	// StatusDir the directory for them on a branch that holds jobs too.
	StatusBranch = "trainyard/status"
	StatusDir    = "status"
	// DefaultEnvironment and DefaultNamespace are for those who name none.
	DefaultEnvironment = "default"
	DefaultNamespace   = "default"
)

// PlainName says whether a file or directory may have a name: one that every
// system takes for the same, and no terminal for a command. What has another
// is not read.
func PlainName(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.EqualFold(name, ".git") {
		return false
	}
	return utf8.ValidString(name) && !strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Annotations of a job of any format.
const (
	AnnotationRerun    = "trainyard.dev/rerun"    // a new value is a new run
	AnnotationSuspend  = "trainyard.dev/suspend"  // "true"
	AnnotationStop     = "trainyard.dev/stop"     // "true"
	AnnotationOnChange = "trainyard.dev/onChange" // as TrainingJob's spec.onChange
)

// RevisionTrailer ends the message of every commit of records: the commit of
// the watched branch that they speak of.
const RevisionTrailer = "Trainyard-Revision"

// Layout knows every path on the status branch.
type Layout struct {
	Root   string // "" on a branch of its own, StatusDir beside the jobs
	Shards int
}

// Dashboard is the README.md that a forge shows first.
func (l Layout) Dashboard() string { return path.Join(l.Root, "README.md") }

// EnvironmentDir holds the records of an environment.
func (l Layout) EnvironmentDir(environment string) string { return path.Join(l.Root, environment) }

// RecordDir is the directory of a job's record.
func (l Layout) RecordDir(environment string, key Key) string {
	if l.Shards > 1 {
		h := fnv.New32a()
		h.Write([]byte(key.Name))
		shard := fmt.Sprintf("%02x", h.Sum32()%uint32(l.Shards))
		return path.Join(l.Root, environment, key.Namespace, shard, key.Name)
	}
	return path.Join(l.Root, environment, key.Namespace, key.Name)
}

// Files of a record's directory.
const (
	StatusFile  = "status.yaml"
	HistoryFile = "history.jsonl"
	PageFile    = "README.md"
)

// TailPath is where the end of a task attempt's log lies, from the record's directory.
func TailPath(runID string, a TaskAttempt) string {
	return path.Join("logs", runID, fmt.Sprintf("%s-%d-%d.log", a.Task, a.RunAttempt, a.Attempt))
}
