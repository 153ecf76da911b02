package render

import (
	"strings"

	"github.com/trainyard/trainyard/render/framework"
	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/replicaspec"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// operatorsField are files of the repository with the configuration that the
// operators of older systems had, as they were: the file itself, or the
// ConfigMap that held it.
type operatorsField struct {
	FrameworkController string `json:"frameworkController"`
	TfJob               string `json:"tfJob"`
}

// read adds what the operators' files say to the settings.
func (f *operatorsField) read(r *reader, o *manifest.Object, s *repo.Settings) []*repo.Error {
	var problems []*repo.Error
	for _, file := range []struct {
		field, ref string
		keys       []string // under which a ConfigMap has it
		read       func(*manifest.Object, *repo.Settings)
	}{
		{"operators.frameworkController", f.FrameworkController, []string{framework.ConfigFile}, framework.ReadConfig},
		{"operators.tfJob", f.TfJob, []string{"controller_config_file.yaml", "controller-config-file.yaml"}, replicaspec.ReadConfig},
	} {
		if file.ref == "" {
			continue
		}
		name, why := plainPath(".", file.ref)
		if why != "" {
			o.Errorf(file.field, "%q %s", file.ref, why)
			continue
		}
		if k := r.kind(name); k != regular {
			r.reads[name] = r.view.hash(name)
			o.Errorf(file.field, "%q is no regular file of this repository", name)
			continue
		}
		config, errs := operatorFile(r, name, file.keys)
		problems = append(problems, config.read(errs, s, file.read)...)
	}
	return problems
}

// operatorConfig is a configuration that was found; nil is none.
type operatorConfig struct {
	object *manifest.Object
	inside bool // of a ConfigMap's text, where only lines are known
}

// read adds a configuration to the settings and returns all that is wrong with it.
func (c *operatorConfig) read(problems []*repo.Error, s *repo.Settings, into func(*manifest.Object, *repo.Settings)) []*repo.Error {
	if c == nil {
		return problems
	}
	if c.object != nil {
		into(c.object, s)
		problems = append(problems, c.object.Problems()...)
	}
	for _, p := range problems {
		if c.inside {
			p.Column = 0
		}
	}
	return problems
}

// operatorFile finds an operator's configuration in a file.
func operatorFile(r *reader, name string, keys []string) (*operatorConfig, []*repo.Error) {
	data, err := r.file(name)
	if err != nil {
		return nil, []*repo.Error{{File: name, Message: err.Error()}}
	}
	docs, problems := manifest.Parse(name, data)
	if errs, _ := repo.Split(problems); len(errs) > 0 {
		return nil, problems
	}
	for _, d := range docs {
		if line, text, ok := textOf(d, keys); ok {
			// As many empty lines before it as there are in the file, so that
			// problems are told of at their own.
			inside, errs := manifest.Parse(name, []byte(strings.Repeat("\n", line)+text))
			if errs, _ := repo.Split(errs); len(errs) > 0 || len(inside) == 0 {
				return &operatorConfig{inside: true}, errs
			}
			object, errs := asConfig(inside[0])
			return &operatorConfig{object, true}, errs
		}
	}
	if len(docs) == 0 || docs[0].Kind() != "" {
		return nil, append(problems, &repo.Error{File: name, Message: "want the operator's configuration, or a ConfigMap with the key " + keys[0]})
	}
	object, errs := asConfig(docs[0])
	return &operatorConfig{object: object}, append(problems, errs...)
}

// textOf is the text under one of the keys of a ConfigMap's data, and the line of the key.
func textOf(d *manifest.Document, keys []string) (line int, text string, ok bool) {
	v, err := content(d.Root)
	object, isMap := v.(map[string]any)
	if err != nil || !isMap || d.Kind() != "ConfigMap" {
		return 0, "", false
	}
	data, _ := object["data"].(map[string]any)
	for _, key := range keys {
		if text, ok := data[key].(string); ok {
			line, _ := d.Position(manifest.Join("data", key))
			return line, text, true
		}
	}
	return 0, "", false
}

func asConfig(d *manifest.Document) (*manifest.Object, []*repo.Error) {
	v, err := content(d.Root)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, []*repo.Error{d.Errorf("", "want a map, the configuration of the operator")}
	}
	return manifest.NewObject(object, d, repo.Settings{}), nil
}
