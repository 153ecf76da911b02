package status

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

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
	// Binding of the environment, which is written if the tip lacks it; nil for none.
	Binding *repo.Binding
	// Tip is what the branch holds now; nil if there is no such branch.
	Tip fs.FS
	// Before is what it held when it was last read or written, if somebody else
	// has been at it since; nil if nobody has, or nobody knows. What finished runs
	// it told of stay in the histories.
	Before fs.FS
}

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
	if in.Binding != nil {
		b, err := EncodeBinding(*in.Binding)
		if err != nil {
			return nil, "", err
		}
		w.put(in.Layout.Binding(in.Environment), b)
	}
	return w.files, Message(in), nil
}

type writer struct {
	in    Input
	files map[string][]byte
}

// there is what the tip has at a path, nil if it has nothing.
func (w *writer) there(name string) ([]byte, error) { return read(w.in.Tip, name) }

func read(tree fs.FS, name string) ([]byte, error) {
	if tree == nil {
		return nil, nil
	}
	b, err := fs.ReadFile(tree, name)
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
	if c.Record.Damaged != "" {
		return nil // the file that nobody could read stays as it is
	}
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
	w.moved(dir, r)
	w.prune(dir, r)
	w.put(path.Join(dir, repo.PageFile), Page(r, func(log string) string { return w.text(path.Join(dir, log)) }))
	return nil
}

// text is what will be at a path; "" if nothing is, or it cannot be read: the page goes without it.
func (w *writer) text(name string) string {
	b, ok := w.files[name]
	if !ok {
		b, _ = w.there(name)
	}
	return string(b)
}

// history merges what the branch has with what it had before, and with the latest runs.
func (w *writer) history(dir string, r *repo.Record) error {
	places := []string{dir}
	if left(r, dir) {
		places = []string{r.Dir, dir}
	}
	var there [][]byte
	var runs []repo.RunSummary
	for _, place := range places {
		name := path.Join(place, repo.HistoryFile)
		b, err := w.there(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		there = append(there, lines(b)...)
		if b, err = read(w.in.Before, name); err == nil { // or else the latest runs are what is known
			told, _ := DecodeHistory(name, b)
			runs = append(runs, told...)
		}
	}
	merged, err := MergeHistory(bytes.Join(there, []byte("\n")), append(runs, r.History...))
	if err != nil {
		return err
	}
	if len(merged) > 0 {
		w.put(path.Join(dir, repo.HistoryFile), merged)
	}
	return nil
}

// left says whether a record was read from another place than it has now: the
// number of shards has changed.
func left(r *repo.Record, dir string) bool { return r.Dir != "" && r.Dir != dir }

// prune removes log tails of runs that are long over.
func (w *writer) prune(dir string, r *repo.Record) {
	if w.in.Tip == nil {
		return
	}
	keep := map[string]bool{}
	if r.Run != nil {
		keep[r.Run.ID] = true
	}
	for _, s := range r.History[max(0, len(r.History)-repo.KeptRuns):] {
		keep[s.ID] = true
	}
	runs, err := fs.ReadDir(w.in.Tip, path.Join(dir, "logs"))
	if err != nil {
		return // there are none
	}
	for _, e := range runs {
		if e.IsDir() && !keep[e.Name()] {
			w.below(path.Join(dir, "logs", e.Name()), func(name string) { w.files[name] = nil })
		}
	}
}

// moved brings the log tails along, and removes the record from where it was.
// What else is in that directory is not its own: a shard may have a job's name.
func (w *writer) moved(dir string, r *repo.Record) {
	if !left(r, dir) {
		return
	}
	for _, file := range []string{repo.StatusFile, repo.HistoryFile, repo.PageFile} {
		w.below(path.Join(r.Dir, file), func(name string) { w.files[name] = nil })
	}
	w.below(path.Join(r.Dir, "logs"), func(name string) {
		to := dir + strings.TrimPrefix(name, r.Dir)
		if b, err := w.there(name); err == nil && w.files[to] == nil {
			w.put(to, b)
			w.files[name] = nil
		}
	})
}

// below calls f for every file of the tip below a path, or at it.
func (w *writer) below(root string, f func(name string)) {
	if w.in.Tip == nil {
		return
	}
	_ = fs.WalkDir(w.in.Tip, root, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			f(name)
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
