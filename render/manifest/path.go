package manifest

import (
	"strconv"
	"strings"
)

// Join is the path of a field: spec.roles, or metadata.annotations["a/b"] when
// the key is no plain word.
func Join(path, key string) string {
	if key == "" || strings.ContainsAny(key, `.[]" `+"\t\n") {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Item is the path of a list's item: spec.roles[0].
func Item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// step is one part of a path: a key, or an index of a list.
type step struct {
	key   string
	index int // -1 for a key
}

// steps takes a path apart again.
func steps(path string) []step {
	var out []step
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			quoted, err := strconv.QuotedPrefix(path[1:])
			if err == nil {
				key, _ := strconv.Unquote(quoted)
				out = append(out, step{key, -1})
				path = strings.TrimPrefix(path[1+len(quoted):], "]")
				continue
			}
			inside, rest, _ := strings.Cut(path[1:], "]")
			if n, err := strconv.Atoi(inside); err == nil {
				out = append(out, step{"", n})
			} else {
				out = append(out, step{inside, -1})
			}
			path = rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out = append(out, step{path[:end], -1})
			path = path[end:]
		}
	}
	return out
}
