package status

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Read finds all records of an environment, with or without shards. One that
// cannot be read is given as a record that says so in Damaged: whoever took it
// for a job that never ran would run it again.
func Read(tip fs.FS, layout repo.Layout, environment string) (records []repo.Record, problems []*repo.Error) {
	root := layout.EnvironmentDir(environment)
	err := fs.WalkDir(tip, root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
		if e.IsDir() {
			if strings.Count(rel, "/") > 2 {
				return fs.SkipDir // runs' logs; a job may be called logs, and a namespace too
			}
			return nil
		}
		if path.Base(name) != repo.StatusFile || strings.Count(rel, "/") < 2 {
			return nil
		}
		r, errs := readRecord(tip, layout, environment, name)
		problems = append(problems, errs...)
		records = append(records, r)
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, &repo.Error{File: root, Message: err.Error()})
	}
	return unique(records, layout, environment), problems
}

// unique keeps one of two records of the same job: the one that lies where the
// layout has it. The other is left from another number of shards.
func unique(records []repo.Record, layout repo.Layout, environment string) []repo.Record {
	at := map[repo.Key]int{}
	var out []repo.Record
	for _, r := range records {
		i, ok := at[r.Key()]
		switch {
		case !ok:
			at[r.Key()] = len(out)
			out = append(out, r)
		case r.Dir == layout.RecordDir(environment, r.Key()):
			out[i] = r
		}
	}
	return out
}

func readRecord(tip fs.FS, layout repo.Layout, environment, name string) (repo.Record, []*repo.Error) {
	dir := path.Dir(name)
	b, err := fs.ReadFile(tip, name)
	var r repo.Record
	if err == nil {
		r, err = Decode(b)
	}
	namespace, _, _ := strings.Cut(strings.TrimPrefix(name, layout.EnvironmentDir(environment)+"/"), "/")
	switch {
	case err != nil:
	case path.Base(dir) != r.Metadata.Name || namespace != r.Metadata.Namespace:
		err = fmt.Errorf("decode record: it is of another job, %s", r.Key())
	case r.Environment != "" && r.Environment != environment:
		err = fmt.Errorf("decode record: it is of another environment, %s", r.Environment)
	}
	if err != nil {
		problem := &repo.Error{File: name, Message: err.Error()}
		return repo.Record{
			Metadata: repo.RecordMeta{Name: path.Base(dir), Namespace: namespace}, Environment: environment, Dir: dir, Damaged: problem.Error(),
		}, []*repo.Error{problem}
	}
	r.Dir = dir
	historyFile := path.Join(dir, repo.HistoryFile)
	h, err := fs.ReadFile(tip, historyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		r.Damaged = err.Error()
		return r, []*repo.Error{{File: historyFile, Message: err.Error()}}
	}
	runs, problems := DecodeHistory(historyFile, h)
	r.History = runs
	r.Fold(len(runs))
	return r, problems
}
