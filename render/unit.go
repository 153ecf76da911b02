package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/render/manifest"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// outcome is what became of a unit.
type outcome struct {
	jobs     []repo.Job
	invalid  []invalid
	problems []*repo.Error // of the unit, beside its jobs
}

type invalid struct {
	repo.Invalid
	guessed bool // its name is made from the file's
}

// rendering is one environment's view of one snapshot: what is the same for
// all units. It is not changed while units are rendered.
type rendering struct {
	view        *view
	environment string
	formats     formats
	settings    repo.Settings
	overlay     *overlay
	// blocked are errors of the settings or the overlay: nothing can be
	// rendered then, and all units stay as they were.
	blocked []*repo.Error
}

// unit renders one unit.
func (r *rendering) unit(u unit) (outcome, reads) {
	reader := newReader(r.view)
	b := &unitBuild{rendering: r, unit: u, graph: newGraph(reader, r.formats)}
	if u.dir {
		b.directory()
	} else {
		b.file()
	}
	return b.outcome, reader.reads
}

// unitBuild is the work on one unit.
type unitBuild struct {
	*rendering
	unit    unit
	graph   *graph
	top     *node // of a unit that is a directory
	outcome outcome
}

// invalid reports a job as bad. Its place is that of its definition, wherever
// its errors are.
func (b *unitBuild) invalid(n named, file string, line int, errs []*repo.Error) {
	i := invalid{guessed: n.guessed}
	i.Key = n.key
	i.Source = repo.Source{Unit: b.unit.path, File: file, Line: line}
	i.Errors = repo.SortErrors(slices.Clone(errs))
	b.outcome.invalid = append(b.outcome.invalid, i)
}

// invalidDocument reports the job of a document as bad.
func (b *unitBuild) invalidDocument(d *manifest.Document, errs []*repo.Error) {
	n, ok := b.nameOf(d, b.top)
	if !ok {
		n = b.guess(b.unit)
	}
	b.invalid(n, d.File, d.Line, errs)
}

// file renders a job file: each job of it is built on its own, with the file's
// other objects, so that one bad document spoils no other.
func (b *unitBuild) file() {
	data, err := b.graph.reader.file(b.unit.path)
	if err != nil {
		b.invalid(b.guess(b.unit), b.unit.path, 0, []*repo.Error{{File: b.unit.path, Message: err.Error()}})
		return
	}
	docs, problems := manifest.Parse(b.unit.path, data)
	if errs, _ := repo.Split(problems); len(errs) > 0 {
		b.unreadable(data, errs)
		return
	}
	var jobs, others []string
	var shared []*repo.Error // errors of objects that all jobs of the file have
	var bad, good []int
	wrong := map[int][]*repo.Error{}
	for i, d := range docs {
		text, errs := b.graph.object(d, i)
		isJob := b.formats.find(d.APIVersion(), d.Kind()) != nil
		switch {
		case len(errs) > 0 && (isJob || d.APIVersion() != "v1" && !stands(d)):
			bad, wrong[i] = append(bad, i), errs
		case len(errs) > 0:
			shared = append(shared, errs...)
		case isJob:
			good, jobs = append(good, i), append(jobs, text)
		default:
			others = append(others, text)
		}
	}
	for _, i := range bad {
		b.invalidDocument(docs[i], append(wrong[i], b.blocked...))
	}
	switch {
	case len(good)+len(bad) == 0 && len(shared) > 0:
		b.invalidDocument(docs[0], shared)
	case len(good)+len(bad) == 0:
		b.noJob()
	case len(others) > maxObjects || (1+len(others))*len(good)*(1+b.overlay.changes()) > maxWork:
		shared = append(shared, &repo.Error{File: b.unit.path, Message: "too many objects in one file"})
	}
	for n, i := range good {
		if errs := append(slices.Clone(shared), b.blocked...); len(errs) > 0 {
			b.invalidDocument(docs[i], errs)
			continue
		}
		served := strings.Join(append([]string{jobs[n]}, others...), "---\n")
		b.graph.served[b.unit.path] = []byte(served)
		b.build(b.unit.path, []*manifest.Document{docs[i]}, docs[i], len(others) > 0)
	}
}

