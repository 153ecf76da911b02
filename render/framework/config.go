package framework

import (
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/manifest"
)

// ConfigFile is what FrameworkController calls its configuration: the key under
// which a ConfigMap holds it.
const ConfigFile = "frameworkcontroller.yaml"

// config is FrameworkController's own configuration. Of what it says only the
// failures and the delays are about jobs; the rest is about the controller,
// and is known so that nothing is said of it.
type config struct {
	KubeAPIServerAddress any `json:"kubeApiServerAddress"`
	KubeConfigFilePath   any `json:"kubeConfigFilePath"`
	KubeClientQPS        any `json:"kubeClientQps"`
	KubeClientBurst      any `json:"kubeClientBurst"`
	WorkerNumber         any `json:"workerNumber"`
	Compression          any `json:"largeFrameworkCompression"`
	CRDInterval          any `json:"crdEstablishedCheckIntervalSec"`
	CRDTimeout           any `json:"crdEstablishedCheckTimeoutSec"`
	CacheTimeout         any `json:"objectLocalCacheCreationTimeoutSec"`
	// Retain is how long a Framework object stays; records stay anyway.
	Retain      any       `json:"frameworkCompletedRetainSec"`
	LogSnapshot any       `json:"logObjectSnapshot"`
	MinDelay    *int64    `json:"frameworkMinRetryDelaySecForTransientConflictFailed"`
	MaxDelay    *int64    `json:"frameworkMaxRetryDelaySecForTransientConflictFailed"`
	Failures    []failure `json:"podFailureSpec"`
}

// failure is an entry of podFailureSpec. Any of its patterns makes it match.
type failure struct {
	Code     *int32       `json:"code"`
	Phrase   string       `json:"phrase"`
	Type     failureType  `json:"type"`
	Patterns []podPattern `json:"podPatterns"`
}

type failureType struct {
	Name       string   `json:"name"`
	Attributes []string `json:"attributes"`
}

type podPattern struct {
	Name       string             `json:"nameRegex"`
	Reason     string             `json:"reasonRegex"`
	Message    string             `json:"messageRegex"`
	Containers []containerPattern `json:"containers"`
}

type containerPattern struct {
	Name    string      `json:"nameRegex"`
	Reason  string      `json:"reasonRegex"`
	Message string      `json:"messageRegex"`
	Signals *codesRange `json:"signalRange"`
	Codes   *codesRange `json:"codeRange"`
}

type codesRange struct {
	Min *int32 `json:"min"`
	Max *int32 `json:"max"`
}

// Bounds of a configuration.
const (
	maxFailures   = 200
	maxExpression = 1000
	maxDelay      = 24 * time.Hour
)

// ReadConfig reads FrameworkController's configuration into the settings.
func ReadConfig(o *manifest.Object, settings *repo.Settings) {
	var c config
	o.Decode("", &c, manifest.Options{Lenient: true})
	delay := repo.Span{Min: minConflictDelay, Max: maxConflictDelay}
	seconds := func(field string, n *int64, to *time.Duration) {
		switch {
		case n == nil:
		case *n < 0 || *n > int64(maxDelay/time.Second):
			o.Errorf(field, "want a number of seconds from 0 to %d, not %d", maxDelay/time.Second, *n)
		default:
			*to = time.Duration(*n) * time.Second
		}
	}
	seconds("frameworkMinRetryDelaySecForTransientConflictFailed", c.MinDelay, &delay.Min)
	seconds("frameworkMaxRetryDelaySecForTransientConflictFailed", c.MaxDelay, &delay.Max)
	if delay.Max < delay.Min {
		o.Errorf("frameworkMaxRetryDelaySecForTransientConflictFailed", "must not be less than the least delay, %s", delay.Min)
	}
	settings.FrameworkDelay = &delay
	settings.FrameworkRules = failures(o, c.Failures)
}

// failures are never nil: a file without a list stands for an empty list, as upstream.
func failures(o *manifest.Object, list []failure) []repo.FailureRule {
	out := []repo.FailureRule{}
	if len(list) > maxFailures {
		o.Errorf("podFailureSpec", "%d entries are too many; %d are the most", len(list), maxFailures)
		return out
	}
	seen := map[int32]bool{}
	for i := range list {
		f, at := &list[i], manifest.Item("podFailureSpec", i)
		switch {
		case f.Code == nil:
			o.Errorf(at+".code", "required")
		case *f.Code >= -999 && *f.Code <= 0 || *f.Code >= 200 && *f.Code <= 219:
			o.Errorf(at+".code", "%d is reserved: -999 to 0 and 200 to 219 are predefined", *f.Code)
		case seen[*f.Code]:
			o.Errorf(at+".code", "%d is there twice", *f.Code)
		default:
			seen[*f.Code] = true
		}
		if len(f.Patterns) == 0 {
			o.Errorf(at+".podPatterns", "required: at least one")
		}
		class := f.class(o, at+".type")
		for n := range f.Patterns {
			rule := f.Patterns[n].rule(o, manifest.Item(at+".podPatterns", n))
			rule.Name, rule.Class = reasonName(o, at+".phrase", f.Phrase), class
			out = append(out, rule)
		}
	}
	return out
}

