package framework

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/manifest/manifesttest"
)

func readConfig(t *testing.T, text string) (repo.Settings, []string) {
	t.Helper()
	docs, errs := manifest.Parse("fc.yaml", []byte(text))
	require.Empty(t, errs)
	var built map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &built))
	o := manifest.NewObject(built, docs[0], repo.Settings{})
	var s repo.Settings
	ReadConfig(o, &s)
	var said []string
	for _, p := range o.Problems() {
		said = append(said, p.Error())
	}
	return s, said
}

// TestPatterns holds what podFailureSpec's patterns become (A.11).
func TestPatterns(t *testing.T) {
	between := func(low, high int32) *repo.CodeRange { return &repo.CodeRange{Min: low, Max: high} }
	for _, row := range []struct {
		name, pattern string
		want          repo.FailureRule
	}{
		{"reason of a pod", "reasonRegex: ^Evicted$, messageRegex: '(?ms).*'", repo.FailureRule{ReasonPattern: "^Evicted$"}},
		{"reason that a container may have", "reasonRegex: Err", repo.FailureRule{Pod: &repo.PodPattern{Reason: "Err"}}},
		{"message of a pod", "messageRegex: disk", repo.FailureRule{Pod: &repo.PodPattern{Message: "disk"}}},
		{"name of a pod", "nameRegex: -ps-, reasonRegex: X", repo.FailureRule{Pod: &repo.PodPattern{Name: "-ps-", Reason: "X"}}},
		{"codes", "containers: [{codeRange: {min: 3, max: 4}, messageRegex: oom}]", repo.FailureRule{ExitCodes: []repo.CodeRange{{Min: 3, Max: 4}}, MessagePattern: "oom"}},
		{"no upper end", "containers: [{codeRange: {min: 1}}]", repo.FailureRule{ExitCodes: []repo.CodeRange{{Min: 1, Max: math.MaxInt32}}}},
		{"0 fits too", "containers: [{codeRange: {max: 4}}]", repo.FailureRule{Pod: &repo.PodPattern{Containers: []repo.ContainerPattern{{ExitCodes: between(math.MinInt32, 4)}}}}},
		{"signals", "containers: [{signalRange: {min: 9, max: 9}}]", repo.FailureRule{Pod: &repo.PodPattern{Containers: []repo.ContainerPattern{{Signals: between(9, 9)}}}}},
		{"every one of several", "containers: [{nameRegex: a, codeRange: {min: 1}}, {nameRegex: b, reasonRegex: R}]", repo.FailureRule{Pod: &repo.PodPattern{Containers: []repo.ContainerPattern{
			{Name: "a", ExitCodes: between(1, math.MaxInt32)}, {Name: "b", Reason: "R"},
		}}}},
		{"anything", "nameRegex: .*", repo.FailureRule{Pod: &repo.PodPattern{}}},
	} {
		s, said := readConfig(t, "podFailureSpec: [{code: 1, phrase: X, type: {attributes: [Transient, Conflict]}, podPatterns: [{"+row.pattern+"}]}]\n")
		require.Empty(t, said, row.name)
		row.want.Name, row.want.Class = "X", repo.TransientConflict
		assert.Equal(t, []repo.FailureRule{row.want}, s.FrameworkRules, row.name)
	}
}

func TestConfig(t *testing.T) {
	s, said := readConfig(t, "workerNumber: 500\nframeworkCompletedRetainSec: 60\nlogObjectSnapshot: {task: {onTaskRetry: false}}\nframeworkMaxRetryDelaySecForTransientConflictFailed: 120\n")
	assert.Empty(t, said, "what is about the controller says nothing of jobs")
	assert.Equal(t, &repo.Span{Min: time.Minute, Max: 2 * time.Minute}, s.FrameworkDelay)
	assert.NotNil(t, s.FrameworkRules, "no list stands for an empty one")
	assert.Empty(t, s.FrameworkRules)

	const ok = "podPatterns: [{reasonRegex: X}]"
	for text, want := range map[string]string{
		"podFailureSpec: [{" + ok + "}]\n":                                               "podFailureSpec[0].code: required",
		"podFailureSpec: [{code: 210, " + ok + "}]\n":                                    "210 is reserved",
		"podFailureSpec: [{code: -1, " + ok + "}]\n":                                     "-1 is reserved",
		"podFailureSpec: [{code: 1, " + ok + "}, {code: 1, " + ok + "}]\n":               "podFailureSpec[1].code: 1 is there twice",
		"podFailureSpec: [{code: 1}]\n":                                                  "podPatterns: required",
		"podFailureSpec: [{code: 1, type: {name: Succeeded}, " + ok + "}]\n":             `"Succeeded" is not Failed`,
		"podFailureSpec: [{code: 1, type: {attributes: [transient]}, " + ok + "}]\n":     `did you mean "Transient"?`,
		"podFailureSpec: [{code: 1, phrase: a | b, " + ok + "}]\n":                       "warning: podFailureSpec[0].phrase",
		"podFailureSpec: [{code: 1, podPatterns: [{containers: [{nameRegex: '('}]}]}]\n": "containers[0].nameRegex: error parsing regexp",
		"frameworkMinRetryDelaySecForTransientConflictFailed: 901\n":                     "must not be less than the least delay",
		"frameworkMinRetryDelaySecForTransientConflictFailed: -1\n":                      "want a number of seconds from 0",
		"podFailureSpecs: []\n":                                                          `warning: podFailureSpecs: unknown field ignored; did you mean "podFailureSpec"?`,
	} {
		_, said := readConfig(t, text)
		require.NotEmpty(t, said, text)
		assert.Contains(t, said[0], want)
	}
}

func TestOfPods(t *testing.T) {
	for expression, want := range map[string]bool{"^Evicted$": true, "": false, "Err": false, `^OutOf\S+$`: true, "(?i)oomkilled": false} {
		assert.Equal(t, want, ofPods(expression), expression)
	}
}

func FuzzReadConfig(f *testing.F) {
	manifesttest.FuzzConfig(f, ReadConfig, "frameworkMinRetryDelaySecForTransientConflictFailed: 5\npodFailureSpec:\n- {code: 1, phrase: X, type: {name: Failed, attributes: [Transient]}, podPatterns: [{reasonRegex: '(?i)^E$'}, {nameRegex: a, containers: [{codeRange: {min: 1}, signalRange: {max: 9}}]}]}\n")
}