// unreadable reports a file that is no YAML: every job in it whose name can be
// made out, or the file.
func (b *unitBuild) unreadable(data []byte, errs []*repo.Error) {
	names := b.scan(data)
	if len(names) == 0 {
		names = []named{b.guess(b.unit)}
	}
	for _, n := range names {
		b.invalid(n, b.unit.path, 0, errs)
	}
}

func (b *unitBuild) noJob() {
	b.outcome.problems = append(b.outcome.problems, &repo.Error{
		File: b.unit.path, Warning: true, Message: "no job is defined here, so nothing of it is used",
	})
}

// directory renders a directory with a kustomization: one build for all of it.
func (b *unitBuild) directory() {
	base := b.unit.path
	own := path.Join(base, repo.OverlaysDir, b.environment)
	for _, name := range kustomizationFiles {
		if b.graph.reader.kind(path.Join(own, name)) == regular {
			base = own
		}
	}
	b.top = b.graph.directory(base, false, reference{})
	docs := b.jobDocuments()
	if b.top != nil && b.top.work+b.top.objects*b.overlay.changes() > maxWork {
		b.graph.add(b.top.doc.Errorf("", "the unit has too many objects for the overlay of environment %s", b.environment))
	}
	if errs, _ := repo.Split(b.graph.problems); len(errs) > 0 || len(b.blocked) > 0 {
		b.allInvalid(docs, append(errs, b.blocked...))
		return
	}
	b.build(base, docs, b.top.doc, true)
}

// jobDocuments are the documents of jobs that a unit's build reads, in order.
func (b *unitBuild) jobDocuments() []*manifest.Document {
	var docs []*manifest.Document
	for _, key := range slices.Sorted(maps.Keys(b.graph.sources)) {
		if d := b.graph.sources[key]; b.formats.find(d.APIVersion(), d.Kind()) != nil {
			docs = append(docs, d)
		}
	}
	return docs
}

// allInvalid reports every job of the unit, or the unit itself.
func (b *unitBuild) allInvalid(docs []*manifest.Document, errs []*repo.Error) {
	for i, e := range errs {
		if e.File == "" {
			copied := *e
			copied.File, errs[i] = b.unit.path, &copied
		}
	}
	if len(docs) == 0 {
		b.invalid(b.guess(b.unit), errs[0].File, 0, errs)
	}
	for _, d := range docs {
		b.invalidDocument(d, errs)
	}
}

// build runs the jobs of docs through kustomize and reads what comes out. What
// is not known to be elsewhere is a problem of the document at.
func (b *unitBuild) build(from string, docs []*manifest.Document, at *manifest.Document, others bool) {
	p := plan{resources: []string{relative(".", from)}, overlay: b.overlay, served: b.graph.served, sources: b.graph.sources}
	fallback := at.Errorf("", "")
	var err error
	if others || b.overlay.adds {
		p.configuration, err = b.formats.configuration(kinds(b.graph.sources))
	}
	var all []built
	if err == nil {
		all, err = build(p)
	}
	if err != nil {
		b.allInvalid(docs, []*repo.Error{translate(err, b.graph, b.overlay, fallback)})
		return
	}
	b.read(all, fallback)
}

// read turns built objects into jobs.
func (b *unitBuild) read(all []built, fallback *repo.Error) {
	var jobs []*repo.Job
	var from []built
	var objects []repo.Object
	found := false
	for _, o := range all {
		apiVersion, _ := o.object["apiVersion"].(string)
		kind, _ := o.object["kind"].(string)
		format := b.formats.find(apiVersion, kind)
		if format == nil {
			object, err := asObject(o, b.formats)
			if err != nil {
				b.allInvalid(b.jobDocuments(), []*repo.Error{{File: fallback.File, Line: fallback.Line, Message: err.Error()}})
				return
			}
			objects = append(objects, object)
			continue
		}
		found = true
		if job := b.readJob(o, format); job != nil {
			jobs, from = append(jobs, job), append(from, o)
		}
	}
	if !found {
		b.noJob()
		return
	}
	b.finish(jobs, from, objects)
}

