package behaviour

import (
	"fmt"
	"strings"
	"testing"
)

// frameworkRole is a task role: "worker 2 FANCY/MAX MINFAILED/MINSUCCEEDED", the
// last two of which need not be given.
func frameworkRole(text string) string {
	f := strings.Fields(text)
	policy := func(s, first, second string) string {
		a, b, _ := strings.Cut(s, "/")
		return fmt.Sprintf("{%s: %s, %s: %s}", first, a, second, b)
	}
	role := fmt.Sprintf("{name: %s, taskNumber: %s, ", f[0], f[1])
	if len(f) > 3 {
		role += "frameworkAttemptCompletionPolicy: " + policy(f[3], "minFailedTaskCount", "minSucceededTaskCount") + ", "
	}
	if len(f) > 2 {
		role += "task: {retryPolicy: " + policy(f[2], "fancyRetryPolicy", "maxRetryCount") + ", "
	} else {
		role += "task: {"
	}
	return role + `pod: {spec: {restartPolicy: Never, containers: [{name: main, image: "i:1", command: [run]}]}}}}`
}

// framework is a Framework of the present form with a retry policy (FANCY/MAX).
func framework(retry string, roles ...string) string {
	return frameworkOf("frameworkcontroller.microsoft.com/v1", retry, roles...)
}

// launcher is one of the older form.
func launcher(retry string, roles ...string) string {
	return frameworkOf("launcher.microsoft.com/v1", retry, roles...)
}

func frameworkOf(group, retry string, roles ...string) string {
	fancy, limit, _ := strings.Cut(retry, "/")
	text := fmt.Sprintf("apiVersion: %s\nkind: Framework\nmetadata: {name: job}\nspec:\n  executionType: Start\n  retryPolicy: {fancyRetryPolicy: %s, maxRetryCount: %s}\n  taskRoles:\n", group, fancy, limit)
	for _, r := range roles {
		text += "  - " + frameworkRole(r) + "\n"
	}
	return text
}

// one is a Framework of one task with a policy, whose end is the attempt's.
func one(policy string) string { return framework("false/0", "worker 1 "+policy+" 1/1") }

// other is one with a second container, put where the list of the first begins.
func other(where string) string {
	return strings.Replace(one("true/0"), "containers: [", fmt.Sprintf(where, `{name: other, image: "i:1", command: [run]}`), 1)
}

func TestFrameworkTaskRetries(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{"A.9 4: -2 retries a success", one("false/-2"), "worker-0 exits 0", "Running; worker-0 retry"},
		{"A.9 4: -2 retries every failure", one("false/-2"), "worker-0 exits 1; worker-0 exits 139", "Running; worker-0 2 retries"},
		{"A.9 3 before 4: fancy -2 does not retry a permanent failure", one("true/-2"), "worker-0 exits 210", "Failed ContainerPermanentFailed"},
		{"A.9 5: -1 retries every failure", one("false/-1"), "worker-0 exits 1; worker-0 exits 210; worker-0 OOMKilled", "Running; worker-0 3 retries"},
		{"A.9 5: -1 does not retry a success", one("false/-1"), "worker-0 exits 0", "Succeeded Completed"},
		{"A.9 5: -1 has no end", one("false/-1"), strings.Repeat("worker-0 exits 1;", 20), "Running; worker-0 20 retries"},
		{"A.9 7: 0 does not retry", one("false/0"), "worker-0 exits 1", "Failed ContainerUnrecognizedFailed"},
		{"A.9 6: n retries n failures", one("false/2"), "worker-0 exits 1; worker-0 exits 1", "Running; worker-0 2 retries"},
		{"A.9 7: and not one more", one("false/2"), "worker-0 exits 1; worker-0 exits 1; worker-0 exits 1", "Failed ContainerUnrecognizedFailed; worker-0 2 retries"},
		{"A.9 6: plain counts a transient failure", one("false/1"), "worker-0 exits 200; worker-0 exits 200", "Failed ContainerTransientFailed; worker-0 retry"},
		{"A.9 6: plain retries a permanent failure", one("false/1"), "worker-0 exits 210", "Running; worker-0 retry"},
		{"A.9 2: fancy retries a transient failure for free", one("true/0"), "worker-0 exits 200; worker-0 exits 137", "Running; worker-0 2 free retries"},
		{"A.9 2: without an end", one("true/0"), strings.Repeat("worker-0 exits 143;", 20), "Running; worker-0 20 free retries"},
		{"A.9 2: and leaves the budget", one("true/1"), "worker-0 exits 200; worker-0 exits 1; worker-0 exits 200; worker-0 exits 1", "Failed ContainerUnrecognizedFailed; worker-0 retry 2 free retries"},
		{"A.9 1: a task's conflict is free and at once", one("true/0"), "worker-0 exits 201", "Running; worker-0 free retry"},
		{"A.9 3: fancy never retries a permanent failure", one("true/5"), "worker-0 exits 139", "Failed ContainerSigSegvReceived"},
		{"A.9 6: fancy counts an unknown failure", one("true/1"), "worker-0 exits 1; worker-0 exits 1", "Failed ContainerUnrecognizedFailed; worker-0 retry"},
		{"A.9: every task has its own budget", framework("false/0", "worker 2 false/1 2/-1"), "worker-0 exits 1; worker-1 exits 1", "Running; worker-0 retry; worker-1 retry"},
	})
}

