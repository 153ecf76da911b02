package status

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Input is what a publish carries.
type Input struct {
	Layout      repo.Layout
	Environment string
	Revision    string // of the watched branch
	Changes     []repo.Change
	Records     []repo.Record // all of the environment, for the dashboard
	Notices     []string
	// Tip is what the branch holds now; nil if there is no such branch.
	Tip fs.FS
}

// keptRuns is how many runs' log tails stay on the branch. Older ones are in
// its history.
const keptRuns = 20

// Files are all files that a publish writes, nil contents to delete, and the
// commit's message. Files that are as they should be are left out: if nothing
// has changed the map is empty, and there is nothing to commit. Histories are
// merged with what the branch has; files of others are not touched.
func Files(in Input) (map[string][]byte, string, error) {
	w := writer{in: in, files: map[string][]byte{}}
	for i := range in.Changes {
		if err := w.change(&in.Changes[i]); err != nil {
			return nil, "", err
		}
	}
	if err := w.dashboard(); err != nil {
		return nil, "", err
	}
	return w.files, Message(in), nil
}

type writer struct {
	in    Input
	files map[string][]byte
}

// there is what the tip has at a path, nil if it has nothing.
func (w *writer) there(name string) ([]byte, error) {
	if w.in.Tip == nil {
		return nil, nil
	}
	b, err := fs.ReadFile(w.in.Tip, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// put writes a file unless the tip has it already.
func (w *writer) put(name string, b []byte) {
	if old, err := w.there(name); err != nil || old == nil || !bytes.Equal(old, b) {
		w.files[name] = b
	}
}

func (w *writer) change(c *repo.Change) error {
	record, err := public(c.Record)
	if err != nil {
		return err
	}
	r := &record
	dir := w.in.Layout.RecordDir(w.in.Environment, r.Key())
	b, err := Encode(*r)
	if err != nil {
		return err
	}
	w.put(path.Join(dir, repo.StatusFile), b)
	if err := w.history(dir, r); err != nil {
		return err
	}
	for _, t := range c.Tails {
		w.put(path.Join(dir, t.Path), []byte(t.Text))
	}
	tails := func(name string) string {
		for _, t := range c.Tails {
			if t.Path == name {
				return t.Text
			}
		}
		text, err := w.there(path.Join(dir, name))
		if err != nil {
			return "" // the page goes without it
		}
		return string(text)
	}
	w.put(path.Join(dir, repo.PageFile), Page(r, tails))
	w.prune(dir, r)
	w.moved(dir, r)
	return nil
}

func (w *writer) history(dir string, r *repo.Record) error {
	name := path.Join(dir, repo.HistoryFile)
	there, err := w.there(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	merged, err := MergeHistory(there, r.History)
	if err != nil {
		return err
	}
	if len(merged) > 0 {
		w.put(name, merged)
	}
	return nil
}

// prune removes log tails of runs that are long over.
func (w *writer) prune(dir string, r *repo.Record) {
	if w.in.Tip == nil {
		return
	}
	keep := map[string]bool{}
	if r.Run != nil {
		keep[r.Run.ID] = true
	}
	for _, s := range r.History[max(0, len(r.History)-keptRuns):] {
		keep[s.ID] = true
	}
	runs, err := fs.ReadDir(w.in.Tip, path.Join(dir, "logs"))
	if err != nil {
		return // there are none
	}
	for _, e := range runs {
		if e.IsDir() && !keep[e.Name()] {
			w.remove(path.Join(dir, "logs", e.Name()))
		}
	}
}

// moved removes a record from where another number of shards had it.
func (w *writer) moved(dir string, r *repo.Record) {
	if r.Dir != "" && r.Dir != dir {
		w.remove(r.Dir)
	}
}

// remove deletes everything below a directory of the tip.
func (w *writer) remove(dir string) {
	if w.in.Tip == nil {
		return
	}
	_ = fs.WalkDir(w.in.Tip, dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			w.files[name] = nil
		}
		return nil // what cannot be listed stays
	})
}

func (w *writer) dashboard() error {
	name := w.in.Layout.Dashboard()
	there, err := w.there(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	w.put(name, Dashboard(there, w.in.Layout, w.in.Environment, w.in.Records, w.in.Notices))
	attributes := path.Join(w.in.Layout.Root, ".gitattributes")
	const union = repo.HistoryFile + " merge=union\n"
	if there, err := w.there(attributes); err == nil && !slices.ContainsFunc(lines(there), func(l []byte) bool { return string(l)+"\n" == union }) {
		if n := len(there); n > 0 && there[n-1] != '\n' {
			there = append(there, '\n')
		}
		w.put(attributes, append(bytes.Clone(there), union...))
	}
	return nil
}