func (f *failure) class(o *manifest.Object, at string) repo.Class {
	if f.Type.Name != "" && f.Type.Name != "Failed" {
		o.Errorf(at+".name", "%q is not Failed, which is all that it can be", f.Type.Name)
	}
	for i, a := range f.Type.Attributes {
		manifest.OneOf(o, manifest.Item(at+".attributes", i), a, "", "Transient", "Permanent", "Conflict")
	}
	has := func(a string) bool { return slices.Contains(f.Type.Attributes, a) }
	switch { // in the order of upstream's retry rules
	case has("Transient") && has("Conflict"):
		return repo.TransientConflict
	case has("Transient"):
		return repo.Transient
	case has("Permanent"):
		return repo.Permanent
	}
	return repo.Unknown
}

var phrase = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,99}$`)

// reasonName is the reason of an outcome: one word, as it stands in tables.
func reasonName(o *manifest.Object, at, text string) string {
	if text == "" || phrase.MatchString(text) {
		return text
	}
	o.Warnf(at, "%q is not one word of letters and digits, so failures are told by their own reason instead", text)
	return ""
}

// rule is a pattern as a failure rule: a plain one where that says the same.
func (p *podPattern) rule(o *manifest.Object, at string) repo.FailureRule {
	expression(o, at+".nameRegex", &p.Name)
	expression(o, at+".reasonRegex", &p.Reason)
	expression(o, at+".messageRegex", &p.Message)
	for i := range p.Containers {
		c, at := &p.Containers[i], manifest.Item(at+".containers", i)
		expression(o, at+".nameRegex", &c.Name)
		expression(o, at+".reasonRegex", &c.Reason)
		expression(o, at+".messageRegex", &c.Message)
	}
	if p.Name == "" && p.Reason != "" && len(p.Containers) == 0 && ofPods(p.Reason) {
		return repo.FailureRule{ReasonPattern: p.Reason, MessagePattern: p.Message}
	}
	if p.Name == "" && p.Reason == "" && p.Message == "" && len(p.Containers) == 1 && p.Containers[0].Name == "" {
		c := &p.Containers[0]
		codes, signals := c.Codes.read(), c.Signals.read()
		if codes != nil && codes.Min > 0 && signals == nil {
			return repo.FailureRule{ExitCodes: []repo.CodeRange{*codes}, ReasonPattern: c.Reason, MessagePattern: c.Message}
		}
	}
	exact := &repo.PodPattern{Name: p.Name, Reason: p.Reason, Message: p.Message}
	for i := range p.Containers {
		c := &p.Containers[i]
		exact.Containers = append(exact.Containers, repo.ContainerPattern{
			Name: c.Name, Reason: c.Reason, Message: c.Message, Signals: c.Signals.read(), ExitCodes: c.Codes.read(),
		})
	}
	return repo.FailureRule{Pod: exact}
}

func (r *codesRange) read() *repo.CodeRange {
	if r == nil {
		return nil
	}
	out := repo.CodeRange{Min: math.MinInt32, Max: math.MaxInt32}
	if r.Min != nil {
		out.Min = *r.Min
	}
	if r.Max != nil {
		out.Max = *r.Max
	}
	return &out
}

// ofPods says whether an expression for reasons of pods fits none that
// containers have, which a plain rule looks at too.
func ofPods(reason string) bool {
	re, err := regexp.Compile(reason)
	return err == nil && !slices.ContainsFunc([]string{"", "Error", "Completed", "OOMKilled", "ContainerCannotRun", "StartError", "ContainerStatusUnknown", "Unknown"}, re.MatchString)
}

// expression checks an RE2 expression. One that fits every text, as nearly all
// of the shipped ones do for the sake of the diagnostics, is left out.
func expression(o *manifest.Object, at string, text *string) {
	if len(*text) > maxExpression {
		o.Errorf(at, "an expression of %d characters is too long; %d are the most", len(*text), maxExpression)
		*text = ""
		return
	}
	if _, err := regexp.Compile(*text); err != nil {
		o.Errorf(at, "%v (the syntax is RE2's)", err)
		*text = ""
		return
	}
	if parsed, err := syntax.Parse(*text, syntax.Perl); err == nil && fitsAll(parsed) {
		*text = ""
	}
}

// fitsAll says whether an expression is .* or nothing, whatever its flags.
func fitsAll(re *syntax.Regexp) bool {
	re = re.Simplify()
	any := re.Op == syntax.OpStar && (re.Sub[0].Op == syntax.OpAnyChar || re.Sub[0].Op == syntax.OpAnyCharNotNL)
	return any || re.Op == syntax.OpEmptyMatch
}
