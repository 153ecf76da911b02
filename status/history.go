package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// DecodeHistory reads a history.jsonl. Lines that cannot be read are skipped
// and told with their numbers; a
// run that is there twice is taken once.
func DecodeHistory(file string, b []byte) (runs []repo.RunSummary, problems []*repo.Error) {
	seen := map[string]bool{}
	for i, line := range lines(b) {
		s, err := decodeRun(line)
		switch {
		case err == nil && !seen[s.ID]:
			seen[s.ID] = true
			runs = append(runs, s)
		case err != nil && len(bytes.TrimSpace(line)) > 0:
			problems = append(problems, &repo.Error{File: file, Line: i + 1, Message: "no finished run can be read from this line: " + err.Error()})
		}
	}
	return runs, problems
}

// MergeHistory is what the remote has, with the runs that it has not behind
// it. What is there is kept byte for byte, damaged lines too: a finished run is
// never forgotten.
func MergeHistory(there []byte, runs []repo.RunSummary) ([]byte, error) {
	known := map[string]bool{}
	var out bytes.Buffer
	for _, line := range lines(there) {
		if s, err := decodeRun(line); err == nil {
			if known[s.ID] {
				continue // a merge by union doubled it
			}
			known[s.ID] = true
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	for _, s := range runs {
		if known[s.ID] {
			continue
		}
		known[s.ID] = true
		s.Message = Mask(s.Message)
		line, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("encode run %s: %w", s.ID, err)
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

func decodeRun(line []byte) (repo.RunSummary, error) {
	var s repo.RunSummary
	if err := json.Unmarshal(line, &s); err != nil {
		return s, err
	}
	if s.ID == "" {
		return s, errors.New("it has no id")
	}
	return s, nil
}

// lines are the lines of a file, without empty ones at its end.
func lines(b []byte) [][]byte {
	b = bytes.TrimRight(b, "\n")
	if len(b) == 0 {
		return nil
	}
	return bytes.Split(b, []byte("\n"))
}
