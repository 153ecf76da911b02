package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	// Keys are told apart by case, as the API server does: "externalips" is not
	// "externalIPs", and must not hide it.
	"k8s.io/apimachinery/pkg/util/json"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// services checks the Services of the job's unit, and those that its format
// makes. A Service can do more than lead to pods: open a port on every node, ask
// the cloud for an address, take over what is sent to an address of somebody
// else's, and be another name for a host outside.
func (c *checker) services() {
	for _, o := range c.job.Objects {
		if o.Kind != "Service" {
			continue
		}
		var s corev1.Service
		if err := json.Unmarshal(o.Raw, &s); err != nil {
			c.errorf("Service "+o.Name, "not readable: %v", err)
			continue
		}
		c.service(o, &s.Spec)
	}
}

func (c *checker) service(o repo.Object, spec *corev1.ServiceSpec) {
	field, p := "Service "+o.Name+": spec.", c.policy
	kind := string(cmp.Or(spec.Type, corev1.ServiceTypeClusterIP))
	if !slices.Contains(p.serviceTypes(), kind) {
		c.errorf(field+"type", "%s is no type of Service of the policy (%s)", kind, list(p.serviceTypes()))
	}
	for _, ip := range spec.ExternalIPs {
		c.address(field+"externalIPs", ip)
	}
	if spec.LoadBalancerIP != "" {
		c.address(field+"loadBalancerIP", spec.LoadBalancerIP)
	}
	// An address that is not given out yet may be one that others count on.
	for _, ip := range append([]string{spec.ClusterIP}, spec.ClusterIPs...) {
		if ip != "" && ip != corev1.ClusterIPNone {
			c.address(field+"clusterIP", ip)
		}
	}
}

// address refuses one that a Service asks for and that is not given to Services.
func (c *checker) address(field, text string) {
	ip, err := netip.ParseAddr(text)
	if err == nil && slices.ContainsFunc(c.policy.given, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) }) {
		return
	}
	var allowed []string
	if c.policy.ServiceIPs != nil {
		allowed = *c.policy.ServiceIPs
	}
	c.errorf(field, "%q is no address that the policy gives to Services (%s)", text, list(allowed))
}

// serviceTypes are those that are allowed; ClusterIP alone if nothing is said.
func (p *Policy) serviceTypes() []string {
	if p.Services == nil {
		return []string{string(corev1.ServiceTypeClusterIP)}
	}
	return *p.Services
}

// checkServices reads what a policy says of Services.
func (p *Policy) checkServices() error {
	types := []string{
		string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeNodePort),
		string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeExternalName),
	}
	for _, s := range p.serviceTypes() {
		if !slices.Contains(types, s) {
			return fmt.Errorf("services: %q is none of %s", s, strings.Join(types, ", "))
		}
	}
	if p.ServiceIPs == nil {
		return nil
	}
	for _, text := range *p.ServiceIPs {
		prefix, err := netip.ParsePrefix(text)
		if ip, aerr := netip.ParseAddr(text); aerr == nil {
			prefix, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return fmt.Errorf("serviceIPs: %q is no address, and no network as in 10.0.0.0/24", text)
		}
		p.given = append(p.given, prefix.Masked())
	}
	return nil
}