// readJob has an object read by its format; nil after a problem.
func (b *unitBuild) readJob(o built, format *manifest.Format) *repo.Job {
	b.formats.dropHusks(o.object)
	restoreOrder(o.object, o.source, format)
	object := manifest.NewObject(o.object, o.source, b.settings)
	job := format.Read(object)
	errs, warnings := repo.Split(object.Problems())
	source := repo.Source{Unit: b.unit.path, File: b.unit.path}
	if o.source != nil {
		source.File, source.Line = o.source.File, o.source.Line
	}
	if len(errs) > 0 || job == nil {
		metadata, _ := o.object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		namespace, _ := metadata["namespace"].(string)
		n, ok := (&rendering{settings: b.settings}).name(namespace, name)
		if !ok {
			n = b.guess(b.unit)
		}
		if len(errs) == 0 {
			errs = []*repo.Error{{File: source.File, Line: source.Line, Message: "cannot be read"}}
		}
		b.invalid(n, source.File, source.Line, errs)
		return nil
	}
	job.Source, job.Warnings = source, warnings
	return job
}

// finish applies the overlay to the jobs' pods and gives them their identity.
func (b *unitBuild) finish(jobs []*repo.Job, from []built, objects []repo.Object) {
	for i, job := range jobs {
		b.overlay.unknownClasses(job, from[i].source)
	}
	changes, wrong, err := applyToPods(jobs, b.overlay, b.settings)
	if err != nil {
		// Nothing but the overlay has been at work on them.
		at := b.overlay.graph.nodes[b.overlay.dir].doc.Errorf("", "")
		e := translate(err, &graph{}, b.overlay, at)
		for _, job := range jobs {
			b.invalid(named{key: job.Key}, job.Source.File, job.Source.Line, []*repo.Error{e})
		}
		return
	}
	for i, job := range jobs {
		if len(wrong[i]) > 0 {
			b.invalid(named{key: job.Key}, job.Source.File, job.Source.Line, wrong[i])
			continue
		}
		// What the format makes comes last: it takes the place of others of its name.
		job.Objects = inNamespace(slices.Concat(objects, job.Objects), job.Namespace)
		uncounted(job, from[i].source)
		format := b.formats.find(job.APIVersion, job.Kind)
		if job.Digest, job.Shape, err = digests(from[i].object, format, objects, changes[i], renamed(from[i].object, b.settings.Rename)); err != nil {
			b.invalid(named{key: job.Key}, job.Source.File, job.Source.Line, []*repo.Error{{File: job.Source.File, Line: job.Source.Line, Message: err.Error()}})
			continue
		}
		b.outcome.jobs = append(b.outcome.jobs, *job)
	}
}

// asObject keeps an object that goes with the jobs of its unit.
func asObject(o built, f formats) (repo.Object, error) {
	var object repo.Object
	object.APIVersion, _ = o.object["apiVersion"].(string)
	object.Kind, _ = o.object["kind"].(string)
	metadata, _ := o.object["metadata"].(map[string]any)
	object.Name, _ = metadata["name"].(string)
	if why := f.refuse(object.APIVersion, object.Kind); why != "" {
		return object, fmt.Errorf("an overlay or a patch makes %s %q: %s", object.Kind, object.Name, why)
	}
	raw, err := encode(o.object)
	object.Raw = []byte(strings.TrimSuffix(string(raw), "\n"))
	return object, err
}

// inNamespace gives objects without a namespace that of their job.
func inNamespace(objects []repo.Object, namespace string) []repo.Object {
	placed := slices.Clone(objects)
	for i, o := range placed {
		var content map[string]any
		if json.Unmarshal(o.Raw, &content) != nil {
			continue
		}
		metadata, _ := content["metadata"].(map[string]any)
		if metadata == nil || metadata["namespace"] != nil {
			continue
		}
		metadata["namespace"] = namespace
		if raw, err := encode(content); err == nil {
			placed[i].Raw = []byte(strings.TrimSuffix(string(raw), "\n"))
		}
	}
	return placed
}
