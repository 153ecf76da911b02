package manifest

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// retired is the name of NVIDIA's GPUs until Kubernetes 1.10, and successor what
// it is called since. An API server still takes the former.
const (
	retired   = "alpha.kubernetes.io/nvidia-gpu"
	successor = "nvidia.com/gpu"
)

// RenameResources gives resources the names that the repository's settings have
// for them. A request that stands alone becomes the limit too: what there are
// other names for can be had only so. CheckTemplate does the same; a format that
// has it check a copy calls this before.
func RenameResources(o *Object, path string, spec *corev1.PodSpec) {
	names := o.Settings().Rename
	if len(names) == 0 {
		return
	}
	eachResources(path, spec, func(at string, r *corev1.ResourceRequirements) {
		for _, old := range slices.Sorted(maps.Keys(names)) {
			renameIn(o, at+".limits", r.Limits, old, names[old])
			if !renameIn(o, at+".requests", r.Requests, old, names[old]) {
				continue
			}
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			if _, limited := r.Limits[names[old]]; !limited {
				r.Limits[names[old]] = r.Requests[names[old]]
			}
		}
	})
}

// eachResources hands over what each container of a pod asks for, and its path.
func eachResources(path string, spec *corev1.PodSpec, f func(at string, r *corev1.ResourceRequirements)) {
	for i := range spec.InitContainers {
		f(Item(path+".initContainers", i)+".resources", &spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		f(Item(path+".containers", i)+".resources", &spec.Containers[i].Resources)
	}
}

// renameIn says whether the list had the old name.
func renameIn(o *Object, at string, list corev1.ResourceList, from, to corev1.ResourceName) bool {
	q, ok := list[from]
	if !ok {
		return false
	}
	if other, twice := list[to]; twice && other.Cmp(q) != 0 {
		o.Errorf(Join(at, string(from)), "trainyard.yaml renames it to %s, of which %s are asked for beside it: keep one of the two", to, shown(other))
	}
	delete(list, from)
	list[to] = q
	return true
}

// CheckResources reports what an API server would refuse of a pod's resources
// and claims, and nothing else.
func CheckResources(o *Object, path string, spec *corev1.PodSpec) {
	c := podChecker{o: o, spec: spec}
	c.claims(path + ".resourceClaims")
	eachResources(path, spec, c.resources)
}

func (c *podChecker) resources(path string, r *corev1.ResourceRequirements) {
	c.claimed(path+".claims", r.Claims)
	old := false
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			at := Join(path+"."+list.name, string(name))
			c.quantity(at, name, list.of[name])
			if name == retired && !old {
				old = true
				c.o.Warnf(at, "no cluster since Kubernetes 1.11 schedules it: it is %s now; write that, or gpus: {rename: {%s: %s}} in trainyard.yaml", successor, retired, successor)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		limit, limited := r.Limits[name]
		request, at := r.Requests[name], Join(path+".requests", string(name))
		switch {
		case !limited && (fixed(name) || name == retired):
			c.o.Warnf(at, "has no matching limit, and Kubernetes takes %s only with one", name)
		case !limited:
		case fixed(name) && request.Cmp(limit) != 0:
			c.o.Errorf(at, "%s is not the limit, %s, and Kubernetes takes %s only if both are the same; the request can be left out", shown(request), shown(limit), name)
		case request.Cmp(limit) > 0:
			c.o.Errorf(at, "%s is more than the limit, %s", shown(request), shown(limit))
		}
	}
}

// quantity checks one resource by itself.
func (c *podChecker) quantity(at string, name corev1.ResourceName, q resource.Quantity) {
	if q.Sign() < 0 {
		c.o.Errorf(at, "must not be negative")
	}
	switch whole := resource.NewQuantity(q.Value(), resource.DecimalSI); {
	case len(validation.IsQualifiedName(string(name))) > 0:
		c.o.Errorf(at, "%q cannot be the name of a resource", short(string(name)))
	case !strings.Contains(string(name), "/") && !standard(name):
		c.o.Errorf(at, "%q is no resource of containers%s; devices are named with their vendor, as in %s", short(string(name)),
			Nearest(string(name), "cpu", "memory", "ephemeral-storage"), successor)
	case extended(name) && q.CmpInt64(1<<53) < 0 && q.Cmp(*whole) != 0:
		c.o.Errorf(at, "%s of it cannot be had, only a whole number", shown(q))
	}
}

// fixed says whether an API server takes a request for a resource only if it is
// the limit as well.
func fixed(name corev1.ResourceName) bool {
	return extended(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// extended says whether a resource is one of a device plugin, and so whole. All
// that has kubernetes.io in its name is Kubernetes' own to an API server.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}

// standard says whether a container can have a resource that has no vendor.
func standard(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// claims checks the pod's own list of resource claims.
func (c *podChecker) claims(path string) {
	seen := map[string]bool{}
	for i := range c.spec.ResourceClaims {
		claim, at := &c.spec.ResourceClaims[i], Item(path, i)
		switch {
		case claim.Name == "":
			c.o.Errorf(at+".name", "required")
		case seen[claim.Name]:
			c.o.Errorf(at+".name", "resource claim %q is declared twice", claim.Name)
		default:
			c.o.Label(at+".name", claim.Name)
		}
		seen[claim.Name] = true
		if (claim.ResourceClaimName == nil) == (claim.ResourceClaimTemplateName == nil) {
			c.o.Errorf(at, "want either resourceClaimName or resourceClaimTemplateName")
		}
	}
}

// claimed checks which of them a container uses.
func (c *podChecker) claimed(path string, claims []corev1.ResourceClaim) {
	var names []string
	for i := range c.spec.ResourceClaims {
		names = append(names, c.spec.ResourceClaims[i].Name)
	}
	for i := range claims {
		switch at, name := Item(path, i)+".name", claims[i].Name; {
		case name == "":
			c.o.Errorf(at, "required")
		case !slices.Contains(names, name) && !c.o.full():
			c.o.Errorf(at, "the pod declares no resource claim %q%s", short(name), Nearest(name, names...))
		case slices.ContainsFunc(claims[:i], func(other corev1.ResourceClaim) bool {
			return other.Name == name && (other.Request == claims[i].Request || other.Request == "" || claims[i].Request == "")
		}):
			c.o.Errorf(at, "resource claim %q is used twice", short(name))
		}
	}
}

func shown(q resource.Quantity) string { return q.String() }
