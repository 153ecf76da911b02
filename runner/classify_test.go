package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// failedPod is a pod of which containers ended, one second after another.
func failedPod(ends ...End) *Pod {
	for i := range ends {
		ends[i].At = day.Add(time.Duration(i) * time.Second)
	}
	return &Pod{State: PodFailed, Failure: Failure{Ends: ends}}
}

func exit(container string, code int32) End { return End{Container: container, ExitCode: code} }

func codes(from, to int32) []repo.CodeRange { return []repo.CodeRange{{Min: from, Max: to}} }

func TestRuleMatches(t *testing.T) {
	evicted := &Pod{State: PodFailed, Failure: Failure{Reasons: []string{"Evicted"}, Message: "The node was low on resource: memory."}}
	disrupted := failedPod(exit("main", 137))
	disrupted.Failure.Reasons = []string{"DisruptionTarget", "PreemptionByScheduler"}
	oom := failedPod(End{Container: "main", ExitCode: 137, Signal: 9, Reason: "OOMKilled"})
	noisy := failedPod(End{Container: "main", ExitCode: 1, Reason: "Error", Message: "lost the master"})
	noisy.Tail = "step 17\nCUDA error: uncorrectable ECC error\n"
	silent := failedPod(exit("main", 1))
	two := failedPod(exit("init", 0), exit("main", 1), exit("side", 42))
	for _, row := range []struct {
		rule string
		r    repo.FailureRule
		pod  *Pod
		main string
		want bool
	}{
		{"no condition matches every failure", repo.FailureRule{}, silent, "", true},
		{"no condition, no container", repo.FailureRule{}, &Pod{State: PodFailed}, "", true},
		{"exit code", repo.FailureRule{ExitCodes: codes(1, 1)}, silent, "", true},
		{"exit code of a range, lowest", repo.FailureRule{ExitCodes: codes(1, 9)}, silent, "", true},
		{"exit code of a range, highest", repo.FailureRule{ExitCodes: codes(0, 1)}, silent, "", true},
		{"exit code just below a range", repo.FailureRule{ExitCodes: codes(2, 9)}, silent, "", false},
		{"exit code just above a range", repo.FailureRule{ExitCodes: codes(40, 41)}, two, "", false},
		{"second range", repo.FailureRule{ExitCodes: append(codes(7, 7), codes(40, 50)...)}, two, "", true},
		{"0 is no failure, even in a range", repo.FailureRule{ExitCodes: codes(0, 0)}, two, "", false},
		{"a container that succeeded fits no rule", repo.FailureRule{Container: "init"}, two, "", false},
		{"container by name", repo.FailureRule{Container: "side", ExitCodes: codes(42, 42)}, two, "", true},
		{"conditions hold for one and the same container", repo.FailureRule{Container: "main", ExitCodes: codes(42, 42)}, two, "", false},
		{"unknown container", repo.FailureRule{Container: "other"}, two, "", false},
		{"with a main container its code decides", repo.FailureRule{ExitCodes: codes(42, 42)}, two, "main", false},
		{"the main container's own code", repo.FailureRule{ExitCodes: codes(1, 1)}, two, "main", true},
		{"a rule may name another container than the main one", repo.FailureRule{Container: "side", ExitCodes: codes(42, 42)}, two, "main", true},
		{"signal", repo.FailureRule{Signals: codes(9, 9)}, oom, "", true},
		{"other signal", repo.FailureRule{Signals: codes(15, 15)}, oom, "", false},
		{"no signal", repo.FailureRule{Signals: codes(9, 9)}, silent, "", false},
		{"signal and exit code", repo.FailureRule{Signals: codes(9, 9), ExitCodes: codes(1, 1)}, oom, "", false},
		{"reason of the pod", repo.FailureRule{Reasons: []string{"Evicted"}}, evicted, "", true},
		{"one of several reasons", repo.FailureRule{Reasons: []string{"NodeLost", "Evicted"}}, evicted, "", true},
		{"a reason is matched exactly", repo.FailureRule{Reasons: []string{"evicted", "Evict"}}, evicted, "", false},
		{"reason of a condition", repo.FailureRule{Reasons: []string{"PreemptionByScheduler"}}, disrupted, "", true},
		{"disruption by its condition", repo.FailureRule{Reasons: []string{"DisruptionTarget"}}, disrupted, "", true},
		{"reason of a container", repo.FailureRule{Reasons: []string{"OOMKilled"}}, oom, "", true},
		{"reason of a container and its code", repo.FailureRule{Reasons: []string{"OOMKilled"}, ExitCodes: codes(137, 137)}, oom, "", true},
		{"reason of a container, other code", repo.FailureRule{Reasons: []string{"OOMKilled"}, ExitCodes: codes(1, 1)}, oom, "", false},
		{"reason pattern of a pod", repo.FailureRule{ReasonPattern: "^Evic"}, evicted, "", true},
		{"reason pattern of a container", repo.FailureRule{ReasonPattern: "OOM"}, oom, "", true},
		{"reason pattern that is not there", repo.FailureRule{ReasonPattern: "^OOM$"}, oom, "", false},
		{"message of the pod", repo.FailureRule{MessagePattern: "low on resource: (memory|disk)"}, evicted, "", true},
		{"message of a container", repo.FailureRule{MessagePattern: "lost the m"}, noisy, "", true},
		{"other message", repo.FailureRule{MessagePattern: "^master"}, noisy, "", false},
		{"reason and message", repo.FailureRule{Reasons: []string{"Evicted"}, MessagePattern: "disk"}, evicted, "", false},
		{"log pattern", repo.FailureRule{LogPattern: "CUDA error: .*ECC"}, noisy, "", true},
		{"log pattern that is not there", repo.FailureRule{LogPattern: "NCCL"}, noisy, "", false},
		{"log pattern of a pod without a log", repo.FailureRule{LogPattern: "."}, silent, "", false},
		{"log pattern and exit code", repo.FailureRule{LogPattern: "ECC", ExitCodes: codes(2, 2)}, noisy, "", false},
		{"no message asked for, none there", repo.FailureRule{NoMessage: true, ExitCodes: codes(1, 1)}, silent, "", true},
		{"no message asked for, one there", repo.FailureRule{NoMessage: true, ExitCodes: codes(1, 1)}, noisy, "", false},
		{"no message of a pod without containers", repo.FailureRule{NoMessage: true}, evicted, "", false},
		{"damaged pattern matches nothing", repo.FailureRule{LogPattern: "("}, noisy, "", false},
		{"damaged message pattern matches nothing", repo.FailureRule{MessagePattern: "("}, noisy, "", false},
	} {
		assert.Equal(t, row.want, (*rule)(&row.r).matches(row.pod, row.main), row.rule)
	}
}

