package manifest

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unknown reports a key that means nothing where it stands.
func (d *decoder) unknown(path, key string, known []string, in map[string]any, t reflect.Type) {
	if d.o.full() {
		return
	}
	near := nearest(key, known)
	hint := ""
	if near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	if t == reflect.TypeFor[corev1.Container]() && near == "volumeMounts" {
		for _, name := range namesIn(in[key]) {
			hint += fmt.Sprintf(" Container %q has no mount for volume %q.", in["name"], name)
		}
		hint = strings.TrimSuffix(hint, ".")
	}
	if d.opts.Lenient {
		d.o.Warnf(Join(path, key), "unknown field ignored%s", hint)
		return
	}
	d.o.Errorf(Join(path, key), "unknown field%s", hint)
}

func namesIn(v any) (names []string) {
	list, _ := v.([]any)
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			if s, ok := m["name"].(string); ok {
				names = append(names, s)
			}
		}
	}
	return names
}

// Nearest is the known word that a word is most likely meant to be, as a hint
// to put behind an error: `; did you mean "x"?`, or "".
func Nearest(word string, known ...string) string {
	if near := nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

func nearest(word string, known []string) string {
	best, bestDistance := "", 1+max(2, len(word)/3)
	if len(word) <= 3 {
		bestDistance = 2
	}
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace to get from a to b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
