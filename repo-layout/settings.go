package repo

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Settings are what trainyard.yaml at the root of the watched repository says.
// The zero value holds for a repository without one.
type Settings struct {
	// Defaults are for jobs that do not say otherwise.
	Defaults Defaults
	// Rules come before a job's built-in failure rules, after its own.
	Rules   []FailureRule
	Shards  int // directories a namespace's records are spread over; 0 or 1 is none
	Removal Removal
	// FrameworkRules are the podFailureSpec of a FrameworkController's own
	// configuration. As there, they take the place of the list that it ships
	// with, behind the codes that are predefined; nil when there is no such file.
	FrameworkRules []FailureRule
	// FrameworkDelay is the same file's wait before a Framework is tried again
	// whose tasks stood in each other's way; nil when there is no such file.
	FrameworkDelay *Span
	// Rename gives resources of containers other names: the one that a retired
	// name has now.
	Rename map[corev1.ResourceName]corev1.ResourceName
	// Accelerators are those of a TfJob operator's configuration, by resource name.
	Accelerators map[string]Accelerator
}

// Accelerator is what the TfJob operator adds to a container that asks for a resource.
type Accelerator struct {
	Volumes []AcceleratorVolume
	Env     []corev1.EnvVar
}

// AcceleratorVolume is a directory of the node in an accelerated container.
type AcceleratorVolume struct {
	Name      string
	HostPath  string
	MountPath string
}

// Defaults for jobs of every format.
type Defaults struct {
	Namespace string
	OnChange  OnChange
	Deadline  time.Duration
	Cleanup   *Cleanup
}

// Removal guards against a repository that was emptied by mistake.
type Removal struct {
	// MaxShare of the jobs may vanish at once without being asked about, when
	// at least RemovalFloor of them do; all of them never may. 0 is DefaultMaxShare.
	MaxShare float64
	// Confirm is the token that the daemon prints for a removal it holds back.
	Confirm string
}

// Bounds of Removal.
const (
	DefaultMaxShare = 0.5
	RemovalFloor    = 10
)
