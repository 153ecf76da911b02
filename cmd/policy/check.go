package policy

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Check lists everything that a job asks for and may not have.
func (p *Policy) Check(job repo.Job) []*repo.Error {
	c := checker{policy: p, job: &job}
	if p == nil {
		return nil
	}
	c.namespaces()
	c.services()
	var replicas, gpus int64
	for i := range job.Roles {
		role := &job.Roles[i]
		field := fmt.Sprintf("roles[%s].template.spec", role.Name)
		replicas += int64(role.Replicas)
		gpus = addGPUs(gpus, role.Replicas, repo.GPUs(&role.Template.Spec))
		c.security(field, &role.Template)
		c.hostPaths(field, &role.Template.Spec)
		c.claims(field, &role.Template.Spec)
		c.images(field, &role.Template.Spec)
		c.account(field, &role.Template.Spec)
		if p.HostNetwork != nil && !*p.HostNetwork && role.Template.Spec.HostNetwork {
			c.errorf(field+".hostNetwork", "the policy does not allow the host's network")
		}
	}
	if p.MaxReplicas != nil && replicas > int64(*p.MaxReplicas) {
		c.errorf("roles", "%d replicas; the policy allows %d for a job", replicas, *p.MaxReplicas)
	}
	if p.MaxGPUs != nil && gpus > *p.MaxGPUs {
		c.errorf("roles", "%d GPUs; the policy allows %d for a job", gpus, *p.MaxGPUs)
	}
	return c.found
}

type checker struct {
	policy *Policy
	job    *repo.Job
	found  []*repo.Error
}

func (c *checker) errorf(field, format string, args ...any) {
	c.found = append(c.found, &repo.Error{
		File: c.job.Source.File, Line: c.job.Source.Line, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// namespaces checks the job and the objects that are applied with it.
func (c *checker) namespaces() {
	if c.policy.Namespaces == nil {
		return
	}
	c.namespace("metadata.namespace", c.job.Namespace)
	for _, o := range c.job.Objects {
		var meta struct {
			Metadata struct {
				Namespace string `json:"namespace"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(o.Raw, &meta); err != nil {
			c.errorf("", "%s %s: not readable: %v", o.Kind, o.Name, err)
			continue
		}
		if meta.Metadata.Namespace != "" {
			c.namespace(o.Kind+" "+o.Name+": metadata.namespace", meta.Metadata.Namespace)
		}
	}
}

func (c *checker) namespace(field, name string) {
	for _, pattern := range *c.policy.Namespaces {
		prefix, open := strings.CutSuffix(pattern, "*")
		if name == pattern || open && strings.HasPrefix(name, prefix) {
			return
		}
	}
	c.errorf(field, "%q is no namespace of the policy (%s)", name, list(*c.policy.Namespaces))
}

func (c *checker) hostPaths(field string, spec *corev1.PodSpec) {
	if c.policy.HostPaths == nil {
		return
	}
	for _, v := range spec.Volumes {
		if v.HostPath == nil || slices.ContainsFunc(*c.policy.HostPaths, func(root string) bool { return below(v.HostPath.Path, root) }) {
			continue
		}
		c.errorf(fmt.Sprintf("%s.volumes[%s].hostPath.path", field, v.Name),
			"%q lies in no host path of the policy (%s)", v.HostPath.Path, list(*c.policy.HostPaths))
	}
}

// below says whether a path is root or lies in it. Paths with .. are nowhere:
// what they mean depends on symbolic links.
func below(name, root string) bool {
	if !path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return false
	}
	name, root = path.Clean(name), path.Clean(root)
	return root == "/" || name == root || strings.HasPrefix(name, root+"/")
}

func (c *checker) images(field string, spec *corev1.PodSpec) {
	if c.policy.Registries == nil {
		return
	}
	check := func(kind string, containers []corev1.Container) {
		for _, k := range containers {
			if k.Image == "" || slices.ContainsFunc(*c.policy.Registries, func(r string) bool { return from(k.Image, r) }) {
				continue
			}
			c.errorf(fmt.Sprintf("%s.%s[%s].image", field, kind, k.Name),
				"%q comes from no registry of the policy (%s)", k.Image, list(*c.policy.Registries))
		}
	}
	check("initContainers", spec.InitContainers)
	check("containers", spec.Containers)
	for _, k := range spec.EphemeralContainers {
		check("ephemeralContainers", []corev1.Container{corev1.Container(k.EphemeralContainerCommon)})
	}
	for _, v := range spec.Volumes { // an image can be a volume, too
		if v.Image != nil {
			check("volumes", []corev1.Container{{Name: v.Name, Image: v.Image.Reference}})
		}
	}
}

// from says whether an image comes from a registry, or a path of one. Names
// without a host are Docker Hub's, as every container runtime reads them.
func from(image, registry string) bool {
	host, rest, found := strings.Cut(image, "/")
	switch {
	case !found:
		image = "docker.io/library/" + image
	case host == "index.docker.io":
		image = "docker.io/" + rest
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		image = "docker.io/" + image
	}
	rest, ok := strings.CutPrefix(image, strings.TrimSuffix(registry, "/"))
	if !ok {
		return false
	}
	return strings.HasPrefix(rest, "/") || strings.Contains(registry, "/") && (rest == "" || rest[0] == ':' || rest[0] == '@')
}

func (c *checker) account(field string, spec *corev1.PodSpec) {
	if c.policy.ServiceAccounts == nil {
		return
	}
	check := func(name, account string) {
		if !slices.Contains(*c.policy.ServiceAccounts, account) {
			c.errorf(field+"."+name, "%q is no service account of the policy (%s)", account, list(*c.policy.ServiceAccounts))
		}
	}
	named, old := spec.ServiceAccountName, spec.DeprecatedServiceAccount
	if old != "" {
		check("serviceAccount", old)
	}
	if named != "" || old == "" {
		check("serviceAccountName", cmp.Or(named, "default"))
	}
}

// claims refuses devices that are asked for by claims: nobody here can count
// what a claim brings.
func (c *checker) claims(field string, spec *corev1.PodSpec) {
	if c.policy.MaxGPUs != nil && len(spec.ResourceClaims) > 0 {
		c.errorf(field+".resourceClaims", "the policy counts GPUs, and those of resource claims cannot be counted")
	}
}

// addGPUs adds those of a role; what no integer can hold is the largest one.
func addGPUs(sum int64, replicas int32, each int64) int64 {
	n := int64(max(replicas, 0))
	if each > 0 && n > (math.MaxInt64-sum)/each {
		return math.MaxInt64
	}
	return sum + n*each
}

// list shows what a policy allows.
func list(allowed []string) string {
	if len(allowed) == 0 {
		return "it allows none"
	}
	return strings.Join(allowed, ", ")
}