func TestClassify(t *testing.T) {
	rules := []repo.FailureRule{
		{Name: "Ours", ExitCodes: codes(42, 42), Class: repo.Transient, AvoidNode: true},
		{ExitCodes: codes(42, 50), Class: repo.Permanent},
		{Reasons: []string{"Evicted"}, Class: repo.Transient, Free: true},
	}
	for _, row := range []struct {
		rule   string
		pod    *Pod
		main   string
		class  repo.Class
		free   bool
		reason string
		code   int32 // 0: none
		avoid  bool
	}{
		{"first match wins, its name is the reason", failedPod(exit("a", 42)), "", repo.Transient, false, "Ours", 42, true},
		{"second rule, without a name", failedPod(exit("a", 43)), "", repo.Permanent, false, "Exited", 43, false},
		{"no rule: Unknown", failedPod(exit("a", 1)), "", repo.Unknown, false, "Exited", 1, false},
		{"no rule, no container", &Pod{State: PodFailed}, "", repo.Unknown, false, "PodFailed", 0, false},
		{"a container's reason", failedPod(End{Container: "a", ExitCode: 137, Reason: "OOMKilled"}), "", repo.Unknown, false, "OOMKilled", 137, false},
		{"Error is no reason", failedPod(End{Container: "a", ExitCode: 1, Reason: "Error"}), "", repo.Unknown, false, "Exited", 1, false},
		{"nobody's fault", &Pod{State: PodFailed, Failure: Failure{Reasons: []string{"Evicted"}}}, "", repo.Transient, true, "Evicted", 0, false},
		{"of several the one that failed last", failedPod(exit("a", 3), exit("b", 4), exit("c", 0)), "", repo.Unknown, false, "Exited", 4, false},
		{"the main container speaks for the pod", failedPod(exit("a", 3), exit("b", 4)), "a", repo.Unknown, false, "Exited", 3, false},
		{"a sidecar speaks for nobody", failedPod(exit("a", 3), End{Container: "proxy", Sidecar: true, ExitCode: 137}), "", repo.Unknown, false, "Exited", 3, false},
		{"another one, if the main container did not fail", failedPod(exit("a", 0), exit("b", 4)), "a", repo.Unknown, false, "Exited", 4, false},
	} {
		o, avoid := classify(rules, row.main, row.pod)
		assert.Equal(t, repo.Failed, o.Result, row.rule)
		assert.Equal(t, row.class, o.Class, row.rule)
		assert.Equal(t, row.free, o.Free, row.rule)
		assert.Equal(t, row.reason, o.Reason, row.rule)
		assert.Equal(t, row.avoid, avoid, row.rule)
		if row.code == 0 {
			assert.Nil(t, o.ExitCode, row.rule)
		} else if assert.NotNil(t, o.ExitCode, row.rule) {
			assert.Equal(t, row.code, *o.ExitCode, row.rule)
		}
	}
}

func TestDescribe(t *testing.T) {
	o, _ := classify(nil, "", failedPod(exit("train", 3)))
	assert.Equal(t, `container "train" exited with code 3`, o.Message)
	o, _ = classify(nil, "", failedPod(End{Container: "train", ExitCode: 137, Signal: 9, Message: "no memory"}))
	assert.Equal(t, `container "train" was ended by signal 9: no memory`, o.Message)
	assert.Equal(t, int32(9), o.Signal)
	assert.Equal(t, 1024, len(cut(string(make([]byte, 2000)))))
	long := ""
	for range 600 {
		long += "äö"
	}
	assert.LessOrEqual(t, len(cut(long)), repo.MaxMessage)
	assert.NotContains(t, cut(long), "\uFFFD", "cut between characters")
}

func TestRuleOfSomeRoles(t *testing.T) {
	rules := []repo.FailureRule{{Name: "Fatal", Roles: []string{"worker"}, ExitCodes: codes(1, 1), Class: repo.Permanent}}
	for role, want := range map[string]string{"worker": "Fatal", "ps": ReasonExited} {
		p := &Pod{State: PodFailed, Failure: Failure{Ends: []End{{Container: "main", ExitCode: 1}}}}
		p.Attempt.Role = role
		o, _ := classify(rules, "main", p)
		assert.Equal(t, want, o.Reason, role)
	}
}