func TestFrameworkExitCodes(t *testing.T) {
	t.Parallel()
	const permanent, free, counted = "Failed ", "Running; worker-0 free retry", "Running; worker-0 retry"
	fancy := one("true/1")
	old := launcher("false/0", "worker 1 true/1 1/1")
	for _, tt := range []struct{ how, now, then string }{
		{"exits 1", counted, counted},
		{"exits 2", counted, counted},
		{"exits 126", counted, counted},
		{"exits 127", counted, counted},
		{"cannot run 126", permanent + "ContainerDockerStartCmdPermissionDenied", counted},
		{"cannot run 127", permanent + "ContainerDockerStartCmdNotFound", counted},
		{"cannot run 125", counted, counted},
		{"cannot run 128 saying exec: x: not found", permanent + "ContainerDockerStartCmdNotFound", counted},
		{"cannot run 128 saying else", counted, counted},
		{"exits 128", counted, counted},
		{"exits 130", free, free},
		{"exits 131", free, counted},
		{"exits 132", permanent + "ContainerSigIllReceived", counted},
		{"exits 134", counted, counted},
		{"exits 135", permanent + "ContainerSigBusReceived", counted},
		{"exits 136", permanent + "ContainerSigFpeReceived", counted},
		{"exits 137", free, free},
		{"OOMKilled", permanent + "ContainerDockerOOMKilled", counted},
		{"exits 138", counted, counted},
		{"exits 139", permanent + "ContainerSigSegvReceived", counted},
		{"exits 141", permanent + "ContainerSigPipeReceived", counted},
		{"exits 143", free, free},
		{"exits 200", free, free},
		{"exits 201", free, free},
		{"exits 210", permanent + "ContainerPermanentFailed", permanent + "ContainerPermanentFailed"},
		{"exits 255", counted, counted},
		{"exits 0", "Succeeded Completed", "Succeeded Completed"},
		{"evicted", free, free},
		{"loses node", free, free},
		{"preempted", free, free},
		{"is deleted", free, free},
		{"vanishes", free, free},
		{"fails", counted, free},
	} {
		check(t, []row{
			{"E.1, A.10, A.11 fancy: " + tt.how, fancy, "worker-0 " + tt.how, tt.now},
			{"E.1, A.19 launcher, fancy: " + tt.how, old, "worker-0 " + tt.how, tt.then},
			{"E.1 plain, any failure is counted: " + tt.how, one("false/1"), "worker-0 " + tt.how, plain(tt.how)},
			{"E.1 launcher, plain: " + tt.how, launcher("false/0", "worker 1 false/1 1/1"), "worker-0 " + tt.how, plain(tt.how)},
		})
	}
}

func plain(how string) string {
	if how == "exits 0" {
		return "Succeeded Completed"
	}
	return "Running; worker-0 retry"
}
