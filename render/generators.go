package render

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/trainyard/trainyard/render/manifest"
)

// generators checks config map generators: their files, and that each of their
// keys can be one. Kustomize takes any, and pods would be refused later.
func (g *graph) generators(n *node) {
	for i := range n.fields.ConfigMapGenerator {
		args := &n.fields.ConfigMapGenerator[i]
		at := reference{n.doc, manifest.Item("configMapGenerator", i)}
		if args.Name == "" {
			g.at(at, "name is required")
		}
		if behaviors := []string{"", "create", "merge", "replace"}; !slices.Contains(behaviors, args.Behavior) {
			g.at(at.of("behavior"), "%q is not one of create, merge, replace%s", args.Behavior, manifest.Nearest(args.Behavior, behaviors[1:]...))
		}
		if args.EnvSource != "" {
			args.EnvSources, args.EnvSource = append(args.EnvSources, args.EnvSource), ""
		}
		g.variables(n, at, args)
	}
	n.own += len(n.fields.ConfigMapGenerator)
}

// of is a field below a reference's own.
func (r reference) of(field string) reference { return reference{r.doc, r.field + "." + field} }

// variables checks what one generator reads.
func (g *graph) variables(n *node, at reference, args *types.ConfigMapArgs) {
	for j, ref := range args.FileSources {
		from := at.of(manifest.Item("files", j))
		key, file, named := strings.Cut(ref, "=")
		if !named {
			key, file = path.Base(ref), ref
		}
		if name, ok := g.data(n, file, from); ok {
			args.FileSources[j] = key + "=" + relative(n.dir, name)
			g.key(from, key)
		}
	}
	for j, literal := range args.LiteralSources {
		from := at.of(manifest.Item("literals", j))
		if key, _, ok := strings.Cut(literal, "="); ok {
			g.key(from, key)
		} else {
			g.at(from, "want key=value, not %q", shorten(literal))
		}
	}
	for j, ref := range args.EnvSources {
		from := at.of(manifest.Item("envs", j))
		if name, ok := g.data(n, ref, from); ok {
			args.EnvSources[j] = relative(n.dir, name)
			if why := wrongEnvFile(g.served[name]); why != "" {
				g.at(from, "%s%s", name, why)
			}
		}
	}
}

func (g *graph) key(at reference, key string) {
	if len(validation.IsConfigMapKey(key)) > 0 {
		g.at(at, "%q cannot be a key of a ConfigMap: letters, digits, -, _ and . only", shorten(key))
	}
}

// wrongEnvFile says which line of a file of variables is none, as ":3: …", or "".
func wrongEnvFile(data []byte) string {
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		name, _, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case !utf8.ValidString(line):
			return fmt.Sprintf(":%d: not UTF-8", i+1)
		case !ok:
			return fmt.Sprintf(":%d: want name=value, not %q", i+1, shorten(line))
		case len(validation.IsEnvVarName(name)) > 0:
			return fmt.Sprintf(":%d: %q cannot be the name of a variable", i+1, shorten(name))
		}
	}
	return ""
}

// data serves a file that a generator takes as it is.
func (g *graph) data(n *node, ref string, from reference) (string, bool) {
	name, ok := g.file(n, ref, from)
	if !ok {
		return "", false
	}
	if g.served[name] != nil {
		return name, g.contents[name].documents == 0
	}
	data, err := g.reader.file(name)
	if err != nil {
		g.at(from, "%q: %s", shorten(ref), err)
		return "", false
	}
	g.served[name] = data
	return name, true
}
