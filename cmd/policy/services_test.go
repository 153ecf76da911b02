package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestServices(t *testing.T) {
	for _, c := range []struct {
		name, policy, service string
		want                  string // "" when it is allowed
	}{
		{"nothing said", "{}", `{"spec":{"ports":[{"port":80}]}}`, ""},
		{"headless", "{}", `{"spec":{"type":"ClusterIP","clusterIP":"None","clusterIPs":["None"]}}`, ""},
		{"node port", "{}", `{"spec":{"type":"NodePort"}}`, "jobs/a.yaml:3: Service web: spec.type: NodePort is no type of Service of the policy (ClusterIP)"},
		{"load balancer", "{}", `{"spec":{"type":"LoadBalancer"}}`, "spec.type: LoadBalancer is no type"},
		{"another name", "{}", `{"spec":{"type":"ExternalName","externalName":"169.254.169.254"}}`, "spec.type: ExternalName is no type"},
		{"a type that is none", "{}", `{"spec":{"type":"nodeport"}}`, "spec.type: nodeport is no type"},
		{"node port allowed", "services: [ClusterIP, NodePort]", `{"spec":{"type":"NodePort","ports":[{"nodePort":30000}]}}`, ""},
		{"no Services", "services: []", `{"spec":{}}`, "spec.type: ClusterIP is no type of Service of the policy (it allows none)"},
		{"external address", "{}", `{"spec":{"externalIPs":["8.8.8.8"]}}`, `spec.externalIPs: "8.8.8.8" is no address that the policy gives to Services (it allows none)`},
		{"external address of the policy", "serviceIPs: [192.0.2.7]", `{"spec":{"externalIPs":["192.0.2.7"]}}`, ""},
		{"in another way", "serviceIPs: [192.0.2.7]", `{"spec":{"externalIPs":["::ffff:192.0.2.7"]}}`, ""},
		{"network of the policy", "serviceIPs: [192.0.2.9/24, 'fd00::/64']", `{"spec":{"externalIPs":["192.0.2.200","fd00::1"]}}`, ""},
		{"beside the network", "serviceIPs: [192.0.2.0/24]", `{"spec":{"externalIPs":["192.0.2.1","192.0.3.1"]}}`, `"192.0.3.1" is no address that the policy gives to Services (192.0.2.0/24)`},
		{"address that is none", "serviceIPs: [0.0.0.0/0]", `{"spec":{"externalIPs":["010.0.0.1"]}}`, `"010.0.0.1" is no address`},
		{"balanced address", "services: [LoadBalancer]", `{"spec":{"type":"LoadBalancer","loadBalancerIP":"203.0.113.1"}}`, `spec.loadBalancerIP: "203.0.113.1" is no address`},
		{"chosen address", "{}", `{"spec":{"clusterIP":"10.96.0.10"}}`, `spec.clusterIP: "10.96.0.10" is no address`},
		{"chosen second address", "{}", `{"spec":{"clusterIPs":["10.96.0.10"]}}`, `spec.clusterIP: "10.96.0.10" is no address`},
		{"hidden by case", "{}", `{"spec":{"externalIPs":["8.8.8.8"],"externalips":[]}}`, `spec.externalIPs: "8.8.8.8" is no address`},
		{"not readable", "{}", `{"spec":{"externalIPs":"8.8.8.8"}}`, "Service web: not readable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse([]byte(c.policy))
			require.NoError(t, err)
			j := job(corev1.PodSpec{})
			j.Objects = []repo.Object{{APIVersion: "v1", Kind: "Service", Name: "web", Raw: json.RawMessage(c.service)}}
			found := p.Check(j)
			if c.want == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Contains(t, found[0].Error(), c.want)
		})
	}
	for in, want := range map[string]string{
		"services: [nodePort]":          `services: "nodePort" is none of ClusterIP, NodePort`,
		"serviceIPs: [here]":            `serviceIPs: "here" is no address, and no network`,
		"serviceIPs: [10.0.0.0/33]":     `serviceIPs: "10.0.0.0/33" is no address`,
		"services:":                     "services has no value",
		"externalIPs: [203.0.113.0/24]": `unknown field "externalIPs"`,
	} {
		_, err := Parse([]byte(in))
		assert.ErrorContains(t, err, want, "%q", in)
	}
}
