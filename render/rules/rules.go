// Package rules holds the failure rules that each job format begins with, and
// reads those that a job or the repository puts before them. It never judges a
// failure itself.
package rules

import (
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// All is a job's table: its own rules, the repository's, the format's.
func All(own []repo.FailureRule, settings repo.Settings, format []repo.FailureRule) []repo.FailureRule {
	return slices.Concat(own, settings.Rules, format)
}

func code(name string, class repo.Class, codes ...int32) repo.FailureRule {
	r := repo.FailureRule{Name: name, Class: class}
	for _, c := range codes {
		r.ExitCodes = append(r.ExitCodes, repo.CodeRange{Min: c, Max: c})
	}
	return r
}

func span(name, container string, class repo.Class, lowest, highest int32) repo.FailureRule {
	return repo.FailureRule{Name: name, Container: container, Class: class, ExitCodes: []repo.CodeRange{{Min: lowest, Max: highest}}}
}

// highest exit code there is on Linux, as wide as it needs to be elsewhere.
const highest = 255

// infrastructure are ends that no program can help: the node went away, or the
// place was needed for something else.
func infrastructure() []repo.FailureRule {
	free := func(name string, reasons ...string) repo.FailureRule {
		return repo.FailureRule{Name: name, Reasons: reasons, Class: repo.Transient, Free: true}
	}
	return []repo.FailureRule{
		// A pod that is evicted because it filled its own disk does so again.
		{Name: "OverOwnLimit", Reasons: []string{"Evicted"}, MessagePattern: `(?i)exceed(s|ed) .*\blimit`, Class: repo.Permanent},
		free("Evicted", "Evicted", "EvictionByEvictionAPI"),
		free("Preempted", "Preempting", "Preempted", "PreemptionByScheduler"),
		free("NodeLost", append(endUnseen(), "NodeLost", "DeletionByTaintManager", "DeletionByPodGC")...),
		free("DeviceLost", "DeletionByDeviceTaintManager"),
		free("NodeShutdown", "NodeShutdown", "Shutdown", "Terminated", "TerminationByKubelet"),
		free("PodLost", "PodLost"),
		free("Disrupted", "DisruptionTarget"),
		interrupted("StartInterrupted", true),
		{Name: "NodeRefused", ReasonPattern: `^(OutOf\S+|` + refusals + `)$`, Class: repo.Transient, Free: true},
	}
}

// endUnseen are the reasons of a container that is gone, and nobody saw how: its
// node was off meanwhile. A kubelet gives the first, with code 137, when it finds
// no container, and passes on containerd's, with code 255, when it finds the rest of one.
func endUnseen() []string { return []string{"ContainerStatusUnknown", "Unknown"} }

// interrupted is that the kubelet or the container runtime went away while it
// started a container: nothing has run, and the next try finds it there again.
func interrupted(name string, free bool) repo.FailureRule {
	return repo.FailureRule{Name: name, Reasons: []string{"StartError"}, MessagePattern: `context canceled|ttrpc: closed|failed to start shim: .*signal: killed`, Class: repo.Transient, Free: free}
}

// refusals are reasons of a kubelet that does not take a pod which the scheduler
// gave it: the two saw the node differently, and elsewhere it may fit.
const refusals = `UnexpectedAdmissionError|InvalidNodeInfo|UnknownReason|UnexpectedPredicateFailureType|` +
	`NodeAffinity|NodePorts|NodeUnschedulable|TaintToleration|TopologyAffinityError|VolumeAttachmentLimitExceeded`

// noCommand is in what a container runtime says of a command that is not there,
// or cannot be run. What else keeps a container from starting can be the node.
const noCommand = `executable file not found|exec:? .*(no such file|permission denied|is a directory|not a directory|exec format error)|chdir to cwd`

// TrainingJob is the table of our own format.
func TrainingJob() []repo.FailureRule {
	return append(infrastructure(),
		// Memory, a command that is not there, or a mistake in native code: the
		// next try ends the same way.
		repo.FailureRule{Name: "OOMKilled", Reasons: []string{"OOMKilled"}, Class: repo.Permanent},
		repo.FailureRule{Name: "DeadlineExceeded", Reasons: []string{"DeadlineExceeded"}, Class: repo.Permanent},
		repo.FailureRule{Name: "Forbidden", Reasons: []string{"Forbidden", "SysctlForbidden"}, Class: repo.Permanent},
		repo.FailureRule{Name: "CannotRun", Reasons: []string{"ContainerCannotRun", "RunContainerError", "CreateContainerConfigError"}, Class: repo.Permanent},
		repo.FailureRule{Name: "CannotRun", Reasons: []string{"StartError"}, MessagePattern: noCommand, Class: repo.Permanent},
		code("CommandCannotRun", repo.Permanent, 126, 127),
		// Codes by which a program says itself what it thinks of its end.
		code("TransientExit", repo.Transient, 200),
		code("TransientConflictExit", repo.TransientConflict, 201),
		code("PermanentExit", repo.Permanent, 210),
		// Interrupt, kill and terminate come from outside, but from whom is not
		// known: they are worth a retry, and use up the budget.
		code("Interrupted", repo.Transient, 130),
		code("Killed", repo.Transient, 137),
		code("Terminated", repo.Transient, 143),
		code("IllegalInstruction", repo.Permanent, 132),
		code("BusError", repo.Permanent, 135),
		code("FloatingPointError", repo.Permanent, 136),
		code("SegmentationFault", repo.Permanent, 139),
	)
}

// TfJob is the rule of the TfJob operator: exit codes from 128 on are retried,
// running out of memory and lower ones are not. What else ends the pod says
// nothing of the training, and is retried.
func TfJob() []repo.FailureRule { return ofOperator("tensorflow", ExitCode("tensorflow", nil)...) }

// EarlyKubeflow is the same rule in the operators of kubeflow.org/v1alpha1, by
// the table of codes of that time.
func EarlyKubeflow(container string) []repo.FailureRule {
	return ofOperator(container, EarlyExitCode(container, nil)...)
}

// MxJob is the rule of the MXNet operator: as TfJob's, but a container that
// left no termination message is retried whatever its code.
func MxJob() []repo.FailureRule {
	silent := repo.FailureRule{Name: "NoTerminationMessage", Container: "mxnet", NoMessage: true, Class: repo.Transient}
	return ofOperator("mxnet", append([]repo.FailureRule{silent}, ExitCode("mxnet", nil)...)...)
}

func ofOperator(container string, byCode ...repo.FailureRule) []repo.FailureRule {
	oom := repo.FailureRule{Name: "OOMKilled", Container: container, Reasons: []string{"OOMKilled"}, Class: repo.Permanent}
	return slices.Concat(infrastructure()[1:], []repo.FailureRule{oom}, byCode, []repo.FailureRule{{Class: repo.Transient}})
}
