package render

import (
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// named is the best name that a bad job could be given. guessed is set when it
// was made from the name of its file.
type named struct {
	key     repo.Key
	guessed bool
}

// nameOf is the name of a document's job as it would have been built.
func (r *rendering) nameOf(d *manifest.Document, of ...*node) (named, bool) {
	if d == nil {
		return named{}, false
	}
	return r.name(d.Namespace(), d.Name(), of...)
}

// name makes a key of what was read, the way that kustomizations would.
func (r *rendering) name(namespace, name string, of ...*node) (named, bool) {
	if r.overlay.exists() {
		of = append(of, r.overlay.graph.nodes[r.overlay.dir])
	}
	for _, n := range of {
		if n == nil || name == "" {
			continue
		}
		name = n.fields.NamePrefix + name + n.fields.NameSuffix
		if n.fields.Namespace != "" {
			namespace = n.fields.Namespace
		}
	}
	if len(validation.IsDNS1123Label(name)) > 0 {
		return named{}, false
	}
	return named{key: repo.Key{Namespace: r.namespace(namespace), Name: name}}, true
}

// namespace is the one that a job without a good one gets.
func (r *rendering) namespace(written string) string {
	for _, n := range []string{written, r.settings.Defaults.Namespace} {
		if n != "" && len(validation.IsDNS1123Label(n)) == 0 {
			return n
		}
	}
	return repo.DefaultNamespace
}

var notLabel = regexp.MustCompile(`[^a-z0-9]+`)

// guess makes a name of a unit's path, for a job whose own cannot be read.
func (r *rendering) guess(u unit) named {
	base := strings.TrimSuffix(path.Base(u.path), path.Ext(u.path))
	label := strings.Trim(notLabel.ReplaceAllString(strings.ToLower(base), "-"), "-")
	if len(label) > validation.DNS1123LabelMaxLength {
		label = strings.Trim(label[:validation.DNS1123LabelMaxLength], "-")
	}
	if label == "" {
		label = "job"
	}
	return named{key: repo.Key{Namespace: r.namespace(""), Name: label}, guessed: true}
}

var (
	marker       = regexp.MustCompile(`(?m)^---.*$`)
	metadataName = regexp.MustCompile(`(?m)^"?metadata"?:[^\n]*\n(?:[ \t]+[^\n]*\n|[ \t]*\n|[ \t]*#[^\n]*\n)*?[ \t]+"?name"?:[ \t]*["']?([a-z0-9-]+)["']?[ \t,]*(?:#[^\n]*)?\r?$`)
	metadataFlow = regexp.MustCompile(`"?metadata"?:[ \t]*\{[^\n]*?"?\bname"?:[ \t]*["']?([a-z0-9-]+)`)
	namespaceKey = regexp.MustCompile(`(?m)^(?:[ \t]+|"?metadata"?:[ \t]*\{[^\n]*?)"?\bnamespace"?:[ \t]*["']?([a-z0-9-]+)`)
)

// scan finds the names of jobs in a file that is no good YAML.
func (r *rendering) scan(data []byte) []named {
	var all []named
	text := string(data[:min(len(data), maxFile)])
	for _, chunk := range marker.Split(text, maxObjects) {
		m := metadataName.FindStringSubmatch(chunk)
		if m == nil {
			m = metadataFlow.FindStringSubmatch(chunk)
		}
		if m == nil {
			continue
		}
		namespace := ""
		if ns := namespaceKey.FindStringSubmatch(chunk); ns != nil {
			namespace = ns[1]
		}
		if n, ok := r.name(namespace, m[1]); ok {
			all = append(all, n)
		}
	}
	return all
}
