package rules

import (
	"math"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// FrameworkController is its predefined codes, and behind them the list of the
// configuration that it ships with, or that of an operator's own configuration
// in its place. The names are its phrases.
func FrameworkController(settings repo.Settings) []repo.FailureRule {
	list := settings.FrameworkRules
	if list == nil {
		list = shipped()
	}
	// Upstream saw a pod that the cluster took away as deleted, and without an
	// exit code. Now it stays as a failed pod with this condition, and the code of
	// a container that was killed for it must not come first. Nor must one that was
	// made up for a container that went with its node.
	i := slices.IndexFunc(list, ofContainer)
	if i < 0 {
		i = len(list)
	}
	return slices.Concat(
		[]repo.FailureRule{
			code("ContainerTransientFailed", repo.Transient, 200),
			code("ContainerTransientConflictFailed", repo.TransientConflict, 201),
			code("ContainerPermanentFailed", repo.Permanent, 210),
		},
		list[:i],
		[]repo.FailureRule{
			{Name: "PodExternalDeleted", Reasons: []string{"DisruptionTarget"}, Class: repo.Transient},
			{Name: "PodNodeLost", Reasons: endUnseen(), Class: repo.Transient},
			interrupted("ContainerStartInterrupted", false),
		},
		list[i:],
		[]repo.FailureRule{
			{Name: "ContainerUnrecognizedFailed", ExitCodes: anyCode(), Class: repo.Unknown},
			{Name: "PodFailedWithoutFailedContainer", Class: repo.Unknown},
		},
	)
}

func ofContainer(r repo.FailureRule) bool {
	return r.Container != "" || len(r.ExitCodes)+len(r.Signals) > 0 || r.Pod != nil && len(r.Pod.Containers) > 0
}

func anyCode() []repo.CodeRange { return []repo.CodeRange{{Min: 1, Max: math.MaxInt32}} }

func shipped() []repo.FailureRule {
	reason := func(name, pattern string, class repo.Class) repo.FailureRule {
		return repo.FailureRule{Name: name, ReasonPattern: pattern, Class: class}
	}
	start := func(name string, class repo.Class, c int32, message string) repo.FailureRule {
		r := code(name, class, c)
		r.ReasonPattern, r.MessagePattern = `(?i)^ContainerCannotRun$`, message
		return r
	}
	return []repo.FailureRule{
		reason("PodEvicted", `(?i)^Evicted$`, repo.Transient),
		reason("PodNodeLost", `(?i)^NodeLost$`, repo.Transient),
		reason("PodScheduledToInsufficientResourceNode", `(?i)^OutOf\S+$`, repo.Transient),
		reason("PodPreemptedForCriticalPod", `(?i)^Preempting$`, repo.Transient),
		reason("PodDeadlineExceeded", `(?i)^DeadlineExceeded$`, repo.Permanent),
		reason("PodNodeAdmissionForbidden", `(?i)^Forbidden$`, repo.Permanent),
		reason("PodNodeAdmissionUnexpectedError", `(?i)^(UnexpectedAdmissionError|UnknownReason|InvalidNodeInfo|UnexpectedPredicateFailureType)$`, repo.Transient),
		{Name: "ContainerDockerOOMKilled", ReasonPattern: `(?i)^OOMKilled$`, ExitCodes: anyCode(), Class: repo.Permanent},
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
	table := append([]repo.FailureRule{
		{Name: "ContainerOOMKilled", ReasonPattern: "OOMKilled", Class: repo.Unknown},
		code("ContainerSigIntReceived", repo.Transient, 130),
		code("ContainerSigKillReceived", repo.Transient, 137),
		code("ContainerSigTermReceived", repo.Transient, 143),
		code("ContainerTransientFailed", repo.Transient, 200),
		code("ContainerTransientConflictFailed", repo.TransientConflict, 201),
		code("ContainerPermanentFailed", repo.Permanent, 210),
	}, infrastructure()[1:]...)
	return append(table,
		repo.FailureRule{Name: "ContainerFailedWithUnknownExitCode", ExitCodes: anyCode(), Class: repo.Unknown},
		repo.FailureRule{Name: "PodFailedWithoutFailedContainer", Class: repo.Transient},
	)
}
