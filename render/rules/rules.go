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
		free("NodeLost", "NodeLost", "DeletionByTaintManager", "DeletionByPodGC", "ContainerStatusUnknown"),
		free("NodeShutdown", "NodeShutdown", "Shutdown", "Terminated", "TerminationByKubelet"),
		free("PodLost", "PodLost"),
		free("Disrupted", "DisruptionTarget"),
		{Name: "NodeRefused", ReasonPattern: `^(OutOf\S+|UnexpectedAdmissionError|InvalidNodeInfo|NodeAffinity|UnexpectedPredicateFailureType)$`, Class: repo.Transient, Free: true},
	}
}

// TrainingJob is the table of our own format.
func TrainingJob() []repo.FailureRule {
	return append(infrastructure(),
		// Memory, a command that is not there, or a mistake in native code: the
		// next try ends the same way.
		repo.FailureRule{Name: "OOMKilled", Reasons: []string{"OOMKilled"}, Class: repo.Permanent},
		repo.FailureRule{Name: "DeadlineExceeded", Reasons: []string{"DeadlineExceeded"}, Class: repo.Permanent},
		repo.FailureRule{Name: "Forbidden", Reasons: []string{"Forbidden"}, Class: repo.Permanent},
		repo.FailureRule{Name: "CannotRun", Reasons: []string{"ContainerCannotRun", "StartError", "RunContainerError", "CreateContainerConfigError"}, Class: repo.Permanent},
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

// FrameworkController is the table that controller ships with, in its order
// and with its phrases, behind its predefined codes.
func FrameworkController() []repo.FailureRule {
	reason := func(name, pattern string, class repo.Class) repo.FailureRule {
		return repo.FailureRule{Name: name, ReasonPattern: pattern, Class: class}
	}
	start := func(name string, class repo.Class, c int32, message string) repo.FailureRule {
		r := code(name, class, c)
		r.ReasonPattern, r.MessagePattern = `^ContainerCannotRun$`, message
		return r
	}
	return []repo.FailureRule{
		code("ContainerTransientFailed", repo.Transient, 200),
		code("ContainerTransientConflictFailed", repo.TransientConflict, 201),
		code("ContainerPermanentFailed", repo.Permanent, 210),
		reason("PodEvicted", `(?i)^Evicted$`, repo.Transient),
		reason("PodNodeLost", `(?i)^NodeLost$`, repo.Transient),
		reason("PodScheduledToInsufficientResourceNode", `(?i)^OutOf\S+$`, repo.Transient),
		reason("PodPreemptedForCriticalPod", `(?i)^Preempting$`, repo.Transient),
		reason("PodDeadlineExceeded", `(?i)^DeadlineExceeded$`, repo.Permanent),
		reason("PodNodeAdmissionForbidden", `(?i)^Forbidden$`, repo.Permanent),
		reason("PodNodeAdmissionUnexpectedError", `(?i)^(UnexpectedAdmissionError|UnknownReason|InvalidNodeInfo|UnexpectedPredicateFailureType)$`, repo.Transient),
		// Newer than the table: what it calls an external deletion, Kubernetes
		// now leaves behind as a failed pod with this condition.
		reason("PodExternalDeleted", `^DisruptionTarget$`, repo.Transient),
		{Name: "ContainerDockerOOMKilled", ReasonPattern: `(?i)^OOMKilled$`, Class: repo.Permanent},
		start("ContainerDockerCreationError", repo.Unknown, 125, ""),
		start("ContainerDockerStartCmdPermissionDenied", repo.Permanent, 126, ""),
		start("ContainerDockerStartCmdNotFound", repo.Permanent, 127, ""),
		start("ContainerDockerStartCmdNotFound", repo.Permanent, 128, `(?i)(not found|cannot find|no such)`),
		start("ContainerDockerStartUnknownError", repo.Unknown, 128, ""),
		code("ContainerSigIntReceived", repo.Transient, 130),
		code("ContainerSigQuitReceived", repo.Transient, 131),
		code("ContainerSigIllReceived", repo.Permanent, 132),
		code("ContainerSigAbrtReceived", repo.Unknown, 134),
		code("ContainerSigBusReceived", repo.Permanent, 135),
		code("ContainerSigFpeReceived", repo.Permanent, 136),
		code("ContainerSigKillReceived", repo.Transient, 137),
		code("ContainerSigSegvReceived", repo.Permanent, 139),
		code("ContainerSigPipeReceived", repo.Permanent, 141),
		code("ContainerSigTermReceived", repo.Transient, 143),
	}
}

// Launcher is the table of the launcher era, the first public form of FrameworkController.
func Launcher() []repo.FailureRule {
	return append([]repo.FailureRule{
		{Name: "ContainerOOMKilled", ReasonPattern: "OOMKilled", Class: repo.Unknown},
		code("ContainerSigIntReceived", repo.Transient, 130),
		code("ContainerSigKillReceived", repo.Transient, 137),
		code("ContainerSigTermReceived", repo.Transient, 143),
		code("ContainerTransientFailed", repo.Transient, 200),
		code("ContainerTransientConflictFailed", repo.TransientConflict, 201),
		code("ContainerPermanentFailed", repo.Permanent, 210),
	}, infrastructure()[1:]...)
}

// TfJob is the rule of the TfJob operator: exit codes from 128 on are retried,
// running out of memory and lower ones are not. What else ends the pod says
// nothing of the training, and is retried.
func TfJob() []repo.FailureRule {
	return append(infrastructure()[1:],
		repo.FailureRule{Name: "OOMKilled", Container: "tensorflow", Reasons: []string{"OOMKilled"}, Class: repo.Permanent},
		span("PermanentExit", "tensorflow", repo.Permanent, 1, 127),
		span("RetryableExit", "tensorflow", repo.Transient, 128, highest),
		repo.FailureRule{Class: repo.Transient},
	)
}

// MxJob is the rule of the MXNet operator: as TfJob's, but a container that
// left no termination message is retried whatever its code.
func MxJob() []repo.FailureRule {
	return append(infrastructure()[1:],
		repo.FailureRule{Name: "OOMKilled", Container: "mxnet", Reasons: []string{"OOMKilled"}, Class: repo.Permanent},
		repo.FailureRule{Name: "NoTerminationMessage", Container: "mxnet", NoMessage: true, Class: repo.Transient},
		span("PermanentExit", "mxnet", repo.Permanent, 1, 127),
		span("RetryableExit", "mxnet", repo.Transient, 128, highest),
		repo.FailureRule{Class: repo.Transient},
	)
}
