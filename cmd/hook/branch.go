package hook

import (
	"bytes"
	"encoding/json"
	"strings"
)

// branchOf reads the branch that a push was to from the head of its payload,
// which is cut off anywhere; "" when it is not in there or no branch. The field
// is the document's own "ref", not one of an object within it.
func branchOf(head []byte) string {
	dec := json.NewDecoder(bytes.NewReader(head))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for {
		key, err := dec.Token()
		if err != nil {
			return ""
		}
		if key != "ref" {
			var skipped json.RawMessage
			if dec.Decode(&skipped) != nil {
				return ""
			}
			continue
		}
		var ref string
		if dec.Decode(&ref) != nil {
			return ""
		}
		if branch, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			return branch
		}
		return ""
	}
}
