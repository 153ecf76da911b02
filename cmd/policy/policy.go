// Package policy holds what the operator of a daemon allows jobs to ask for. It
// is read from a file given to the daemon, never from the watched repository,
// and judges rendered jobs; it changes none.
package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	psa "k8s.io/pod-security-admission/api"
	standards "k8s.io/pod-security-admission/policy"
)

// Policy is what is allowed. A field that is absent allows everything, but for
// PodSecurity, Services and ServiceIPs; a list that is there and empty allows
// nothing.
type Policy struct {
	// PodSecurity is the level of Kubernetes' pod security standards that pods
	// keep to: privileged, baseline or restricted; baseline when absent.
	// HostPaths and HostNetwork, when they are there, say what they are about
	// in its place.
	PodSecurity psa.Level `yaml:"podSecurity"`
	// Namespaces that jobs may be in; a * at the end matches any rest.
	Namespaces *[]string `yaml:"namespaces"`
	// HostPaths that may be mounted, with everything below them.
	HostPaths   *[]string `yaml:"hostPaths"`
	HostNetwork *bool     `yaml:"hostNetwork"`
	// MaxReplicas and MaxGPUs are of all roles of a job together.
	MaxReplicas *int32 `yaml:"maxReplicas"`
	MaxGPUs     *int64 `yaml:"maxGPUs"`
	// Registries that images may come from: a host, or a host and a path.
	Registries *[]string `yaml:"registries"`
	// ServiceAccounts that pods may run as. A pod that names none runs as "default".
	ServiceAccounts *[]string `yaml:"serviceAccounts"`
	// Services are the types of Services that may stand beside a job: ClusterIP
	// alone when absent. ServiceIPs are addresses and networks that they may ask
	// for, as externalIPs, loadBalancerIP or clusterIP: none when absent.
	Services   *[]string `yaml:"services"`
	ServiceIPs *[]string `yaml:"serviceIPs"`

	evaluator standards.Evaluator
	given     []netip.Prefix // what ServiceIPs says
}

var fields = []string{"podSecurity", "namespaces", "hostPaths", "hostNetwork", "maxReplicas", "maxGPUs", "registries", "serviceAccounts", "services", "serviceIPs"}

// Parse reads a policy strictly: a field that it does not know would be a
// limit that nobody keeps.
func Parse(file []byte) (*Policy, error) {
	dec := yaml.NewDecoder(bytes.NewReader(file))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var p Policy
	if doc.Kind == 0 {
		return nil, errors.New("is empty; write {} to allow what a policy allows that says nothing")
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one document")
	}
	if err := known(doc.Content[0]); err != nil {
		return nil, err
	}
	if err := doc.Decode(&p); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return &p, p.check()
}

// known refuses fields that are none, and fields without a value: whoever
// wrote one meant a limit.
func known(root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a policy is a mapping of %s", root.Line, strings.Join(fields, ", "))
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if !slices.Contains(fields, k.Value) {
			return fmt.Errorf("line %d: unknown field %q; there are %s", k.Line, k.Value, strings.Join(fields, ", "))
		}
		if v.Tag == "!!null" {
			return fmt.Errorf("line %d: %s has no value; write [] to allow none, or leave the field out", k.Line, k.Value)
		}
	}
	return nil
}

func (p *Policy) check() (err error) {
	p.PodSecurity = cmp.Or(p.PodSecurity, psa.LevelBaseline)
	if !p.PodSecurity.Valid() {
		return fmt.Errorf("podSecurity: %q is none of privileged, baseline, restricted", p.PodSecurity)
	}
	if p.evaluator, err = standards.NewEvaluator(standards.DefaultChecks(), nil); err != nil {
		return fmt.Errorf("pod security standards: %w", err)
	}
	if p.HostPaths != nil {
		for _, h := range *p.HostPaths {
			if !path.IsAbs(h) {
				return fmt.Errorf("hostPaths: %q is no absolute path", h)
			}
		}
	}
	if p.MaxReplicas != nil && *p.MaxReplicas < 0 {
		return fmt.Errorf("maxReplicas: %d is less than 0", *p.MaxReplicas)
	}
	if p.MaxGPUs != nil && *p.MaxGPUs < 0 {
		return fmt.Errorf("maxGPUs: %d is less than 0", *p.MaxGPUs)
	}
	return p.checkServices()
}
