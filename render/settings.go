package render

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/render/manifest"
	"github.com/trainyard/trainyard/render/rules"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// What trainyard.yaml says that it is.
const (
	settingsVersion = "trainyard.dev/v1"
	settingsKind    = "Repository"
)

// settingsFile is trainyard.yaml as it is written.
type settingsFile struct {
	APIVersion   string                      `json:"apiVersion"`
	Kind         string                      `json:"kind"`
	Environments map[string]environmentField `json:"environments"`
	Defaults     defaultsField               `json:"defaults"`
	FailureRules []rules.Spec                `json:"failureRules"`
	Status       statusField                 `json:"status"`
	Removal      removalField                `json:"removal"`
	Operators    operatorsField              `json:"operators"`
	GPUs         gpusField                   `json:"gpus"`
}

// environmentField has no settings of its own yet.
type environmentField struct{}

type defaultsField struct {
	Namespace string            `json:"namespace"`
	OnChange  string            `json:"onChange"`
	Deadline  manifest.Duration `json:"deadline"`
	Cleanup   *cleanupField     `json:"cleanup"`
}

type cleanupField struct {
	Pods  string            `json:"pods"`
	After manifest.Duration `json:"after"`
}

type statusField struct {
	Shards int `json:"shards"`
}

type removalField struct {
	MaxShare *float64 `json:"maxShare"`
	Confirm  string   `json:"confirm"`
}

// maxShards keeps the directories of a namespace few.
const maxShards = 256

// readSettings reads trainyard.yaml, which need not be there.
func readSettings(r *reader, environment string) (repo.Settings, []*repo.Error) {
	if k := r.kind(repo.SettingsFile); k == directory || r.hidden(repo.SettingsFile) {
		return repo.Settings{}, []*repo.Error{{File: repo.SettingsFile, Message: "is no regular file; symbolic links are not followed"}}
	} else if k == absent {
		return repo.Settings{}, nil
	}
	data, err := r.file(repo.SettingsFile)
	if err != nil {
		return repo.Settings{}, []*repo.Error{{File: repo.SettingsFile, Message: err.Error()}}
	}
	docs, problems := manifest.Parse(repo.SettingsFile, data)
	if errs, _ := repo.Split(problems); len(errs) > 0 || len(docs) == 0 {
		return repo.Settings{}, problems
	}
	if len(docs) > 1 {
		return repo.Settings{}, append(problems, docs[1].Errorf("", "the settings are one document, found %d", len(docs)))
	}
	v, err := content(docs[0].Root)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return repo.Settings{}, append(problems, docs[0].Errorf("", "want a map with apiVersion: %s and kind: %s", settingsVersion, settingsKind))
	}
	delete(object, "metadata") // people add a name by habit, and it says nothing
	o := manifest.NewObject(object, docs[0], repo.Settings{})
	var f settingsFile
	o.Decode("", &f, manifest.Options{})
	settings := f.settings(o, environment)
	problems = append(problems, f.Operators.read(r, o, &settings)...)
	renameAccelerators(&settings)
	return settings, repo.SortErrors(append(problems, o.Problems()...))
}

// settings checks what was read.
func (f *settingsFile) settings(o *manifest.Object, environment string) repo.Settings {
	// Both may be left out: the dashboard tells people to write one line.
	if f.APIVersion != "" && f.APIVersion != settingsVersion {
		o.Errorf("apiVersion", "want %s, not %q", settingsVersion, f.APIVersion)
	}
	if f.Kind != "" && f.Kind != settingsKind {
		o.Errorf("kind", "want %s, not %q", settingsKind, f.Kind)
	}
	if _, ok := f.Environments[environment]; !ok && len(f.Environments) > 0 {
		known := slices.Sorted(maps.Keys(f.Environments))
		o.Errorf("environments", "environment %q is not among them: %s%s", environment, strings.Join(known, ", "), manifest.Nearest(environment, known...))
	}
	for name := range f.Environments {
		if len(validation.IsDNS1123Label(name)) > 0 {
			o.Errorf(manifest.Join("environments", name), "an environment's name may have only lower-case letters, digits and dashes")
		}
	}
	var s repo.Settings
	s.Defaults = f.Defaults.defaults(o)
	s.Rules = rules.Read(o, "failureRules", f.FailureRules)
	if s.Shards = f.Status.Shards; s.Shards < 0 || s.Shards > maxShards {
		o.Errorf("status.shards", "want a number from 0 to %d, not %d", maxShards, s.Shards)
	}
	s.Rename = f.GPUs.read(o)
	s.Removal.Confirm = f.Removal.Confirm
	if share := f.Removal.MaxShare; share != nil {
		if s.Removal.MaxShare = *share; !(*share > 0 && *share <= 1) {
			o.Errorf("removal.maxShare", "want a number above 0 and at most 1, not %v", *share)
		}
	}
	return s
}

func (f *defaultsField) defaults(o *manifest.Object) repo.Defaults {
	d := repo.Defaults{Namespace: f.Namespace, Deadline: time.Duration(f.Deadline)}
	if f.Namespace != "" {
		o.Label("defaults.namespace", f.Namespace)
	}
	d.OnChange = manifest.OneOf(o, "defaults.onChange", repo.OnChange(f.OnChange), "", repo.Finish, repo.Restart, repo.Ignore)
	if f.Cleanup != nil {
		d.Cleanup = &repo.Cleanup{
			Pods:  manifest.OneOf(o, "defaults.cleanup.pods", repo.CleanupPods(f.Cleanup.Pods), repo.CleanupAll, repo.CleanupAll, repo.CleanupRunning, repo.CleanupNone),
			After: time.Duration(f.Cleanup.After),
		}
	}
	return d
}
